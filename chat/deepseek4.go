package chat

import (
	"fmt"

	"sparrow/internal/mark"
)

// DeepSeekV4 is the format of the DeepSeek-V4 family, whose first releases ship an encoder instead of a template.
//
//	BOS [effort] system User text Assistant </think> answer EOS User text Assistant <think>
//
// Tool results are part of the user's turn, and consecutive user messages are one turn. Request tools and the response
// format are shown at the end of the first system message. If there is none, an empty one is added.
//
// Template arguments: thinking (or enable_thinking), reasoning_effort, task (one of v4Tasks), drop_thinking and
// effort_profile. drop_thinking, on by default, removes the reasoning of earlier turns and earlier developer messages,
// except in conversations with tools. effort_profile, preview or official, overrides Preview for one request.
type DeepSeekV4 struct {
	// Preview selects the effort levels of the preview release: high (the default) and max, instead of low (the
	// default), high and max.
	Preview bool
}

var v4 = dialect{block: "tool_calls", toolsPrefix: v4ToolsPrefix, toolsSuffix: v4ToolsSuffix}

// Name returns "deepseek-v4" or "deepseek-v4-preview".
func (f DeepSeekV4) Name() string {
	if f.Preview {
		return "deepseek-v4-preview"
	}
	return "deepseek-v4"
}

// Parser returns a parser for DSML calls.
func (f DeepSeekV4) Parser(req Request) Parser {
	return newDSMLParser(v4, req, begun(f, req))
}

// Render writes the prompt.
func (f DeepSeekV4) Render(req Request) (Prompt, error) {
	turns, err := checkRequest(req, System, Developer, User, Assistant, ToolRole, Reminder)
	if err != nil {
		return Prompt{}, err
	}
	if err := checkKwargs(req, "thinking", "enable_thinking", "drop_thinking", "reasoning_effort", "effort_profile",
		"task"); err != nil {
		return Prompt{}, err
	}
	e := &v4Encoder{req: req, dialect: v4}
	if e.thinking, err = thinkingMode(req, false); err != nil {
		return Prompt{}, err
	}
	if e.task, err = v4Task(req); err != nil {
		return Prompt{}, err
	}
	drop, err := boolKwarg(req, "drop_thinking")
	if err != nil {
		return Prompt{}, err
	}
	if e.turns, err = v4Merge(declareFirst(req, lateSystem(turns))); err != nil {
		return Prompt{}, err
	}
	e.drop = drop == nil || *drop
	for _, t := range e.turns {
		e.drop = e.drop && len(t.Tools) == 0
	}
	if e.thinking && e.drop {
		e.turns = dropDevelopers(e.turns)
	}
	e.last = lastUser(e.turns)
	effort, err := f.effort(req)
	if err != nil {
		return Prompt{}, err
	}
	e.b.WriteString(deepseekBOS)
	if e.thinking {
		e.b.WriteString(effort)
	}
	return e.encode()
}

// effort returns the instruction text for more reasoning; it is empty for the default level.
func (f DeepSeekV4) effort(req Request) (string, error) {
	word, err := effortWord(req)
	if err != nil {
		return "", err
	}
	profile, err := textKwarg(req, "effort_profile")
	switch {
	case err != nil:
		return "", err
	case profile == "preview" || profile == "official":
		f.Preview = profile == "preview"
	case profile != "":
		return "", fieldError("chat_template_kwargs.effort_profile", "must be preview or official, not %q", profile)
	}
	levels, names := map[string]string{"": "", "low": "", "high": v4EffortStrong, "max": v4EffortBeyond},
		"low, high and max"
	if f.Preview {
		levels, names = map[string]string{"": "", "high": "", "max": v4EffortStrong}, "high and max"
	}
	text, ok := levels[word]
	if !ok {
		return "", fmt.Errorf("%w: reasoning_effort: %q is not supported: %s supports %s", ErrUnsupported, word,
			f.Name(), names)
	}
	return text, nil
}

// v4Merge merges each run of user and tool messages into one user turn. Results are in the order of the calls.
func v4Merge(turns []turn) ([]turn, error) {
	var merged []turn
	for i := 0; i < len(turns); {
		t := turns[i]
		if t.Role != User && t.Role != ToolRole {
			merged = append(merged, t)
			i++
			continue
		}
		user := turn{Message: Message{Role: User}, index: t.index}
		var b mark.Builder
		first := true
		separate := func() {
			if !first {
				b.WriteString("\n\n")
			}
			first = false
		}
		for i < len(turns) && (turns[i].Role == User || turns[i].Role == ToolRole) {
			if turns[i].Role == User {
				separate()
				turns[i].write(&b, turns[i].Content)
				i++
				continue
			}
			group, end, err := results(turns, i)
			if err != nil {
				return nil, err
			}
			for _, r := range group {
				separate()
				b.WriteString("<tool_result>")
				r.write(&b, r.Content)
				b.WriteString("</tool_result>")
			}
			i = end
		}
		user.merged = b.Text()
		merged = append(merged, user)
	}
	return merged, nil
}

