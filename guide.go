package sparrow

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"sparrow/chat"
	"sparrow/engine"
	"sparrow/grammar"
	"sparrow/sample"
	"sparrow/tokenizer"
	"sparrow/toolcall"
)

// guide compiles the response format and tools of a request to constraints for sampling. If a tool call is required,
// the format is ignored, because the call's arguments are the answer.
func (e *Engine) guide(ctx context.Context, r *Request, reasoning bool) (engine.Guide, error) {
	g := engine.Guide{ReasoningEnd: -1}
	if r.Chat != nil && !r.Chat.OffersTools() {
		// Without offered tools the markers of calls are masked, because the client could not run a call.
		g.NoCalls = e.noCalls
	}
	if r.MaxReasoning > 0 && reasoning {
		end, err := e.reasoningEnd()
		if err != nil {
			return g, &RequestError{Field: "thinking.budget_tokens",
				Reason: "the end of this model's reasoning is not one " +
					"token, so its length cannot be limited; omit it"}
		}
		g.MaxReasoning, g.ReasoningEnd = r.MaxReasoning, end
	}
	demand := r.Chat != nil && (r.Chat.ToolChoice.Mode == chat.ChoiceRequired ||
		r.Chat.ToolChoice.Mode == chat.ChoiceFunction)
	free := r.Format.Kind == FormatFree
	if free && (r.Chat == nil || len(r.Chat.Tools) == 0 || r.Chat.ToolChoice.Mode == chat.ChoiceNone) {
		return g, nil
	}
	if e.grammar == nil {
		if free && !demand {
			return g, nil
		}
		return g, &RequestError{Field: cmp.Or(r.Format.Field, "response_format"),
			Reason: "constrained output needs a tokenizer whose tokens spell JSON; this checkpoint has none"}
	}
	g.MaskWords = e.grammar.MaskWords()
	var err error
	bytes, tenant := 0, cmp.Or(r.Tenant, "\x00"+r.Source)
	if waiting := e.compilers.run(ctx, tenant, func() {
		if err = e.compile(&g, r, demand, reasoning); err == nil {
			bytes = guideBytes(&g)
		}
	}); waiting != nil {
		return g, waiting
	}
	switch {
	case errors.Is(err, toolcall.ErrTools):
		return g, &RequestError{Field: "tools", Reason: err.Error(), Err: err}
	case err != nil:
		return g, &RequestError{Field: cmp.Or(r.Format.Field, "response_format"), Reason: err.Error(), Err: err}
	}
	if g.Document != nil && reasoning {
		if g.ReasoningEnd, err = e.reasoningEnd(); err != nil {
			return g, err
		}
	}
	release, err := e.compilers.hold(tenant, bytes)
	if err != nil {
		return g, err
	}
	document, calls := g.Document, g.Calls
	g.Release = func() {
		release()
		if document != nil {
			document.Release()
		}
		if calls != nil {
			calls.Release()
		}
	}
	return g, nil
}

// guideBytes returns the bytes of the compiled grammars of a guide.
func guideBytes(g *engine.Guide) (n int) {
	if g.Document != nil {
		n = g.Document.Bytes()
	}
	if g.Calls != nil {
		n += g.Calls.Bytes()
	}
	return n
}

// compile adds the constraint to a guide: the rules of optional or required calls, or the grammar of the response
// format.
func (e *Engine) compile(g *engine.Guide, r *Request, demand, reasoning bool) (err error) {
	switch {
	case demand || r.Format.Kind == FormatFree:
		g.Calls, err = e.callRules(r.Chat, demand, reasoning)
	case r.Format.Kind == FormatJSON:
		g.Document, err = grammar.JSONObject(e.grammar)
	case r.Format.Kind == FormatPattern:
		g.Document, err = grammar.Pattern(r.Format.Pattern, e.grammar)
	case r.Format.Kind == FormatChoice:
		g.Document, err = grammar.Choice(r.Format.Choices, e.grammar)
	default:
		g.Document, err = grammar.CompileWith(r.Format.Schema, e.grammar, grammar.Options{Strict: r.Format.Strict})
	}
	return err
}

// ignoredBy returns the schema keywords that the constraints do not enforce.
func ignoredBy(g *engine.Guide) []Ignored {
	var list []Ignored
	if g.Document != nil {
		for _, k := range g.Document.Ignored() {
			list = append(list, Ignored{-1, k.Pointer, k.Keyword})
		}
	}
	if g.Calls != nil {
		for _, k := range g.Calls.Ignored() {
			list = append(list, Ignored{k.Tool, k.Pointer, k.Keyword})
		}
	}
	return list
}

// callRules compiles the tools of a chat. It returns nil if the chat format has no syntax of calls that can be
// constrained, and no call is required.
func (e *Engine) callRules(c *chat.Request, demand, reasoning bool) (*toolcall.Rules, error) {
	var syntax chat.CallSyntax
	caller, ok := e.format.(chat.Caller)
	if ok {
		syntax, ok = caller.CallSyntax()
	}
	if !ok {
		if demand {
			return nil, fmt.Errorf("%w: the chat format %s does not support tool calls", toolcall.ErrTools,
				e.format.Name())
		}
		return nil, nil
	}
	o := toolcall.Options{Demand: demand, Reasoning: reasoning, Store: e.tools}
	if c.ToolChoice.Mode == chat.ChoiceFunction {
		o.Only, o.Single = c.ToolChoice.Name, true
	}
	encode := func(text string) ([]int32, error) { return e.Encode(text, false) }
	return toolcall.Compile(syntax, c.Tools, o, encode, e.grammar, e.eos)
}

// reasoningEnd returns the token that ends the reasoning at the beginning of a reply.
func (e *Engine) reasoningEnd() (int32, error) {
	if caller, ok := e.format.(chat.Caller); ok {
		if s, ok := caller.CallSyntax(); ok {
			if id, ok := e.tok.TokenID(s.ReasoningEnd); ok {
				return id, nil
			}
		}
	}
	return -1, &RequestError{Field: "response_format",
		Reason: "the end of this model's reasoning is not one token, so a format cannot begin after it; " +
			"turn thinking off"}
}

// prepareCalls sets the markers of tool calls that are single tokens, and a mask without these tokens. Both stay nil if
// the chat format has no such markers.
func (e *Engine) prepareCalls(t *tokenizer.Tokenizer) {
	caller, ok := e.format.(chat.Caller)
	if !ok {
		return
	}
	syntax, _ := caller.CallSyntax()
	var ids []int32
	for _, text := range syntax.Markers {
		if id, ok := t.TokenID(text); ok {
			ids = append(ids, id)
			if t.IsAdded(id) {
				e.callTokens = append(e.callTokens, text)
			}
		}
	}
	if len(ids) > 0 {
		e.noCalls = sample.AllBut(e.info.Vocabulary, ids)
	}
}
