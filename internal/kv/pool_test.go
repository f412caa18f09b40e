package kv

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/kv/prefix"
)

// tokens returns n consecutive tokens from first on.
func tokens(first, n int) []int32 {
	ts := make([]int32, n)
	for i := range ts {
		ts[i] = int32(first + i)
	}
	return ts
}

func newPool(t testing.TB, c Config) *Pool {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fill opens a sequence and commits all its tokens.
func fill(t testing.TB, p *Pool, ts []int32, o OpenOptions) (Sequence, Match) {
	t.Helper()
	s, m, err := p.Open(ts, o)
	ok(t, err)
	ok(t, s.Reserve(len(ts)-s.Len()))
	ok(t, s.Commit(ts[s.Len():]))
	ok(t, p.Check())
	return s, m
}

func TestValidateReportsEveryProblemAtOnce(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		want []string
	}{
		{"nothing set", Config{}, []string{"pages have 0 tokens", "there are 0 pages, of which the first 0"}},
		{"everything negative", Config{Pages: -1, FirstPage: -2, PageTokens: -3},
			[]string{"pages have -3 tokens", "the first page is -2", "there are -1 pages"}},
		{"only reserved pages", Config{Pages: 1, FirstPage: 1, PageTokens: 64},
			[]string{"there are 1 pages, of which the first 1"}},
		{"more rows than 32 bits address", Config{Pages: math.MaxInt32/64 + 1, PageTokens: 64},
			[]string{"at most 2147483647 rows"}},
		{"one page", Config{Pages: 1, PageTokens: 1}, nil},
		{"one page beside a reserved one", Config{Pages: 2, FirstPage: 1, PageTokens: 256}, nil},
		{"as many rows as 32 bits address", Config{Pages: math.MaxInt32 / 64, PageTokens: 64}, nil},
	} {
		err := c.cfg.Validate()
		if (err == nil) != (c.want == nil) || err != nil && !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: error %v, want %q", c.name, err, w)
			}
		}
	}
	if _, err := New(Config{}); !errors.Is(err, ErrConfig) {
		t.Errorf("New: %v", err)
	}
}

func TestReserveTakesPagesAtPageBoundaries(t *testing.T) {
	for _, c := range []struct{ committed, reserve, pages int }{
		{0, 0, 0}, {0, 1, 1}, {0, 63, 1}, {0, 64, 1}, {0, 65, 2},
		{1, 62, 1}, {1, 63, 1}, {1, 64, 2}, {63, 1, 1}, {63, 2, 2}, {64, 0, 1}, {64, 1, 2}, {65, 63, 2}, {65, 64, 3},
	} {
		p := newPool(t, Config{Pages: 8, FirstPage: 1, PageTokens: 64, Reuse: true})
		s, _ := fill(t, p, tokens(0, c.committed), OpenOptions{})
		want := c.pages - len(s.Pages())
		if got := s.Needs(c.reserve); got != want {
			t.Errorf("%d tokens after %d tokens need %d pages, want %d", c.reserve, c.committed, got, want)
		}
		ok(t, s.Reserve(c.reserve))
		if got := len(s.Pages()); got != c.pages || s.Len() != c.committed {
			t.Errorf("%d tokens after %d tokens: %d pages, length %d; want %d pages", c.reserve, c.committed, got,
				s.Len(),
				c.pages)
		}
		ok(t, s.Reserve(c.reserve)) // the space is already reserved
		if got := len(s.Pages()); got != c.pages {
			t.Errorf("reserving again took %d pages", got-c.pages)
		}
		ok(t, p.Check())
	}
}

func TestPagesAreHandedOutInOrderAndReservedOnesNever(t *testing.T) {
	p := newPool(t, Config{Pages: 5, FirstPage: 2, PageTokens: 4})
	s, _ := fill(t, p, tokens(0, 12), OpenOptions{})
	if got := s.Pages(); !slices.Equal(got, []int32{2, 3, 4}) {
		t.Errorf("pages %v", got)
	}
	if err := s.Reserve(1); !errors.Is(err, ErrFull) {
		t.Errorf("Reserve of a fourth page in a pool of three: error %v", err)
	}
}

