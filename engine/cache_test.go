package engine

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"sparrow/internal/spec"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
)

// The largest cache that an error message suggests fits into memory, and a cache with one more page does not.
func TestTheLargestCacheFits(t *testing.T) {
	for _, dir := range []string{"", testmodel.V4(t)} {
		e := still(t, dir, Config{CacheTokens: 4096})
		z, err := newSizing(e.setup)
		if err != nil {
			t.Fatal(err)
		}
		cfg := e.info.Config
		pages := z.pagesIn(&cfg, z.cacheLimit(&cfg), math.MaxInt)
		if pages < 16 {
			t.Fatalf("model %q: only %d pages fit", dir, pages)
		}
		if err := z.checkCache(&cfg, pages*cfg.Page); err != nil {
			t.Errorf("model %q: %v", dir, err)
		}
		for _, more := range []int{1, cfg.Page} { // one more token needs one more page
			err := z.checkCache(&cfg, pages*cfg.Page+more)
			if err == nil || !strings.Contains(err.Error(), "--cache-tokens to at most "+strconv.Itoa(pages*cfg.Page)) {
				t.Errorf("model %q: with %d more tokens: error %v", dir, more, err)
			}
		}
	}
}

// A cache holds at least the requested number of tokens: the number is rounded up to whole pages.
func TestACacheIsRoundedUpToPages(t *testing.T) {
	for asked, want := range map[int]int{1: 64, 64: 64, 65: 128, 100: 128} {
		if i := still(t, "", Config{CacheTokens: asked}).info; i.CacheTokens != want || i.ContextTokens != want {
			t.Errorf("%d tokens requested: the cache has %d tokens and the context %d, want %d", asked, i.CacheTokens,
				i.ContextTokens, want)
		}
	}
}

// A cache without a requested size holds four full contexts, or as many tokens as fit in a quarter of the free memory.
func TestACacheOfNoGivenSizeHoldsFourContexts(t *testing.T) {
	source, m := load(t, "", kernel.Options{Workers: 1}, nil)
	c := testConfig(source, Config{})
	c.CacheTokens = 0
	e, err := New(m, c)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := e.info.CacheTokens, 4*source.Config.MaxPositions*pools(); *ranks == 1 && got != want {
		t.Errorf("the cache has %d tokens, want %d", got, want)
	}
}

// Drafts are verified in one step together with the token before them. If a step is too small for that, a configured
// number of drafts is refused; with automatic drafting, drafting is disabled and the reason reported.
func TestDraftsNeedRoomInAStep(t *testing.T) {
	for _, c := range []struct{ drafts, step, most int }{{4, 1, 0}, {4, 4, 0}, {4, 5, 4}, {0, 1, 0}, {0, 3, 2},
		{0, 64, spec.MaxDrafts}} {
		cfg := Config{CacheTokens: 1024, StepTokens: c.step}
		if c.drafts > 0 {
			cfg.Draft = drafts(t, c.drafts)
		}
		e, err := build(t, testmodel.V32Draft(t), cfg)
		if c.drafts > 0 && c.most == 0 {
			if err == nil || !strings.Contains(err.Error(), "--step-tokens "+strconv.Itoa(c.step)) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if i := e.Info(); i.Drafts != c.most || (c.most == 0) != strings.Contains(i.NoDrafts, "--step-tokens") {
			t.Errorf("%+v: %d drafts, disabled because of %q", c, i.Drafts, i.NoDrafts)
		}
		_, run := running(t, e)
		run()
		generate(t, e, Request{Prompt: tokens(1, 40), Sampling: greedy(), MaxTokens: 12, IgnoreEOS: true})
		if s := e.Stats(); (s.Drafted > 0) != (c.most > 0) {
			t.Errorf("%+v: %d tokens were drafted", c, s.Drafted)
		}
	}
}
