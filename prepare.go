package sparrow

import (
	"context"
	"reflect"
	"slices"
	"time"

	"sparrow/engine"
	"sparrow/sample"
	"sparrow/tokenizer"
)

// prepare converts a request to token ids and constraints, or returns an error that names the invalid field. reasoning
// reports whether the reply begins inside a reasoning block.
func (e *Engine) prepare(ctx context.Context, r *Request) (out engine.Request, reasoning bool, err error) {
	if reflect.ValueOf(r.Sampling).IsZero() {
		r.Sampling = sample.Default()
	}
	prompt, reasoning, err := e.encode(r)
	if err != nil {
		return engine.Request{}, false, err
	}
	begun := time.Now()
	g, err := e.guide(ctx, r, reasoning)
	if err != nil {
		return engine.Request{}, false, err
	}
	made := time.Now()
	out = engine.Request{ID: r.ID, Prompt: prompt, Sampling: r.Sampling, MaxTokens: r.MaxTokens,
		FitContext: r.FitContext, MinTokens: r.MinTokens, Score: r.Score, IgnoreEOS: r.IgnoreEOS,
		Guide: g, Draft: r.Draft, Tenant: r.Tenant, Salt: r.Salt, Source: r.Source, Flow: r.Flow, Priority: r.Priority,
		Background: r.Background, Places: r.Places, Admit: r.Admit, Trace: r.Trace, Record: r.Record, Replay: r.Replay,
		PagesFrom: r.PagesFrom}
	if g.MaskWords > 0 {
		out.Compiled = engine.Period{From: begun, To: made}
	}
	if e.tok != nil {
		skip := e.tok.IsSpecial
		if r.Chat != nil {
			skip = e.skipInReply
		}
		out.Decoder = func() *tokenizer.Decoder { return e.tok.NewDecoder(skip) }
	}
	return out, reasoning, nil
}

// skipInReply reports whether a token is omitted from the text of a chat's reply: it is special, and not a marker that
// the parser of replies needs.
func (e *Engine) skipInReply(id int32) bool {
	return e.tok.IsSpecial(id) && !slices.Contains(e.replyMarkers, id)
}

// encode returns the prompt's token ids, and whether the prompt ends inside a reasoning block.
func (e *Engine) encode(r *Request) (prompt []int32, reasoning bool, err error) {
	switch {
	case r.Chat != nil && r.Prompt == "" && r.Tokens == nil:
		p, ids, err := e.render(r.Chat)
		return ids, p.InReasoning, err
	case r.Tokens != nil && r.Chat == nil && r.Prompt == "":
		return r.Tokens, false, nil
	case r.Chat == nil && r.Tokens == nil:
		ids, err := e.Encode(r.Prompt, true)
		return ids, false, err
	}
	return nil, false, &RequestError{Field: "prompt", Reason: "is set together with another prompt; send a chat, a " +
		"text or token ids, only one of them"}
}
