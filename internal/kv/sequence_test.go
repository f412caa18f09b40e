package kv

import (
	"errors"
	"slices"
	"testing"
)

func TestCommitBeyondTheReservationFails(t *testing.T) {
	p := newPool(t, Config{Pages: 8, PageTokens: 4, Reuse: true})
	s, _, err := p.Open(tokens(0, 9), OpenOptions{})
	ok(t, err)
	if err := s.Commit(tokens(0, 1)); !errors.Is(err, ErrNotReserved) {
		t.Errorf("commit without a reservation: error %v", err)
	}
	ok(t, s.Reserve(5)) // reserves two pages
	ok(t, s.Commit(tokens(0, 8)))
	if err := s.Commit(tokens(8, 1)); !errors.Is(err, ErrNotReserved) || s.Len() != 8 {
		t.Errorf("commit beyond the reserved pages: error %v, length %d", err, s.Len())
	}
	ok(t, s.Commit(nil))
	ok(t, p.Check())
}

func TestChunkedCommitPublishesTheSamePagesAsOne(t *testing.T) {
	for chunk := 1; chunk <= 13; chunk++ {
		p := newPool(t, Config{Pages: 16, PageTokens: 4, Reuse: true})
		s, _, err := p.Open(tokens(0, 13), OpenOptions{})
		ok(t, err)
		for at := 0; at < 13; at += chunk {
			n := min(chunk, 13-at)
			ok(t, s.Reserve(n))
			ok(t, s.Commit(tokens(at, n)))
			ok(t, p.Check())
		}
		if m, _ := p.Peek(tokens(0, 14), OpenOptions{}); m.Tokens != 12 {
			t.Errorf("chunks of %d: lookup %v", chunk, m)
		}
	}
}

func TestTruncateGivesBackReservedPagesAndTheOpenPage(t *testing.T) {
	for _, c := range []struct {
		name            string
		committed, room int // number of committed tokens, number of additionally reserved tokens
		to              int
		length, pages   int
		fails           bool
	}{
		{"drafts in a page of their own", 8, 4, 8, 8, 2, false},
		{"drafts in the open page", 9, 3, 9, 9, 3, false},
		{"drafts over two pages, one accepted later", 9, 7, 10, 9, 3, false},
		{"more than there is", 9, 3, 99, 9, 3, false},
		{"back inside the open page", 11, 1, 9, 9, 3, false},
		{"back to the last full page", 11, 1, 8, 8, 2, false},
		{"into a full page", 11, 1, 7, 11, 3, true},
		{"into a full page without an open one", 8, 0, 7, 8, 2, true},
		{"to nothing", 3, 1, 0, 0, 0, false},
		{"below nothing", 3, 1, -1, 3, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPool(t, Config{Pages: 8, PageTokens: 4, Reuse: true})
			s, _ := fill(t, p, tokens(0, c.committed), OpenOptions{})
			ok(t, s.Reserve(c.room))
			if err := s.Truncate(c.to); (err != nil) != c.fails || err != nil && !errors.Is(err, ErrArgument) {
				t.Fatal(err)
			}
			if s.Len() != c.length || len(s.Pages()) != c.pages {
				t.Errorf("length %d in %d pages, want length %d in %d pages", s.Len(), len(s.Pages()), c.length,
					c.pages)
			}
			ok(t, p.Check())
		})
	}
}

func TestTokensCommittedAfterTruncateAreTheOnesPublished(t *testing.T) {
	p := newPool(t, Config{Pages: 8, PageTokens: 4, Reuse: true})
	s, _ := fill(t, p, tokens(0, 7), OpenOptions{})
	ok(t, s.Truncate(5))
	ok(t, s.Reserve(3))
	ok(t, s.Commit([]int32{70, 71, 72}))
	if m, _ := p.Peek([]int32{0, 1, 2, 3, 4, 70, 71, 72, 9}, OpenOptions{}); m.Tokens != 8 {
		t.Errorf("%v", m)
	}
}

// If two requests with the same prompt run together and the first ends, its pages are free at once, because the second
// request has pages with equal content. Both continuations can still be found.
func TestTwinsComputedTogetherReplaceEachOther(t *testing.T) {
	p := newPool(t, Config{Pages: 8, FirstPage: 1, PageTokens: 4, Reuse: true})
	a, _, err := p.Open(tokens(0, 9), OpenOptions{})
	ok(t, err)
	b, _, err := p.Open(tokens(0, 9), OpenOptions{})
	ok(t, err)
	for _, s := range []Sequence{a, b} {
		ok(t, s.Reserve(9))
		ok(t, s.Commit(tokens(0, 9)))
		ok(t, p.Check())
	}
	if slices.Equal(a.Pages(), b.Pages()) {
		t.Fatal("a running sequence was moved to another page")
	}
	ok(t, b.Commit([]int32{9, 10, 11})) // the third page of b is stored after pages that a stored
	ok(t, p.Check())
	ok(t, a.Close())
	ok(t, p.Check())
	if st := p.Stats(); st.Used != 3 || st.Cached != 0 {
		t.Errorf("%+v", st)
	}
	c, m := fill(t, p, tokens(0, 13), OpenOptions{})
	if m.Tokens != 12 || !slices.Equal(c.Pages()[:3], b.Pages()) {
		t.Errorf("match %v, pages %v, want the pages %v", m, c.Pages(), b.Pages())
	}
	ok(t, b.Close())
	ok(t, c.Close())
	ok(t, p.Check())
	if st := p.Stats(); st.Used != 0 || st.Cached != 3 {
		t.Errorf("%+v", st)
	}
}

func TestStaleHandlesTouchNothing(t *testing.T) {
	p := newPool(t, Config{Pages: 8, PageTokens: 4, Reuse: true})
	stale, _ := fill(t, p, tokens(0, 6), OpenOptions{})
	ok(t, stale.Close())
	fresh, _ := fill(t, p, tokens(50, 6), OpenOptions{}) // this sequence gets the pages of the stale sequence
	for _, s := range []Sequence{stale, {}} {
		for name, err := range map[string]error{"Close": s.Close(), "Reserve": s.Reserve(1), "Commit": s.Commit(nil),
			"Truncate": s.Truncate(0)} {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if s.Len() != 0 || s.Reused() != 0 || s.Pages() != nil || s.Needs(9) != 0 {
			t.Errorf("length %d, reused %d, pages %v, needs %d", s.Len(), s.Reused(), s.Pages(), s.Needs(9))
		}
	}
	if fresh.Len() != 6 || p.Stats().Sequences != 1 {
		t.Errorf("length %d, %d open sequences", fresh.Len(), p.Stats().Sequences)
	}
	ok(t, p.Check())
}

func TestBadCountsAreErrors(t *testing.T) {
	p := newPool(t, Config{Pages: 8, PageTokens: 4, Reuse: true})
	if _, _, err := p.Open(nil, OpenOptions{Compute: -1}); !errors.Is(err, ErrArgument) {
		t.Errorf("Open: %v", err)
	}
	if _, err := p.Peek(nil, OpenOptions{Compute: -1}); !errors.Is(err, ErrArgument) {
		t.Errorf("Peek: %v", err)
	}
	s, _, err := p.Open(nil, OpenOptions{})
	ok(t, err)
	if err := s.Reserve(-1); !errors.Is(err, ErrArgument) || s.Needs(-1) != 0 {
		t.Errorf("Reserve: %v", err)
	}
	ok(t, p.Check())
}
