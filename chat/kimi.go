package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"sparrow/internal/jinja"
	"sparrow/internal/mark"
)

// Kimi is the format of Kimi-K2 and K2.5, for checkpoints without a template.
//
//	<|im_system|>system<|im_middle|>text<|im_end|> <|im_user|>user<|im_middle|>text<|im_end|>
//	<|im_assistant|>assistant<|im_middle|>answer<|im_end|>
//
// Tools are compact JSON in a separate system turn. The id of a call is functions.NAME:INDEX, where INDEX counts calls
// in the conversation, and a result begins with that id. Template argument of K2.5: thinking (or enable_thinking).
type Kimi struct {
	// Thinks reports that a prompt ends with an open or an empty block of reasoning, as in K2.5.
	Thinks bool
}

// Name returns "kimi-k2" or "kimi-k2.5".
func (f Kimi) Name() string {
	if f.Thinks {
		return "kimi-k2.5"
	}
	return "kimi-k2"
}

var kimiMarkers = callMarkers{begin: kimiCallsBegin, open: kimiCallBegin, sep: kimiArguments, close: kimiCallEnd,
	end: kimiCallsEnd, identity: kimiIdentity}

// kimiCalls requires that forced calls have the index 0, because the number of earlier calls is not known when the
// grammar is built.
var kimiCalls = CallSyntax{Begin: kimiCallsBegin, Open: kimiCallBegin + kimiFunctions, Sep: ":0" + kimiArguments,
	Close: kimiCallEnd, End: kimiCallsEnd, JSON: true, ReasoningEnd: thinkClose,
	Markers: []string{kimiCallsBegin, kimiCallBegin, kimiArguments, kimiCallEnd, kimiCallsEnd}}

// CallSyntax returns the syntax: JSON arguments between marker tokens.
func (Kimi) CallSyntax() (CallSyntax, bool) { return kimiCalls, true }

// kimiIdentity parses functions.NAME:INDEX; the whole text is the id of the call.
func kimiIdentity(text string) (name, id string) {
	name, _ = strings.CutPrefix(text, kimiFunctions)
	if at := strings.LastIndexByte(name, ':'); at >= 0 {
		return name[:at], text
	}
	return name, ""
}

func newKimiParser(req Request, inReasoning bool) Parser {
	return newCallParser(&kimiMarkers, req, inReasoning)
}

// Parser returns a parser for calls between marker tokens.
func (f Kimi) Parser(req Request) Parser {
	return newKimiParser(req, begun(f, req))
}

// Render writes the prompt.
func (f Kimi) Render(req Request) (Prompt, error) {
	turns, err := checkRequest(req, System, User, Assistant, ToolRole)
	if err != nil {
		return Prompt{}, err
	}
	known := []string(nil)
	if f.Thinks {
		known = []string{"thinking", "enable_thinking"}
	}
	if err := checkKwargs(req, known...); err != nil {
		return Prompt{}, err
	}
	if err := rejectEffort(req, f.Name()); err != nil {
		return Prompt{}, err
	}
	thinking, err := thinkingMode(req, f.Thinks)
	if err != nil {
		return Prompt{}, err
	}
	if thinking && !f.Thinks {
		return Prompt{}, fmt.Errorf("%w: thinking: Kimi-K2 does not support it; omit it", ErrUnsupported)
	}
	w := kimiWriter{f: f, turns: turns, ids: map[string]string{}, open: req.ContinueFinal}
	if err := w.declare(offered(req), req.Memo); err != nil {
		return Prompt{}, err
	}
	for i := 0; i < len(turns); i++ {
		if i, err = w.turn(i); err != nil {
			return Prompt{}, err
		}
	}
	p := Prompt{HasBOS: true, Stop: []string{kimiEnd}} // prompts begin without a BOS token
	if req.AddGenerationPrompt {
		w.b.WriteString(kimiAssistant + "assistant" + kimiMiddle)
		switch {
		case f.Thinks && thinking:
			w.b.WriteString(thinkOpen)
			p.InReasoning = true
		case f.Thinks:
			w.b.WriteString(thinkOpen + thinkClose)
		}
	}
	p.set(req, w.b.Text())
	return p, nil
}

