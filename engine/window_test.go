package engine

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"sparrow/internal/kv/prefix"
	"sparrow/internal/testmodel"
)

// Invariants of this file: the logits of a prompt are bitwise equal whether it is computed whole, in chunks, after a
// cached prefix, or again. This holds for a model with windows and compressed streams, at lengths around every
// boundary. A prefix is used only if its window rows and its state are stored too.

// boundaries lists lengths at, just below and just above the ends of groups of 4, of windows and groups of 128, and of
// pages of 256. The lengths have every remainder mod 4.
var boundaries = []int{1, 3, 4, 5, 127, 128, 129, 131, 255, 256, 257, 259, 511, 512, 515}

func TestEveryWayToAPromptGivesTheSameBits(t *testing.T) { everyWay(t, testmodel.V4) }

// A prompt of a model whose layers share entries has bitwise equal logits however it is computed. After a cached page,
// such a model does not need raw rows of earlier tokens, but only the last tokens before the new tokens.
func TestEveryWayToAPromptOfTablesGivesTheSameBits(t *testing.T) {
	repeats(t, "internal/model/v41 tests chunks, batches and pages of this model")
	everyWay(t, testmodel.V41)
}

func everyWay(t *testing.T, of func(testing.TB) string) {
	if raceEnabled {
		t.Skip("the test runs one request at a time")
	}
	boundaries := boundaries
	if !*everything && standIn == nil {
		boundaries = slices.DeleteFunc(slices.Clone(boundaries), func(n int) bool {
			// Package internal/model/v4 tests the removed lengths.
			return n > 257 && n != 515 || slices.Contains([]int{128, 131, 255}, n)
		})
	}
	list := make([]Request, len(boundaries))
	for i, n := range boundaries {
		list[i] = Request{ID: fmt.Sprint(n), Prompt: tokens(n, n), Sampling: greedy(), MaxTokens: 5, IgnoreEOS: true}
	}
	each := func(c Config, list []Request, hooks ...func(*Engine)) (*logitsOf, []*response) {
		c.Policy = deterministic("fp8")
		rows := keepLogits()
		e := start(t, of(t), c, append(hooks, rows.watch)...)
		var out []*response
		for _, r := range list {
			out = append(out, generate(t, e, r))
		}
		return rows, out
	}
	whole, _ := each(Config{NoReuse: true, StepTokens: 1024}, list)
	chunks := []int{100}
	if *everything || standIn != nil {
		chunks = append(chunks, 256)
	}
	for _, chunk := range chunks {
		chunked, _ := each(Config{NoReuse: true, StepTokens: chunk}, list)
		sameRows(t, chunked, whole)
	}
	// Every prompt runs twice: the second run finds its full pages in the cache.
	cached, answers := each(Config{}, slices.Concat(list, list))
	sameRows(t, cached, whole)
	for i, r := range answers[len(list):] {
		if want := (boundaries[i] - 1) / 256 * 256; r.Usage.CachedTokens != want {
			t.Errorf("second run of a prompt of %d tokens: %d tokens came from the cache, want %d", boundaries[i],
				r.Usage.CachedTokens, want)
		}
	}
	// Every sequence is preempted once, after its second output token, with and without a prefix cache.
	for _, off := range []bool{false, true} {
		again, _ := each(Config{NoReuse: off}, list, restarting(2))
		sameRows(t, again, whole)
	}
}

// restarting preempts every sequence once, when it has the given number of output tokens.
func restarting(made int) func(*Engine) {
	return func(e *Engine) {
		e.cfg.Observe = func(bool) {
			for _, q := range e.loop.sched.All() {
				if c := q.Owner.(*choice); c.limits.made == made && q.Preempted == 0 {
					e.loop.sched.Restart(q)
				}
			}
		}
	}
}

