package chat

import "sparrow/internal/mark"

// DeepSeekV32 is the format of DeepSeek-V3.2, whose repository ships an encoder instead of a template.
//
//	BOS system User text Assistant </think> answer EOS User text Assistant <think>
//
// The assistant marker ends the user's turn. No marker follows tool results: the model continues after them. Request
// tools and the response format are shown at the end of the first system message. If the conversation does not start
// with a system message, an empty one is added.
//
// Template arguments: thinking (or enable_thinking), and drop_thinking, on by default, which in thinking mode removes
// developer messages before the last user turn. Reasoning of earlier turns is never shown.
type DeepSeekV32 struct{}

var v32 = dialect{block: "function_calls", toolsPrefix: v32ToolsPrefix, toolsSuffix: v32ToolsSuffix}

// Name is "deepseek-v3.2".
func (DeepSeekV32) Name() string { return "deepseek-v3.2" }

// Parser returns a parser for DSML calls.
func (f DeepSeekV32) Parser(req Request) Parser {
	return newDSMLParser(v32, req, begun(f, req))
}

// Render writes the prompt.
func (f DeepSeekV32) Render(req Request) (Prompt, error) {
	turns, err := checkRequest(req, System, Developer, User, Assistant, ToolRole)
	if err != nil {
		return Prompt{}, err
	}
	if err := checkKwargs(req, "thinking", "enable_thinking", "drop_thinking"); err != nil {
		return Prompt{}, err
	}
	if err := rejectEffort(req, "DeepSeek-V3.2"); err != nil {
		return Prompt{}, err
	}
	e := &v32Encoder{req: req}
	if e.thinking, err = thinkingMode(req, false); err != nil {
		return Prompt{}, err
	}
	drop, err := boolKwarg(req, "drop_thinking")
	if err != nil {
		return Prompt{}, err
	}
	e.turns = declareFirst(req, lateSystem(turns))
	if e.thinking && (drop == nil || *drop) {
		e.turns = dropDevelopers(e.turns)
	}
	e.last = lastUser(e.turns)
	return e.encode()
}

// v32Encoder writes one prompt.
type v32Encoder struct {
	req      Request
	turns    []turn
	thinking bool
	last     int // index in turns of the last user or developer message
	b        mark.Builder
	open     bool // whether the text ends inside a reasoning block
}

func (e *v32Encoder) encode() (Prompt, error) {
	e.b.WriteString(deepseekBOS)
	for i := 0; i < len(e.turns); {
		t := e.turns[i]
		next, err := i+1, error(nil)
		switch t.Role {
		case System:
			t.write(&e.b, t.Content)
			err = v32.declarations(&e.b, t, formatField(e.req, t), e.req.Memo)
		case User:
			e.user(i, t)
		case Developer:
			err = e.developer(i, t)
		case Assistant:
			err = e.assistant(i, t)
		case ToolRole:
			next, err = e.results(i)
		}
		if err != nil {
			return Prompt{}, err
		}
		i = next
	}
	if role := e.turns[len(e.turns)-1].Role; e.req.AddGenerationPrompt && (role == System || role == Assistant) {
		return Prompt{}, fieldError(messageField(len(e.req.Messages)-1, "role"),
			"is %q: a reply can only follow a user, developer or tool message; to continue an assistant message, set "+
				"continue_final_message", role)
	}
	p := Prompt{HasBOS: true, Stop: []string{deepseekEOS}, InReasoning: e.open}
	p.set(e.req, e.b.Text())
	return p, nil
}

// user writes a user turn and the marker that begins the assistant's turn.
func (e *v32Encoder) user(i int, t turn) {
	e.b.WriteString(deepseekUser)
	t.write(&e.b, t.Content)
	e.handOver(i)
}

func (e *v32Encoder) handOver(i int) {
	if i == len(e.turns)-1 && !e.req.AddGenerationPrompt {
		return
	}
	e.b.WriteString(deepseekAssistant)
	e.think(e.thinking && i == e.last)
}

// think writes the marker that begins a reasoning block or, if open is false, the marker of an empty one.
func (e *v32Encoder) think(open bool) {
	e.open = open
	if open {
		e.b.WriteString(thinkOpen)
	} else {
		e.b.WriteString(thinkClose)
	}
}

func (e *v32Encoder) developer(i int, t turn) error {
	if t.Content == "" {
		return fieldError(messageField(t.index, "content"), "a developer message must not be empty")
	}
	e.b.WriteString(deepseekUser)
	if err := v32.declarations(&e.b, t, formatField(e.req, t), e.req.Memo); err != nil {
		return err
	}
	e.b.WriteString(v32DeveloperPrefix)
	t.write(&e.b, t.Content)
	e.handOver(i)
	return nil
}

func (e *v32Encoder) assistant(i int, t turn) error {
	final := e.req.ContinueFinal && i == len(e.turns)-1
	if e.thinking && i > e.last {
		if t.Reasoning == "" && len(t.ToolCalls) == 0 && !final {
			return fieldError(messageField(t.index, "reasoning"),
				"in thinking mode an assistant message after the last user message needs reasoning or tool calls")
		}
		t.write(&e.b, t.Reasoning)
		if final && t.Content == "" {
			return nil // the model continues the open reasoning block
		}
		e.think(false)
	}
	e.open = false
	t.write(&e.b, t.Content)
	if len(t.ToolCalls) > 0 {
		e.b.WriteString("\n\n")
		if err := v32.calls(&e.b, t); err != nil {
			return err
		}
	}
	if !final {
		e.b.WriteString(deepseekEOS)
	}
	return nil
}

// results writes the results of the calls of one message. They are inside one block, so all must be present.
func (e *v32Encoder) results(first int) (int, error) {
	group, end, err := results(e.turns, first)
	if err != nil {
		return 0, err
	}
	if calls := e.turns[first-1].ToolCalls; len(group) < len(calls) {
		return 0, fieldError(messageField(e.turns[end-1].index, ""), "only %d of the %d calls before it have results",
			len(group), len(calls))
	}
	e.b.WriteString("\n\n<function_results>")
	for _, t := range group {
		e.b.WriteString("\n<result>")
		t.write(&e.b, t.Content)
		e.b.WriteString("</result>")
	}
	e.b.WriteString("\n</function_results>")
	if end < len(e.turns) || e.req.AddGenerationPrompt {
		e.b.WriteString("\n\n")
		e.think(e.thinking && end-1 >= e.last)
	}
	return end, nil
}