// kimiWriter writes one conversation.
type kimiWriter struct {
	f     Kimi
	b     mark.Builder
	turns []turn
	ids   map[string]string // ids of calls as the model writes them, by the ids in the request
	calls int
	open  bool // whether the model continues the last turn
}

// declare writes the system turn with the tools.
func (w *kimiWriter) declare(tools []Tool, memo *Memo) error {
	for _, t := range w.turns {
		tools = append(tools[:len(tools):len(tools)], t.Tools...)
	}
	if len(tools) == 0 {
		return nil
	}
	list := jinja.NewList()
	for _, t := range tools {
		shown := memo.tool(&t)
		if shown.err != nil {
			return fieldError("tools."+t.Name+".parameters", "%v", shown.err)
		}
		list.Items = append(list.Items, wrapFunction(shown.function))
	}
	text, err := jinja.JSON(list)
	if err != nil {
		return err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(text)); err != nil {
		return err
	}
	w.b.WriteString(kimiSystem + kimiToolDeclare + kimiMiddle)
	w.b.Mark(compact.String())
	w.b.WriteString(kimiEnd)
	return nil
}

// turn writes the turn at i or, for a tool message, all results of the same calls. It returns the index of the last
// turn that it wrote.
func (w *kimiWriter) turn(i int) (int, error) {
	t := w.turns[i]
	switch t.Role {
	case System:
		w.b.WriteString(kimiSystem + "system" + kimiMiddle)
		t.write(&w.b, t.Content)
	case User:
		w.b.WriteString(kimiUser + "user" + kimiMiddle)
		t.write(&w.b, t.Content)
	case Assistant:
		w.assistant(i)
		if w.open && i == len(w.turns)-1 {
			return i, nil
		}
	case ToolRole:
		group, end, err := results(w.turns, i)
		if err != nil {
			return i, err
		}
		for j, r := range group {
			if j > 0 {
				w.b.WriteString(kimiEnd)
			}
			id := r.ToolCallID
			if id == "" {
				id = w.turns[i-1].ToolCalls[j].ID
			}
			w.b.WriteString(kimiSystem + "tool" + kimiMiddle + "## Return of ")
			w.b.Mark(w.ids[id])
			w.b.WriteString("\n")
			r.write(&w.b, r.Content)
		}
		i = end - 1
	}
	w.b.WriteString(kimiEnd)
	return i, nil
}

// assistant writes a reply. K2.5 keeps the reasoning of replies after the last reply without calls.
func (w *kimiWriter) assistant(i int) {
	t := w.turns[i]
	w.b.WriteString(kimiAssistant + "assistant" + kimiMiddle)
	if w.f.Thinks {
		w.b.WriteString(thinkOpen)
		if w.after(i) {
			t.write(&w.b, t.Reasoning)
		}
		w.b.WriteString(thinkClose)
	}
	t.write(&w.b, t.Content)
	if len(t.ToolCalls) == 0 {
		return
	}
	w.b.WriteString(kimiCallsBegin)
	for j, call := range t.ToolCalls {
		id := call.ID
		if name, own := kimiIdentity(id); own == "" || name != call.Name || !strings.HasPrefix(id, kimiFunctions) {
			id = fmt.Sprintf("%s%s:%d", kimiFunctions, call.Name, w.calls)
		}
		w.ids[call.ID] = id
		w.calls++
		text, err := jinja.JSON(t.arguments[j])
		if err != nil {
			text = call.Arguments
		}
		w.b.WriteString(kimiCallBegin)
		w.b.Mark(id)
		w.b.WriteString(kimiArguments)
		w.b.Mark(text)
		w.b.WriteString(kimiCallEnd)
	}
	w.b.WriteString(kimiCallsEnd)
}

// after reports whether every reply of the assistant in turns[i:] has calls.
func (w *kimiWriter) after(i int) bool {
	for _, t := range w.turns[i:] {
		if t.Role == Assistant && len(t.ToolCalls) == 0 {
			return false
		}
	}
	return true
}
