package kv

import (
	"errors"
	"reflect"
	"testing"

	"sparrow/internal/kv/prefix"
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
		{Load{Pages: 800, PageTokens: 64, Window: 1, Running: 4, StepTokens: 64, PageBytes: 10, WindowBytes: 100},
			4 + 1 + 100},
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

// The identity of a pool is part of the keys of its pages, and a listener receives the key before the first page. A
// pool that reuses no pages has no keys, and no keys can be computed for a negative number of tokens.
func TestKeysOfPools(t *testing.T) {
	seen := map[prefix.Hash]bool{}
	for _, identity := range []string{"", "a", "b"} {
		var heard roots
		p := newPool(t, Config{Pages: 4, PageTokens: 4, Reuse: true, Main: "rows", Identity: identity,
			Listener: &heard})
		if len(heard) != 1 || heard[0] != p.shared || seen[p.shared] {
			t.Errorf("identity %q: the listener received %x; the root is %x", identity, heard, p.shared)
		}
		seen[p.shared] = true
		if _, err := p.Chain(tokens(0, 8), OpenOptions{Compute: -1}); !errors.Is(err, ErrArgument) {
			t.Errorf("-1 tokens are computed: error %v", err)
		}
	}
	p := newPool(t, Config{Pages: 4, PageTokens: 4, Main: "rows"})
	if chain, err := p.Chain(tokens(0, 9), OpenOptions{}); chain != nil || err != nil {
		t.Errorf("without reuse: keys %x, error %v", chain, err)
	}
}

// roots is a listener that records root hashes.
type roots []prefix.Hash

func (r *roots) Root(h prefix.Hash) { *r = append(*r, h) }

func (*roots) Stored(prefix.Stored) {}

func (*roots) Removed(prefix.Hash) {}

func (*roots) Cleared() {}

// A salt that is already known takes no more memory.
func TestKnownSalts(t *testing.T) {
	var s saltMemory
	for range 2 {
		s.note(prefix.Hash{1}, []byte("abc"))
		s.note(prefix.Hash{2}, nil)
		if s.bytes != 3+saltBytes || len(s.byRoot) != 1 {
			t.Errorf("%d salts have %d bytes", len(s.byRoot), s.bytes)
		}
	}
}

// A copier is called once for pages with the same tokens. When a duplicate page is released, its window page is too.
func TestDuplicatePagesLeaveNothing(t *testing.T) {
	var got notes
	p := newPool(t, Config{Pages: 12, PageTokens: 4, Reuse: true, Copier: &got, Window: Window{Pages: 8, Tokens: 4}})
	var list []Sequence
	for range 2 {
		s, _, err := p.Open(nil, OpenOptions{})
		ok(t, err)
		list = append(list, s)
	}
	for _, s := range list {
		for at := range 3 {
			grow(t, s, tokens(10+4*at, 4))
		}
	}
	got.check(t, "two sequences have the same pages", `stored 10 of "": page 0, window 0`,
		`stored 14 of "": page 1, window 1`, `stored 18 of "": page 2, window 2`)
	ok(t, list[1].Close())
	ok(t, p.Check())
	ok(t, list[0].Close())
	ok(t, p.Check())
	if p.Available() != 12 || p.WindowsAvailable() != 8 {
		t.Errorf("%d of 12 pages and %d of 8 window pages are available", p.Available(), p.WindowsAvailable())
	}
}

// With spacing, a window page before the window is evicted first, unless another sequence needs it or it was evicted
// already.
func TestSpacedWindowPagesThatAreNotIdle(t *testing.T) {
	p := newPool(t, Config{Pages: 24, PageTokens: 4, Reuse: true, Window: Window{Pages: 6, Tokens: 4, Spacing: 8}})
	a, _ := fill(t, p, tokens(0, 8), OpenOptions{}) // its window is in page 1
	b, _ := fill(t, p, tokens(0, 9), OpenOptions{})
	grow(t, b, tokens(9, 7)) // leaves page 1, which a needs
	grow(t, b, tokens(16, 4))
	if x := a.Windows()[1]; x < 0 || p.win.pins[a.Pages()[1]] != 1 {
		t.Errorf("the window page of a sequence that still runs is %d", x)
	}
	ok(t, a.Close())
	c, _, err := p.Open(nil, OpenOptions{})
	ok(t, err)
	ok(t, c.Reserve(16)) // evicts the window pages of pages before the window of b
	ok(t, p.Check())
	grow(t, b, tokens(20, 4))
	ok(t, c.Close())
	ok(t, b.Close())
	ok(t, p.Check())
}

// Negative numbers of tokens are no pages, and invalid page sizes are errors with window pages too.
func TestArgumentsWithoutTokens(t *testing.T) {
	p := newPool(t, Config{Pages: 4, PageTokens: 4, Main: "rows"})
	s, _ := fill(t, p, tokens(0, 3), OpenOptions{})
	for n, want := range map[int]int{-99: 0, -1: 0, 0: 0, 1: 0, 2: 1} {
		if got := s.Needs(n); got != want {
			t.Errorf("%d more tokens need %d pages, want %d", n, got, want)
		}
	}
	ok(t, s.Close())
	if err := (Config{Pages: 4, Window: Window{Pages: 3, Tokens: 4}}).Validate(); !errors.Is(err, ErrConfig) {
		t.Errorf("pages of no tokens: error %v", err)
	}
}