func TestReuseStopsWhereItMust(t *testing.T) {
	p := newPool(t, Config{Pages: 16, FirstPage: 1, PageTokens: 4, Reuse: true})
	s, m := fill(t, p, tokens(0, 10), OpenOptions{})
	if m.Stop != prefix.StopUnknown || s.Reused() != 0 {
		t.Errorf("a new prompt: %v, reused %d", m, s.Reused())
	}
	ok(t, s.Close())
	for _, c := range []struct {
		name   string
		prompt []int32
		o      OpenOptions
		pages  []int32
		want   Match
	}{
		{"the same prompt", tokens(0, 10), OpenOptions{}, []int32{1, 2},
			Match{Tokens: 8, Pages: 2, Prompt: 10, Stop: prefix.StopWhole, At: 8}},
		{"its full pages only", tokens(0, 8), OpenOptions{}, []int32{1},
			Match{Tokens: 4, Pages: 1, Prompt: 8, Stop: prefix.StopCompute, At: 4}},
		{"one token more", tokens(0, 9), OpenOptions{}, []int32{1, 2},
			Match{Tokens: 8, Pages: 2, Prompt: 9, Stop: prefix.StopWhole, At: 8}},
		{"all to be computed", tokens(0, 10), OpenOptions{Compute: 10}, nil,
			Match{Prompt: 10, Stop: prefix.StopCompute}},
		{"the page being filled is not stored", tokens(0, 13), OpenOptions{}, []int32{1, 2},
			Match{Tokens: 8, Pages: 2, Prompt: 13, Stop: prefix.StopUnknown, At: 8}},
		{"another tenant", tokens(0, 10), OpenOptions{Salt: []byte("t2")}, nil,
			Match{Prompt: 10, Stop: prefix.StopUnknown}},
		{"a different token", []int32{0, 1, 2, 3, 4, 99, 6, 7, 8}, OpenOptions{}, []int32{1},
			Match{Tokens: 4, Pages: 1, Prompt: 9, Stop: prefix.StopDifferent, At: 5}},
	} {
		if m, err := p.Peek(c.prompt, c.o); err != nil || m != c.want {
			t.Errorf("%s: Peek returned %v, error %v; want %v", c.name, m, err, c.want)
		}
		s, m, err := p.Open(c.prompt, c.o)
		ok(t, err)
		if m != c.want || !slices.Equal(s.Pages(), c.pages) || s.Len() != m.Tokens || s.Reused() != m.Tokens {
			t.Errorf("%s: pages %v length %d reused %d, %v; want pages %v, %v", c.name, s.Pages(), s.Len(), s.Reused(),
				m, c.pages, c.want)
		}
		ok(t, p.Check())
		ok(t, s.Close())
		ok(t, p.Check())
	}
}

func TestWithoutReuseNothingIsKept(t *testing.T) {
	p := newPool(t, Config{Pages: 8, PageTokens: 4})
	s, m := fill(t, p, tokens(0, 9), OpenOptions{})
	if m != (Match{Prompt: 9, Stop: prefix.StopOff}) {
		t.Errorf("first: %v", m)
	}
	ok(t, s.Close())
	if st := p.Stats(); st.Free != 8 || st.Cached != 0 {
		t.Errorf("%+v", st)
	}
	if _, m := fill(t, p, tokens(0, 9), OpenOptions{}); m.Stop != prefix.StopOff || m.Tokens != 0 {
		t.Errorf("second: %v", m)
	}
}

func TestOnlyCommittedTokensAreReusable(t *testing.T) {
	p := newPool(t, Config{Pages: 16, PageTokens: 4, Reuse: true})
	s, _ := fill(t, p, tokens(0, 3), OpenOptions{})
	ok(t, s.Reserve(5)) // drafts fill this page and the next
	if m, _ := p.Peek(tokens(0, 9), OpenOptions{}); m.Tokens != 0 {
		t.Errorf("a lookup finds rows of drafts: %v", m)
	}
	ok(t, s.Commit([]int32{100})) // one token is accepted, and it differs from the drafted token 3
	ok(t, s.Truncate(s.Len()))
	ok(t, p.Check())
	if m, _ := p.Peek(tokens(0, 9), OpenOptions{}); m.Tokens != 0 || m.Stop != prefix.StopDifferent || m.At != 3 {
		t.Errorf("a lookup with the rejected draft: %v", m)
	}
	if m, _ := p.Peek([]int32{0, 1, 2, 100, 5}, OpenOptions{}); m.Tokens != 4 {
		t.Errorf("a lookup with the accepted token: %v", m)
	}
	if len(s.Pages()) != 1 {
		t.Errorf("%d pages after truncating", len(s.Pages()))
	}
}

