package sparrow

import (
	"errors"
	"fmt"

	"sparrow/chat"
	"sparrow/grammar"
	"sparrow/sample"
	"sparrow/tokenizer"
	"sparrow/toolcall"
)

// guides are what limits the text of a request's choices: the document it must be, or the tools it may call.
type guides struct {
	document *grammar.Grammar // nil for free text
	think    int32            // token that ends reasoning, when the reply begins with it; else -1
	calls    *toolcall.Rules  // nil without tools
	words    int              // of a mask
	inWords  sample.Mask      // where free text may not begin a call: every token but the markers of calls; else nil
}

// guides compiles the request's format and tools. A demanded call comes before a format: its arguments are the answer.
func (e *Engine) guides(r *Request, reasoning bool) (guides, error) {
	g := guides{think: -1}
	if r.Chat != nil && !r.Chat.OffersTools() {
		// A model trained on calls may begin one although it was offered no tool, and nobody could carry it out.
		g.inWords = e.inWords
	}
	demand := r.Chat != nil && (r.Chat.ToolChoice.Mode == chat.ChoiceRequired || r.Chat.ToolChoice.Mode == chat.ChoiceFunction)
	if r.Format.Kind == FormatFree && (r.Chat == nil || len(r.Chat.Tools) == 0 || r.Chat.ToolChoice.Mode == chat.ChoiceNone) {
		return g, nil
	}
	if e.grammar == nil {
		if r.Format.Kind == FormatFree && !demand {
			return g, nil
		}
		return g, &RequestError{Field: "response_format", Reason: "constrained output needs a tokenizer whose tokens spell JSON; this checkpoint has none"}
	}
	g.words = e.grammar.MaskWords()
	var err error
	switch {
	case demand || r.Format.Kind == FormatFree:
		g.calls, err = e.callRules(r.Chat, demand, reasoning)
	case r.Format.Kind == FormatJSON:
		g.document, err = grammar.JSONObject(e.grammar)
	default:
		g.document, err = grammar.Compile(r.Format.Schema, e.grammar)
	}
	switch {
	case errors.Is(err, toolcall.ErrTools):
		return g, &RequestError{Field: "tools", Reason: err.Error(), Err: err}
	case err != nil:
		return g, &RequestError{Field: "response_format", Reason: err.Error(), Err: err}
	}
	if g.document != nil && reasoning {
		g.think, err = e.reasoningEnd()
	}
	return g, err
}

// callRules prepares the tools of a chat; nil when the format's calls cannot be steered and none is demanded.
func (e *Engine) callRules(c *chat.Request, demand, reasoning bool) (*toolcall.Rules, error) {
	var syntax chat.CallSyntax
	caller, ok := e.format.(chat.Caller)
	if ok {
		syntax, ok = caller.CallSyntax()
	}
	if !ok {
		if demand {
			return nil, fmt.Errorf("%w: the chat format %s has no tool calls", toolcall.ErrTools, e.format.Name())
		}
		return nil, nil
	}
	o := toolcall.Options{Demand: demand, Reasoning: reasoning}
	if c.ToolChoice.Mode == chat.ChoiceFunction {
		o.Only, o.Single = c.ToolChoice.Name, true
	}
	return toolcall.Compile(syntax, c.Tools, o, func(text string) ([]int32, error) { return e.Encode(text, false) }, e.grammar, e.eos)
}

// reasoningEnd is the token after which a reply that began with reasoning goes on with its answer.
func (e *Engine) reasoningEnd() (int32, error) {
	if caller, ok := e.format.(chat.Caller); ok {
		if s, ok := caller.CallSyntax(); ok {
			if id, ok := e.tok.TokenID(s.ReasoningEnd); ok {
				return id, nil
			}
		}
	}
	return -1, &RequestError{Field: "response_format", Reason: "the end of this model's reasoning is not one token, so a format cannot begin after it; turn thinking off"}
}

// withoutCalls allows every token but those that are markers of calls. It is nil for formats whose calls have no token of their own.
func (e *Engine) withoutCalls(t *tokenizer.Tokenizer) sample.Mask {
	caller, ok := e.format.(chat.Caller)
	if !ok {
		return nil
	}
	syntax, _ := caller.CallSyntax()
	var markers []int32
	for _, text := range syntax.Markers {
		if id, ok := t.TokenID(text); ok {
			markers = append(markers, id)
		}
	}
	if len(markers) == 0 {
		return nil
	}
	return sample.AllBut(e.info.Vocabulary, markers)
}

// start gives a choice its own state of each guide.
func (g *guides) start(c *choice) {
	if g.document != nil {
		c.state, c.think = g.document.Start(), g.think
	}
	if g.calls != nil {
		c.calls = g.calls.Start()
	}
	c.inWords = g.inWords
	if g.words > 0 {
		c.mask = make(sample.Mask, g.words)
	}
}
