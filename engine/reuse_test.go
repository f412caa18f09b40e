package engine

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"sparrow/internal/kv/prefix"
	"sparrow/internal/step"
	"sparrow/internal/testmodel"
)

// Invariants of this file: cached tokens of the same tenant are not computed again, usage and trace report them, and
// sharing pages changes no token.

// counted returns a hook that adds the number of computed tokens of each step to n.
func counted(n *int) func(*Engine) {
	return before(func(works []step.Work) error {
		for i := range works {
			*n += len(works[i].Tokens)
		}
		return nil
	})
}

func TestASharedPrefixIsComputedOnce(t *testing.T) {
	computed := 0
	e := start(t, testmodel.V32(t), Config{}, counted(&computed), checked(t))
	shared := tokens(1, 2000)
	first := Request{Prompt: slices.Concat(shared, tokens(2, 100)), Sampling: greedy(), MaxTokens: 1, Trace: true}
	second := Request{Prompt: slices.Concat(shared, tokens(3, 50)), Sampling: greedy(), MaxTokens: 1, Trace: true}
	r := generate(t, e, first)
	if computed != 2100 || r.Usage.CachedTokens != 0 {
		t.Fatalf("the first request computed %d tokens and found %d cached tokens", computed, r.Usage.CachedTokens)
	}
	computed = 0
	r = generate(t, e, second)
	const whole = 2000 / 64 * 64 // number of tokens in full pages
	if computed != 2050-whole || r.Usage.CachedTokens != whole || r.Usage.PromptTokens != 2050 {
		t.Errorf("the second request computed %d tokens, usage %+v; want %d computed, %d cached", computed, r.Usage,
			2050-whole, whole)
	}
	if m := r.Trace.Match; m.Tokens != whole || m.Stop != prefix.StopDifferent || m.At != 2000 {
		t.Errorf("trace: %v; want the first difference at token 2000", m)
	}
	if st := e.Stats(); st.PromptTokens != 4150 || st.CachedTokens != whole || st.KV.Lookups != 2 {
		t.Errorf("%d prompt tokens, %d cached, %d lookups", st.PromptTokens, st.CachedTokens, st.KV.Lookups)
	}
}

// The next turn of a conversation reuses the pages of the previous turn, including its output.
func TestTheNextTurnFindsTheLastOne(t *testing.T) {
	computed := 0
	e := start(t, testmodel.V32(t), Config{Policy: deterministic("")}, counted(&computed))
	r := generate(t, e, Request{Prompt: tokens(1, 100), Sampling: greedy(), MaxTokens: 100, IgnoreEOS: true})
	turn := slices.Concat(tokens(1, 100), r.Choices[0].Tokens, tokens(2, 10))
	computed = 0
	r = generate(t, e, Request{Prompt: turn, Sampling: greedy(), MaxTokens: 20, IgnoreEOS: true})
	if r.Usage.CachedTokens != 192 || computed != 210-192+19 {
		t.Errorf("%d tokens cached, %d computed", r.Usage.CachedTokens, computed)
	}
	alone := start(t, testmodel.V32(t), Config{Policy: deterministic(""), NoReuse: true})
	want := generate(t, alone, Request{Prompt: turn, Sampling: greedy(), MaxTokens: 20, IgnoreEOS: true, Trace: true})
	sameTokens(t, "after a reused turn", r.Choices[0], want.Choices[0])
	if want.Usage.CachedTokens != 0 || want.Trace.Match.Stop != prefix.StopOff {
		t.Errorf("without reuse: usage %+v, match %v", want.Usage, want.Trace.Match)
	}
}

func TestTenantsShareNothing(t *testing.T) {
	e := start(t, testmodel.V32(t), Config{})
	cached := func(tenant string) int {
		r := generate(t, e, Request{Prompt: tokens(1, 200), Sampling: greedy(), MaxTokens: 1, Tenant: tenant,
			Trace: true})
		if r.Usage.CachedTokens == 0 && r.Trace.Match.Stop != prefix.StopUnknown {
			t.Errorf("tenant %q can see another tenant's pages in its lookup: %v", tenant, r.Trace.Match)
		}
		return r.Usage.CachedTokens
	}
	for i, want := range []struct {
		tenant string
		cached int
	}{{"", 0}, {"a", 0}, {"b", 0}, {"", 192}, {"a", 192}, {"b", 192}} {
		if got := cached(want.tenant); got != want.cached {
			t.Errorf("request %d of tenant %q found %d cached tokens, want %d", i, want.tenant, got, want.cached)
		}
	}
}

