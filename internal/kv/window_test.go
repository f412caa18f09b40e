package kv

import (
	"errors"
	"slices"
	"testing"

	"sparrow/internal/kv/prefix"
)

// windowed returns a pool of 12 pages of 4 tokens with a window of 4 tokens.
func windowed(t *testing.T, windows int) *Pool {
	t.Helper()
	p, err := New(Config{Pages: 12, PageTokens: 4, Reuse: true, Window: Window{Pages: windows, Tokens: 4}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// count returns n consecutive tokens, beginning with first.
func count(first int32, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = first + int32(i)
	}
	return out
}

// grow reserves and commits the given tokens.
func grow(t *testing.T, s Sequence, tokens []int32) {
	t.Helper()
	if err := s.Reserve(len(tokens)); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(tokens); err != nil {
		t.Fatal(err)
	}
	if err := s.q.pool.Check(); err != nil {
		t.Fatal(err)
	}
}

func TestWindowPagesAreReleasedAsTheWindowMoves(t *testing.T) {
	p := windowed(t, 3)
	s, _, err := p.Open(nil, OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 40; n++ {
		grow(t, s, []int32{int32(n)})
		first := max(n-3, 0) / 4 // the next token attends to the 3 tokens before it
		for i, x := range s.Windows() {
			if (x >= 0) != (i >= first) {
				t.Fatalf("%d tokens: window pages %v; want them from page %d on", n, s.Windows(), first)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if st := p.Stats(); st.Windows != 3 || st.WindowsFree+st.WindowsIdle != 3 || st.WindowEvictions == 0 ||
		st.Cached != 10 {
		t.Errorf("after Close: statistics %+v", st)
	}
}

// A stored prompt is found up to the last page whose window rows are stored, which is one of the newest three pages
// here.
func TestALookupStopsWhereWindowRowsEnd(t *testing.T) {
	p := windowed(t, 3)
	s, _, _ := p.Open(nil, OpenOptions{})
	for i := range 8 {
		grow(t, s, count(int32(4*i), 4))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tokens, want int
		stop         prefix.Stop
	}{
		{9, 0, prefix.StopWindow}, {21, 0, prefix.StopWindow}, {25, 24, prefix.StopWhole}, {29, 28, prefix.StopWhole},
		{32, 28, prefix.StopCompute}, {33, 32, prefix.StopWhole},
	} {
		prompt := append(count(0, min(c.tokens, 32)), count(90, max(c.tokens-32, 0))...)
		m, err := p.Peek(prompt, OpenOptions{})
		if err != nil || m.Tokens != c.want || m.Stop != c.stop || m.Pages*4 != m.Tokens {
			t.Errorf("%d tokens: match %v, error %v; want %d tokens, %v", c.tokens, m, err, c.want, c.stop)
		}
	}
}

func TestTooFewWindowPagesAreTold(t *testing.T) {
	p := windowed(t, 3)
	a, _, _ := p.Open(nil, OpenOptions{})
	b, _, _ := p.Open(nil, OpenOptions{})
	grow(t, a, count(0, 6))
	err := b.Reserve(8)
	var full *FullError
	if !errors.As(err, &full) || *full != (FullError{Needed: 2, Free: 1, Window: true}) || !errors.Is(err, ErrFull) {
		t.Fatalf("got %v", err)
	}
	if want := "kv: out of window pages: 2 needed, 1 free, 0 cached; release 1 more"; err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
	if len(b.Pages()) != 0 || b.WindowsMissing() != 2 || a.WindowsMissing() != 0 {
		t.Errorf("pages %v; %d and %d window pages are missing", b.Pages(), b.WindowsMissing(), a.WindowsMissing())
	}
}

// Tokens can be removed only while the window rows of the shorter sequence are still stored.
func TestTruncateNeedsTheWindow(t *testing.T) {
	for _, evict := range []bool{false, true} {
		p := windowed(t, 3)
		s, _, _ := p.Open(nil, OpenOptions{})
		grow(t, s, count(0, 4))
		grow(t, s, count(4, 3)) // the window includes tokens 4 to 6, so the window page of the first page is idle
		if evict {
			other, _, _ := p.Open(nil, OpenOptions{})
			grow(t, other, count(50, 8))
		}
		err := s.Truncate(5)
		if evict != errors.Is(err, ErrArgument) {
			t.Errorf("window page evicted %v: error %v", evict, err)
		}
		if got := s.Windows()[0] >= 0; got == evict {
			t.Errorf("window page evicted %v: window pages %v", evict, s.Windows())
		}
		if err := p.Check(); err != nil {
			t.Error(err)
		}
	}
}

// The maximum number of window pages of a sequence that grows token by token is exactly PerSequence.
func TestWindowsPerSequence(t *testing.T) {
	for page := 1; page <= 6; page++ {
		for tokens := 1; tokens <= 14; tokens++ {
			w, most := Window{Pages: 1, Tokens: tokens}, 0
			// Counts the pages from the first page that the next token attends to, up to its own page.
			for n := range 60 {
				most = max(most, n/page-w.first(n, page)+1)
			}
			if got := w.PerSequence(page); got != most {
				t.Errorf("rows that attend to %d tokens, in pages of %d tokens: %d window pages, want %d", tokens, page,
					got, most)
			}
		}
	}
}

func TestSizeWindow(t *testing.T) {
	for _, c := range []struct {
		load Load
		want int
	}{
		{Load{Pages: 1000, PageTokens: 256, Window: 128, Running: 64, StepTokens: 512}, 64*2 + 2 + 125},
		{Load{Pages: 24, PageTokens: 256, Window: 128, Running: 1, StepTokens: 256}, 2 + 1 + 3},
		// The number is at most the number of pages.
		{Load{Pages: 20, PageTokens: 256, Window: 128, Running: 64, StepTokens: 512}, 20},
		// The number is at least the number that one sequence needs.
		{Load{Pages: 1, PageTokens: 256, Window: 128, Running: 1, StepTokens: 1}, 2},
		{Load{Pages: 100, PageTokens: 64, Window: 128, Running: 1, StepTokens: 64}, 3 + 1 + 12},
		// Window pages without bytes are counted as without a spacing.
		{Load{Pages: 100, PageTokens: 64, Window: 128, Running: 1, StepTokens: 64, Spacing: 2, PageBytes: 9},
			3 + 1 + 12},
	} {
		if got := SizeWindow(c.load); got.Pages != c.want || got.Tokens != c.load.Window {
			t.Errorf("load %+v: window %+v, want %d pages", c.load, got, c.want)
		}
	}
}

func TestBadWindowsAreRefused(t *testing.T) {
	for _, w := range []Window{{Pages: -1, Tokens: 4}, {Pages: 3}, {Pages: 1, Tokens: 4}, {Pages: 1 << 30, Tokens: 4}} {
		if _, err := New(Config{Pages: 4, PageTokens: 4, Window: w}); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", w, err)
		}
	}
	p := newPool(t, Config{Pages: 4, PageTokens: 4})
	s, _, _ := p.Open(nil, OpenOptions{})
	if s.Windows() != nil || p.WindowsAvailable() != 0 || p.WindowsPerSequence() != 0 || s.WindowsMissing() != 0 {
		t.Error("a pool without window pages returned some")
	}
	if !slices.Equal(s.Windows(), nil) {
		t.Error("a sequence in a pool without window pages has window pages")
	}
}

// If window pages are snapshots, those inside a sequence are evicted first: the last snapshot of another sequence
// stays, and one snapshot in every Spacing pages also stays.
func TestSnapshotsInsideASequenceGoFirst(t *testing.T) {
	p, err := New(Config{Pages: 40, PageTokens: 4, Reuse: true, Window: Window{Pages: 6, Tokens: 2, Spacing: 8}})
	if err != nil {
		t.Fatal(err)
	}
	run := func(first int32, n int) {
		t.Helper()
		s, _, err := p.Open(count(first, n), OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			grow(t, s, []int32{first + int32(i)})
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	finds := func(first int32, n, want int) {
		t.Helper()
		s, m, err := p.Open(count(first, n), OpenOptions{})
		if err != nil || m.Tokens != want {
			t.Errorf("a prompt of %d tokens finds %d tokens, error %v; want %d", n, m.Tokens, err, want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	run(1000, 9)  // fills two pages
	run(2000, 49) // fills twelve pages, more than there are window pages
	finds(1000, 9, 8)
	finds(2000, 49, 48)
	finds(2000, 40, 32) // finds eight pages
}

// The number of missing window pages of a sequence is the maximum number that it needs minus the number that it holds.
func TestWindowPagesThatAreMissing(t *testing.T) {
	p := windowed(t, 12)
	s, _, err := p.Open(nil, OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range int32(30) {
		grow(t, s, []int32{i})
		held := 0
		for _, w := range s.Windows() {
			if w >= 0 {
				held++
			}
		}
		if got := s.WindowsMissing(); got != p.WindowsPerSequence()-held || got < 0 {
			t.Errorf("%d tokens: %d window pages are missing, of %d the sequence holds %d", i+1, got,
				p.WindowsPerSequence(),
				held)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