func TestFullPoolEvictsUnusedPrefixesThenSaysWhatIsMissing(t *testing.T) {
	p := newPool(t, Config{Pages: 7, FirstPage: 1, PageTokens: 4, Reuse: true})
	a, _ := fill(t, p, tokens(0, 8), OpenOptions{})
	ok(t, a.Close())
	b, _ := fill(t, p, tokens(100, 8), OpenOptions{})
	c, m := fill(t, p, tokens(0, 5), OpenOptions{}) // uses the first page of a again
	if m.Tokens != 4 {
		t.Fatalf("%v", m)
	}
	// Of 6 pages, b and c use 2 each, 1 is cached (the second page of a) and 1 is free.
	if st := p.Stats(); st.Used != 4 || st.Cached != 1 || st.Free != 1 || st.Usage() != 4.0/6 {
		t.Fatalf("%+v", st)
	}
	before := slices.Clone(b.Pages())
	var full *FullError
	err := b.Reserve(9)
	if !errors.As(err, &full) || !errors.Is(err, ErrFull) || *full != (FullError{Needed: 3, Free: 1, Evictable: 1}) ||
		full.Missing() != 1 {
		t.Fatalf("%v", err)
	}
	if !slices.Equal(b.Pages(), before) || p.Stats().Evictions != 0 {
		t.Errorf("a failed Reserve left pages %v and %d evictions", b.Pages(), p.Stats().Evictions)
	}
	ok(t, p.Check())
	ok(t, b.Reserve(8))
	if st := p.Stats(); st.Evictions != 1 || st.Used != 6 || p.Available() != 0 {
		t.Errorf("%+v", st)
	}
	if m, _ := p.Peek(tokens(0, 9), OpenOptions{}); m.Tokens != 4 || m.Stop != prefix.StopEvicted {
		t.Errorf("a lookup of the evicted page: %v", m)
	}
	ok(t, c.Close())
	ok(t, b.Close())
	ok(t, p.Check())
}

func TestAHugeReserveIsFullNotAnOverflow(t *testing.T) {
	p := newPool(t, Config{Pages: 8, PageTokens: 1, Reuse: true})
	s, _ := fill(t, p, tokens(0, 3), OpenOptions{})
	if err := s.Reserve(math.MaxInt); !errors.Is(err, ErrFull) {
		t.Errorf("%v", err)
	}
	ok(t, s.Truncate(math.MaxInt)) // the sequence is shorter than this, so no page is released
	if len(s.Pages()) != 3 {
		t.Errorf("%d pages", len(s.Pages()))
	}
}

func TestResetForgetsAndStopsPublishingWhatCameBefore(t *testing.T) {
	p := newPool(t, Config{Pages: 16, PageTokens: 4, Reuse: true})
	a, _ := fill(t, p, tokens(0, 8), OpenOptions{})
	ok(t, a.Close())
	young, _ := fill(t, p, tokens(50, 2), OpenOptions{})
	old, _ := fill(t, p, tokens(20, 6), OpenOptions{})
	p.Reset()
	ok(t, p.Check())
	ok(t, old.Reserve(4))
	ok(t, old.Commit(tokens(26, 4)))
	ok(t, young.Reserve(4))
	ok(t, young.Commit(tokens(52, 4))) // the first page of this sequence was computed before Reset
	ok(t, p.Check())
	for _, first := range []int{0, 20, 50} {
		if m, _ := p.Peek(tokens(first, 9), OpenOptions{}); m.Tokens != 0 || m.Stop != prefix.StopUnknown {
			t.Errorf("lookup of the prompt from token %d: %v", first, m)
		}
	}
	ok(t, old.Close())
	ok(t, young.Close())
	if st := p.Stats(); st.Free != 16 {
		t.Errorf("%+v", st)
	}
}

func TestStatsCountLookups(t *testing.T) {
	p := newPool(t, Config{Pages: 16, PageTokens: 4, Reuse: true})
	for range 3 {
		s, _ := fill(t, p, tokens(0, 10), OpenOptions{})
		ok(t, s.Close())
	}
	st := p.Stats()
	if st.Lookups != 3 || st.PromptTokens != 30 || st.ReusedTokens != 16 || st.Sequences != 0 ||
		st.Stops[prefix.StopUnknown] != 1 || st.Stops[prefix.StopWhole] != 2 {
		t.Errorf("%+v", st)
	}
}

func TestATagNamesLayoutsAndPageSize(t *testing.T) {
	p := newPool(t, Config{Pages: 1, PageTokens: 64, Main: "fp8-656", Index: "index-132"})
	if got := p.Tag().String(); got != "fp8-656+index-132/64" {
		t.Errorf("tag %s", got)
	}
}

func TestPagesOfAnotherLayoutHaveOtherHashes(t *testing.T) {
	var a, b hashes
	for main, h := range map[string]*hashes{"fp8-656": &a, "fp8-576": &b} {
		fill(t, newPool(t, Config{Pages: 2, PageTokens: 4, Reuse: true, Main: main, Listener: h}), tokens(0, 4),
			OpenOptions{})
	}
	if len(a) != 1 || len(b) != 1 || a[0] == b[0] {
		t.Errorf("the hashes are %v and %v, want different hashes", a, b)
	}
}

// hashes collects the hashes of stored pages.
type hashes []prefix.Hash

func (h *hashes) Stored(s prefix.Stored) { *h = append(*h, s.Hash) }
func (h *hashes) Removed(prefix.Hash)    {}
func (h *hashes) Cleared()               {}