// v4Encoder writes one prompt.
type v4Encoder struct {
	dialect
	req      Request
	turns    []turn
	systems  bool // whether system messages have a marker, and those after the first are followed by a reply
	thinking bool
	drop     bool   // whether reasoning of earlier turns is omitted
	last     int    // index in turns of the last user or developer message
	task     string // the task that applies to that message; empty for none
	b        mark.Builder
	open     bool // whether the text ends inside a reasoning block
}

func (e *v4Encoder) encode() (Prompt, error) {
	for i, t := range e.turns {
		var err error
		switch t.Role {
		case System:
			if e.systems && i > 0 {
				e.b.WriteString(deepseekSystem)
			}
			t.write(&e.b, t.Content)
			err = e.declarations(&e.b, t, formatField(e.req, t), e.req.Memo)
		case Developer:
			if t.Content == "" {
				return Prompt{}, fieldError(messageField(t.index, "content"), "a developer message must not be empty")
			}
			e.b.WriteString(deepseekUser)
			t.write(&e.b, t.Content)
			err = e.declarations(&e.b, t, formatField(e.req, t), e.req.Memo)
		case User:
			e.b.WriteString(deepseekUser)
			e.b.Write(t.merged)
		case Reminder:
			e.b.WriteString(deepseekReminder)
			t.write(&e.b, t.Content)
		case Assistant:
			err = e.assistant(i, t)
		}
		if err != nil {
			return Prompt{}, err
		}
		e.handOver(i)
	}
	last := e.turns[len(e.turns)-1]
	if e.req.AddGenerationPrompt && (last.Role == System && !e.asks(len(e.turns)-1) || last.Role == Assistant) {
		return Prompt{}, fieldError(messageField(len(e.req.Messages)-1, "role"),
			"is %q: a reply can only follow a user, developer or tool message; to continue an assistant message, set "+
				"continue_final_message", last.Role)
	}
	if e.task != "" && last.Role != User && last.Role != Developer {
		return Prompt{}, fieldError("chat_template_kwargs.task",
			"applies to the last message, which has role %q; want user or developer", last.Role)
	}
	p := Prompt{HasBOS: true, Stop: []string{deepseekEOS}, InReasoning: e.open}
	p.set(e.req, e.b.Text())
	if e.task != "" {
		p.Markers = []string{taskMarker(e.task)}
	}
	return p, nil
}

// asks reports whether a reply of the assistant follows turns[i].
func (e *v4Encoder) asks(i int) bool {
	r := e.turns[i].Role
	return r == User || r == Developer || r == System && e.systems && i > 0
}

// handOver writes the assistant marker after turns[i] if a reply follows. A reminder is written after the marker.
func (e *v4Encoder) handOver(i int) {
	if !e.asks(i) {
		return
	}
	if i+1 == len(e.turns) {
		if !e.req.AddGenerationPrompt {
			return
		}
		if e.task != "" {
			e.ask()
			return
		}
	} else if r := e.turns[i+1].Role; r != Assistant && r != Reminder {
		return
	}
	e.b.WriteString(deepseekAssistant)
	if e.open = e.thinking && (!e.drop || i >= e.last); e.open {
		e.b.WriteString(thinkOpen)
	} else {
		e.b.WriteString(thinkClose)
	}
}

func (e *v4Encoder) assistant(i int, t turn) error {
	final := e.req.ContinueFinal && i == len(e.turns)-1
	if e.thinking && (!e.drop || i > e.last) {
		t.write(&e.b, t.Reasoning)
		if final && t.Content == "" {
			return nil // the model continues the open reasoning block
		}
		e.b.WriteString(thinkClose)
	}
	e.open = false
	t.write(&e.b, t.Content)
	if len(t.ToolCalls) > 0 {
		e.b.WriteString("\n\n")
		if err := e.calls(&e.b, t); err != nil {
			return err
		}
	}
	if !final {
		e.b.WriteString(deepseekEOS)
	}
	return nil
}
