package kv

import (
	"fmt"
	"slices"
	"testing"
)

// notes records the calls of a copier, by the first token of a page.
type notes []string

func (n *notes) Stored(k Kept) { n.add("stored", k) }

func (n *notes) Leaving(k Kept) { n.add("leaving", k) }

func (n *notes) add(what string, k Kept) {
	*n = append(*n, fmt.Sprintf("%s %d of %q: page %d, window %d", what, k.Tokens[0], k.Salt, k.Page, k.Window))
}

// check compares the recorded calls and clears them.
func (n *notes) check(t *testing.T, when string, want ...string) {
	t.Helper()
	if !slices.Equal(*n, want) {
		t.Errorf("%s: calls %q, want %q", when, *n, want)
	}
	*n = nil
}

// A copier is called for every page that becomes reusable, and for every evicted page before another page gets its
// memory.
func TestACopierHearsOfEvictedPages(t *testing.T) {
	var got notes
	p := newPool(t, Config{Pages: 3, PageTokens: 4, Reuse: true, Copier: &got})
	s, _ := fill(t, p, tokens(10, 9), OpenOptions{Salt: []byte("a")})
	got.check(t, "two pages are full", `stored 10 of "a": page 0, window -1`, `stored 14 of "a": page 1, window -1`)
	ok(t, s.Close())
	got.check(t, "the pages are cached")
	s, _ = fill(t, p, tokens(50, 6), OpenOptions{})
	got.check(t, "another sequence has the free page and a cached one", `leaving 14 of "a": page 1, window -1`,
		`stored 50 of "": page 2, window -1`)
	ok(t, s.Close())
}

// If the pool has window pages, the copier is called when a page loses its window page, and not again when the page
// itself is evicted.
func TestACopierHearsOfWindowPagesOnce(t *testing.T) {
	var got notes
	p := newPool(t, Config{Pages: 4, PageTokens: 4, Reuse: true, Copier: &got, Window: Window{Pages: 3, Tokens: 4}})
	a, _, err := p.Open(nil, OpenOptions{})
	ok(t, err)
	grow(t, a, tokens(10, 4))
	grow(t, a, tokens(14, 4))
	grow(t, a, tokens(18, 3)) // the window includes only the third page now
	ok(t, a.Close())
	got.check(t, "two pages are full", `stored 10 of "": page 0, window 0`, `stored 14 of "": page 1, window 1`)
	b, _, err := p.Open(nil, OpenOptions{})
	ok(t, err)
	grow(t, b, tokens(50, 4))
	grow(t, b, tokens(54, 4)) // evicts the window page of the first page
	got.check(t, "a window page is evicted", `stored 50 of "": page 2, window 2`,
		`leaving 10 of "": page 0, window 0`, `stored 54 of "": page 3, window 0`)
	c, _, err := p.Open(nil, OpenOptions{})
	ok(t, err)
	grow(t, c, tokens(90, 2)) // evicts the second page, which still has its window page
	got.check(t, "a page is evicted with its window page", `leaving 14 of "": page 1, window 1`)
	ok(t, b.Close())
	grow(t, c, tokens(92, 3)) // evicts the first page, which has no window page, and the window page of the third page
	got.check(t, "a page without its window page is evicted", `leaving 50 of "": page 2, window 2`,
		`stored 90 of "": page 1, window 1`)
}