// The cache has fewer window pages than pages. If a prefix of a prompt is cached but its window rows were evicted, the
// prompt reuses the prefix up to the last boundary that has them, or not at all. The reason is reported, and the tokens
// equal those of a lone run.
func TestAHitWithoutItsWindowIsCutBack(t *testing.T) {
	if raceEnabled {
		t.Skip("the test runs one request at a time")
	}
	c := Config{Policy: deterministic("fp8"), CacheTokens: 24 * 256, StepTokens: 256, MaxRunning: 1}
	e := start(t, testmodel.V4(t), c, checked(t))
	if i := e.Info(); i.WindowPages != pools()*(2+1+3) || i.Pages != pools()*24 {
		t.Fatalf("%d window pages for %d pages, want fewer window pages", i.WindowPages, i.Pages)
	}
	shared := tokens(1, 12*256)
	generate(t, e, Request{Prompt: shared, Sampling: greedy(), MaxTokens: 1})
	lookups := []struct {
		pages int // number of pages of the shared prefix
		want  int // number of tokens found in the cache
		stop  prefix.Stop
	}{
		{3, 0, prefix.StopWindow},        // the window rows of this boundary were evicted long ago
		{12, 11 * 256, prefix.StopWhole}, // the newest window rows are kept
	}
	for i, l := range lookups {
		r := Request{Prompt: slices.Concat(shared[:l.pages*256-100], tokens(7+i, 90)), Sampling: greedy(), MaxTokens: 4,
			IgnoreEOS: true, Trace: true}
		if l.stop == prefix.StopWindow {
			r.Prompt = slices.Concat(shared[:l.pages*256], tokens(7+i, 90))
		}
		got := generate(t, e, r)
		if m := got.Trace.Match; m.Tokens != l.want || m.Stop != l.stop {
			t.Errorf("a prompt with %d pages of the first prompt: match %v; want %d tokens, %v", l.pages, m, l.want,
				l.stop)
		}
		want := lone(t, testmodel.V4(t), Config{Policy: deterministic("fp8")}, []Request{r})
		sameTokens(t, fmt.Sprintf("after %d cached pages", l.pages), got.Choices[0], want[0].Choices[0])
	}
	if st := e.Stats().KV; st.WindowEvictions == 0 || st.Evictions != 0 {
		t.Errorf("%d window pages and %d pages were evicted; want some window pages and no pages", st.WindowEvictions,
			st.Evictions)
	}
}

// The choices of a request of a stateful model share their prompt's pages.
func TestChoicesOfAStatefulModelShareThePrompt(t *testing.T) {
	if raceEnabled {
		t.Skip("the test runs the step loop only, without other goroutines")
	}
	computed := 0
	e := start(t, testmodel.V4(t), Config{Policy: deterministic("fp8")}, counted(&computed), checked(t))
	p := seeded(11)
	p.N = 3
	generate(t, e, Request{Prompt: tokens(1, 600), Sampling: p, MaxTokens: 4, IgnoreEOS: true})
	if want := 600 + 2*(600-512) + 3*3; computed != want {
		t.Errorf("the request computed %d tokens, want %d", computed, want)
	}
}

// The size of a cache that is derived from memory includes pages, window pages, states and steps. It leaves less than a
// page of the given memory unused.
func TestTheCacheFitsItsMemory(t *testing.T) {
	e := still(t, testmodel.V4(t), Config{MaxRunning: 8, CacheTokens: 2048, StepTokens: 64})
	z, cfg := &sizing{setup: e.setup}, e.info.Config
	for _, bytes := range []int64{20 << 20, 100 << 20, 1 << 30} {
		n := z.pagesIn(&cfg, bytes, math.MaxInt)
		fits, more := z.cacheOf(&cfg, n), z.cacheOf(&cfg, n+1)
		if n < 1 || fits.total() > bytes || more.total() <= bytes {
			t.Errorf("%d bytes hold %d pages: sizes %+v", bytes, n, fits)
		}
	}
	if n := z.pagesIn(&cfg, 1000, math.MaxInt); n != 0 {
		t.Errorf("a thousand bytes hold %d pages, want 0", n)
	}
	if m := e.info.Memory; m.States != 8*(16*(8192+2048)+256*4096) || m.Cache != z.cacheOf(&cfg, 8).bytes {
		t.Errorf("memory %+v", m)
	}
}
