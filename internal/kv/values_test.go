package kv

import (
	"reflect"
	"testing"
)

// Unshared returns the number of pages of a sequence that no other sequence uses.
func TestUnsharedPages(t *testing.T) {
	p := newPool(t, Config{Pages: 16, PageTokens: 4, Reuse: true, Main: "rows"})
	prompt := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	var open []Sequence
	for i, want := range [][]int{{3}, {1, 1}, {1, 1, 1}} {
		s, _, err := p.Open(prompt, OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Reserve(len(prompt) - s.Len()); err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(prompt[s.Len():]); err != nil {
			t.Fatal(err)
		}
		open = append(open, s)
		for j, n := range want {
			if got := open[j].Unshared(); got != n {
				t.Errorf("with %d sequences, sequence %d has %d unshared pages, want %d", i+1, j, got, n)
			}
		}
	}
	for _, s := range open {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Each field in the statistics of two pools is the sum of both pools.
func TestStatsOfPoolsAreSums(t *testing.T) {
	var a, b Stats
	fill := func(s *Stats, by int64) {
		v := reflect.ValueOf(s).Elem()
		next := by
		var set func(reflect.Value)
		set = func(x reflect.Value) {
			if x.Kind() == reflect.Array {
				for i := range x.Len() {
					set(x.Index(i))
				}
				return
			}
			x.SetInt(next)
			next += by
		}
		for i := range v.NumField() {
			set(v.Field(i))
		}
	}
	fill(&a, 1)
	fill(&b, 100)
	var want Stats
	fill(&want, 101)
	if a.Add(b); a != want {
		t.Errorf("sum %+v, want %+v", a, want)
	}
}

// The pool has enough window pages for all running sequences and for a step, and additional window pages for reuse. For
// reuse it has one window page for every eight pages. If a window page is as large as many pages, the window pages take
// as much memory as the pages, and their number is at most half of the number of pages.
func TestTheNumberOfWindowPages(t *testing.T) {
	for _, c := range []struct {
		load Load
		want int
	}{
		{Load{Pages: 800, PageTokens: 64, Window: 128, Running: 4, StepTokens: 130}, 4*3 + 3 + 100},
		{Load{Pages: 800, PageTokens: 64, Window: 129, Running: 4, StepTokens: 128}, 4*3 + 2 + 100},
		{Load{Pages: 800, PageTokens: 64, Window: 130, Running: 4, StepTokens: 128}, 4*4 + 2 + 100},
		{Load{Pages: 16, PageTokens: 64, Window: 128, Running: 9, StepTokens: 130}, 16},
		{Load{Pages: 2, PageTokens: 64, Window: 640, Running: 1, StepTokens: 1}, 11},
		{Load{Pages: 800, PageTokens: 64, Window: 1, Running: 4, StepTokens: 64, Spacing: 8, PageBytes: 10,
			WindowBytes: 100}, 4 + 1 + 80},
		{Load{Pages: 800, PageTokens: 64, Window: 1, Running: 4, StepTokens: 64, Spacing: 8, PageBytes: 90,
			WindowBytes: 100}, 4 + 1 + 400},
	} {
		if got := SizeWindow(c.load); got.Pages != c.want || got.Tokens != c.load.Window ||
			got.Spacing != c.load.Spacing {
			t.Errorf("load %+v: window %+v, want %d pages", c.load, got, c.want)
		}
	}
}

// The keys of a prompt are the keys of the full pages before the tokens that must be computed.
func TestTheChainEndsBeforeWhatIsComputed(t *testing.T) {
	p := newPool(t, Config{Pages: 16, PageTokens: 4, Reuse: true, Main: "rows"})
	prompt := make([]int32, 16)
	for compute, want := range map[int]int{0: 3, 1: 3, 4: 3, 5: 2, 12: 1, 13: 0, 16: 0, 99: 0} {
		if chain, err := p.Chain(prompt, OpenOptions{Compute: compute}); err != nil || len(chain) != want {
			t.Errorf("the last %d tokens are computed: %d hashes, error %v; want %d", compute, len(chain), err, want)
		}
	}
}
