package engine

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"sparrow/chat"
	"sparrow/grammar"
	"sparrow/internal/spec"
	"sparrow/sample"
	"sparrow/tokenizer"
	"sparrow/toolcall"
)

// Invariants of this file: a token that is not allowed does not become part of an answer or a draft.

// calling returns the rules of replies that must call a tool.
func calling(t *testing.T) *toolcall.Rules {
	t.Helper()
	w := vocabulary(t)
	syntax, ok := w.format.(chat.Caller).CallSyntax()
	if !ok {
		t.Fatal("the format has no calls")
	}
	r, err := toolcall.Compile(syntax, []chat.Tool{{Name: "get", Parameters: json.RawMessage(`{"type": "object"}`)}},
		toolcall.Options{Demand: true}, func(text string) ([]int32, error) {
			return w.Encode(text, tokenizer.EncodeOptions{ParseSpecial: true})
		}, w.tokens, []int32{w.eos})
	if err != nil || r == nil {
		t.Fatal(r, err)
	}
	return r
}

// first returns the first token of a mask, or -1, and the number of tokens in it.
func first(m sample.Mask) (token int32, n int) {
	token = -1
	for i := range int32(64 * len(m)) {
		if m[i/64]>>(i%64)&1 != 0 {
			if n++; token < 0 {
				token = i
			}
		}
	}
	return token, n
}

// Where a reply must call a tool, its tokens follow the rules of calls. A copy of the constraint, along which drafts
// are made, follows them on its own and leaves the original where it is.
func TestCallsAreConstrained(t *testing.T) {
	w := vocabulary(t)
	g := Guide{Calls: calling(t), MaskWords: w.tokens.MaskWords(), ReasoningEnd: -1}
	l := g.start(&Request{}, w.Size(), []int32{w.eos})
	if l.free() {
		t.Fatal("every token is allowed")
	}
	var forced []int32 // the tokens that begin the call
	for c := l.clone(); len(forced) < 3; {
		mask, err := c.allowed()
		if err != nil {
			t.Fatal(err)
		}
		token, n := first(mask)
		if n != 1 {
			break
		}
		if err := c.accept(token); err != nil {
			t.Fatal(err)
		}
		forced = append(forced, token)
	}
	if len(forced) == 0 {
		t.Fatal("nothing is forced")
	}
	for i, token := range forced {
		mask, err := l.allowed()
		if got, n := first(mask); err != nil || got != token || n != 1 || l.made != i {
			t.Errorf("token %d: %d and %d others may follow, %v; want %d alone", i, got, n-1, err, token)
		}
		c := l.clone()
		if err := c.accept((token + 1) % int32(w.Size())); err == nil {
			t.Errorf("token %d: another than %d is accepted", i, token)
		}
		if err := l.accept(token); err != nil {
			t.Fatal(err)
		}
	}
}

// number returns a request whose answer is a number.
func number(t *testing.T) Request {
	r := ask(t, "How many?")
	r.Guide = schema(t, `{"type": "integer"}`)
	return r
}

// A choice whose next token cannot be chosen, or is not allowed, ends with an error, and the token is not added.
func TestTokensThatAreNotAllowed(t *testing.T) {
	w := vocabulary(t)
	e := still(t, "", Config{})
	e.cfg.DraftAccept = 1 // every draft counts as right
	running(t, e)
	logits := make([]float32, e.info.Vocabulary)
	for what, c := range map[string]struct {
		change func(c *choice)
		draft  int32
		want   error
	}{
		"a mask that is too small": {func(c *choice) { c.limits.mask = c.limits.mask[:1] }, -1, grammar.ErrMask},
		"a token of no document":   {func(*choice) {}, w.eos, grammar.ErrRejected},
		"a token past the end":     {func(*choice) {}, int32(e.info.Vocabulary), nil},
	} {
		j, err := e.intake.prepare(number(t))
		if err != nil {
			t.Fatal(err)
		}
		x := j.choices[0]
		c.change(x)
		out, err := x.advance(logitRow{whole: logits}, c.draft)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || out.event.Token != 0 || out.finish != "" ||
			x.output() != 0 {
			t.Errorf("%s: %+v, %v; %d tokens", what, out, err, x.output())
		}
	}
}

// A chain or block of drafts ends where no token is allowed, and keeps the drafts before.
func TestDraftsEndWhereNoTokenIsAllowed(t *testing.T) {
	w := vocabulary(t)
	four, _ := w.TokenID("4")
	e := still(t, "", Config{})
	running(t, e)
	logits := make([]float32, e.info.Vocabulary)
	logits[four] = 50
	for what, next := range map[string]func(k *chain) bool{
		"chain": func(k *chain) bool { return k.extend(logitRow{whole: logits}) },
		"block": func(k *chain) bool { return k.follow(logitRow{whole: logits}) },
	} {
		j, err := e.intake.prepare(number(t))
		if err != nil {
			t.Fatal(err)
		}
		c := j.choices[0]
		k := &chain{c: c, want: spec.MaxDrafts, limits: c.limits.clone()}
		for n := range 2 {
			if !next(k) || len(c.seq.Drafts) != n+1 || c.seq.Drafts[n] != four {
				t.Errorf("%s: drafts %v, want %d of token %d", what, c.seq.Drafts, n+1, four)
			}
		}
		k.limits.mask = k.limits.mask[:1]
		if next(k) || !slices.Equal(c.seq.Drafts, []int32{four, four}) {
			t.Errorf("%s: it continues with %v where no token is allowed", what, c.seq.Drafts)
		}
		if c.limits.made != 0 || c.output() != 0 {
			t.Errorf("%s: %d tokens of the answer, %d in the sequence", what, c.limits.made, c.output())
		}
	}
}

// No draft follows one that ends the answer: a stop token, or an end-of-sequence token unless the request ignores it.
func TestNoDraftFollowsAnEnd(t *testing.T) {
	w := vocabulary(t)
	four, _ := w.TokenID("4")
	e := still(t, "", Config{})
	running(t, e)
	for _, ignores := range []bool{false, true} {
		r := ask(t, "How many?")
		r.IgnoreEOS, r.Sampling.StopTokenIDs = ignores, []int32{four}
		j, err := e.intake.prepare(r)
		if err != nil {
			t.Fatal(err)
		}
		c := j.choices[0]
		for last, follows := range map[int32]struct{ chain, block bool }{7: {true, true}, four: {false, false},
			w.eos: {false, ignores}} { // in a chain an end-of-sequence token is always the last
			logits := make([]float32, e.info.Vocabulary)
			logits[last] = 50
			row := logitRow{whole: logits}
			for _, block := range []bool{false, true} {
				c.seq.Drafts = nil
				k, want := &chain{c: c, want: spec.MaxDrafts, limits: c.limits.clone()}, follows.chain
				var got bool // whether another draft follows
				if block {
					k.follow(row)
					got, want = k.follow(row), follows.block
				} else {
					got = k.extend(row)
				}
				if got != want || c.seq.Drafts[0] != last {
					t.Errorf("blocks %v, ends ignored %v: a draft follows %d (the end is %d): %v, want %v", block,
						ignores, last, w.eos, got, want)
				}
			}
		}
	}
}