func TestTenantsAndSaltsNeverMeet(t *testing.T) {
	seen := map[string]string{}
	for _, pair := range [][2]string{{"", ""}, {"a", ""}, {"", "a"}, {"a", "b"}, {"ab", ""}, {"", "ab"}, {"a", "a"},
		{"", "\x00a"}, {"", "\x00"}} {
		r := Request{Tenant: pair[0], Salt: pair[1]}
		key := string(r.salt())
		if other, ok := seen[key]; ok {
			t.Errorf("tenant %q with salt %q shares prefixes with %s", pair[0], pair[1], other)
		}
		seen[key] = fmt.Sprint(pair)
	}
	e := still(t, tinyBF16, Config{})
	var bad *RequestError
	_, err := e.Submit(Request{Prompt: tokens(1, 4), Sampling: greedy(), Tenant: "a\x00b"})
	if !errors.As(err, &bad) || bad.Field != "tenant" {
		t.Errorf("a tenant with a NUL: %v", err)
	}
}

// The choices of a request compute its prompt once, differ from each other, and do not change with other requests or
// other choices in the batch.
func TestChoicesShareThePrompt(t *testing.T) {
	computed := 0
	e := start(t, testmodel.V32(t), Config{Policy: deterministic(""), StepTokens: 256}, counted(&computed), checked(t))
	p := seeded(11)
	p.N = 4
	r := Request{Prompt: tokens(1, 1000), Sampling: p, MaxTokens: 6, IgnoreEOS: true, Trace: true}
	got := generate(t, e, r)
	const whole = 1000 / 64 * 64
	if want := 1000 + 3*(1000-whole) + 4*5; computed != want {
		t.Errorf("the request computed %d tokens, want %d", computed, want)
	}
	if got.Usage.PromptTokens != 1000 || got.Usage.CachedTokens != 0 || got.Usage.CompletionTokens != 24 {
		t.Errorf("usage %+v", got.Usage)
	}
	for i, m := range got.Trace.Matches {
		if want := min(i, 1) * whole; m.Tokens != want {
			t.Errorf("choice %d matched %d tokens; want %d", i, m.Tokens, want)
		}
	}
	for i := range got.Choices {
		for j := range i {
			if slices.Equal(got.Choices[i].Tokens, got.Choices[j].Tokens) {
				t.Errorf("choices %d and %d have equal tokens: %v", j, i, got.Choices[i].Tokens)
			}
		}
	}
	r.Sampling.N = 2
	for i, again := range together(t, e, []Request{r, {Prompt: tokens(5, 300), Sampling: seeded(5), MaxTokens: 30},
		r}) {
		if i == 1 {
			continue
		}
		for c := range again.Choices {
			sameTokens(t, "the same seed again", again.Choices[c], got.Choices[c])
		}
	}
	r.Sampling.Seed = 12
	if other := generate(t, e, r); slices.Equal(other.Choices[0].Tokens, got.Choices[0].Tokens) {
		t.Errorf("another seed gave equal tokens")
	}
}

func TestSaltsOutsideAreThoseThatSendersKnow(t *testing.T) {
	for want, r := range map[string]Request{"": {}, "s": {Salt: "s"}, "acme": {Tenant: "acme"},
		"acme\x00s t": {Tenant: "acme", Salt: "s t"}, "3 x": {Salt: "3 x"}, "a b\x00c": {Tenant: "a b", Salt: "c"}} {
		if got := CacheSalt(r.salt()); got != want {
			t.Errorf("tenant %q and salt %q are reported as %q, want %q", r.Tenant, r.Salt, got, want)
		}
	}
}

// heard collects the events that a listener of the cache receives.
type heard struct {
	stored, removed, cleared int
	salts                    map[string]bool
}

func (h *heard) Stored(s prefix.Stored) { h.stored++; h.salts[string(s.Salt)] = true }
func (h *heard) Removed(prefix.Hash)    { h.removed++ }
func (h *heard) Cleared()               { h.cleared++ }

// A flush drops cached pages while requests run, and the listener is called for every change.
func TestFlushingEmptiesTheCache(t *testing.T) {
	h := &heard{salts: map[string]bool{}}
	e := start(t, testmodel.V32(t), Config{CacheEvents: h})
	ask := func() int {
		r := generate(t, e, Request{Prompt: tokens(1, 200), Sampling: greedy(), MaxTokens: 1, Tenant: "acme"})
		return r.Usage.CachedTokens
	}
	ask()
	if n := ask(); n != 192 {
		t.Fatalf("%d tokens cached before flushing", n)
	}
	running, err := e.Submit(Request{Prompt: tokens(2, 100), Sampling: greedy(), MaxTokens: 200, IgnoreEOS: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		running.Next()
	}
	if err := e.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := ask(); n != 0 {
		t.Errorf("%d tokens cached after flushing", n)
	}
	for !running.Next().Last {
	}
	e.Close(t.Context())
	if h.stored < 7 || h.cleared != 1 || !h.salts["acme"] || !h.salts[""] {
		t.Errorf("the listener received %+v", h)
	}
	if err := e.Flush(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("flushing a closed engine: %v", err)
	}
}
