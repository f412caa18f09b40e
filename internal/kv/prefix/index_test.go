package prefix

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNewRefusesSizesBelowOne(t *testing.T) {
	for _, c := range []Config{{Pages: 0, PageTokens: 4}, {Pages: 4, PageTokens: 0}, {Pages: -1, PageTokens: -1}} {
		if _, err := New(c); !errors.Is(err, ErrConfig) {
			t.Errorf("%d pages of %d tokens: %v", c.Pages, c.PageTokens, err)
		}
	}
}

func TestAddRefusesWhatItCannotStore(t *testing.T) {
	ix := newIndex(t, Config{Pages: 4, PageTokens: 4})
	add(t, ix, "", "abcd", 1)
	root := ix.Root(nil)
	for _, c := range []struct {
		name         string
		parent, page Page
		tokens       string
	}{
		{"a page that is stored already", None, 1, "wxyz"},
		{"a page below the first", None, -1, "wxyz"},
		{"a page past the last", None, 4, "wxyz"},
		{"a parent that is not stored", 2, 3, "wxyz"},
		{"a parent past the last page", 4, 3, "wxyz"},
		{"a parent below none", -2, 3, "wxyz"},
		{"a page that is not full", None, 3, "wxy"},
		{"too many tokens", None, 3, "wxyzw"},
	} {
		if o, _ := ix.Add(root, c.parent, c.page, tokens(c.tokens)); o != Refused {
			t.Errorf("%s: Add returned outcome %d, want Refused", c.name, o)
		}
		check(t, ix)
	}
}

func TestTheNextTwinAnswersWhenTheFirstFallsOutOfUse(t *testing.T) {
	ix := newIndex(t, Config{Pages: 16, PageTokens: 4})
	answer := func() []int32 {
		pages, _ := ix.Lookup(ix.Root(nil), tokens("abcdefgh."), 1, nil)
		return pages
	}
	add(t, ix, "", "abcd", 1)
	add(t, ix, "", "abcdefgh", 2, 3) // page 2 is a duplicate of page 1; page 3 is the first page with efgh
	add(t, ix, "", "abcd", 4)        // page 4 is also a duplicate of page 1
	if got := answer(); !slices.Equal(got, []int32{1, 3}) {
		t.Fatalf("pages %v", got)
	}
	// The duplicate page is released: it is free and nothing else changes.
	if freed := drop(ix, 4); !slices.Equal(freed, []Page{4}) {
		t.Fatalf("freed %v", freed)
	}
	check(t, ix)
	// The page that lookups return is released: it is free at once, lookups return its duplicate, and the child is
	// still found.
	if freed := drop(ix, 1); !slices.Equal(freed, []Page{1}) {
		t.Fatalf("freed %v", freed)
	}
	check(t, ix)
	if got := answer(); !slices.Equal(got, []int32{2, 3}) || ix.Idle() != 0 {
		t.Fatalf("pages %v, %d idle", got, ix.Idle())
	}
	if freed := drop(ix, 2, 3); freed != nil || ix.Idle() != 2 {
		t.Fatalf("freed %v, %d idle", freed, ix.Idle())
	}
	check(t, ix)
}

func TestAPageInUseReplacesAnIdleTwin(t *testing.T) {
	ix := newIndex(t, Config{Pages: 16, PageTokens: 2})
	add(t, ix, "", "aabb", 1, 2)
	drop(ix, 1, 2)
	if o, freed := ix.Add(ix.Root(nil), None, 3, tokens("aa")); o != Duplicate || freed != 1 {
		t.Fatalf("outcome %d, freed page %d", o, freed)
	}
	check(t, ix)
	if pages, _ := ix.Lookup(ix.Root(nil), tokens("aabb."), 1, nil); !slices.Equal(pages, []int32{3, 2}) ||
		ix.Idle() != 1 {
		t.Errorf("pages %v, %d idle", pages, ix.Idle())
	}
}

func TestEvictionTakesTheLongestUnusedAndLeavesBeforeParents(t *testing.T) {
	ix := newIndex(t, Config{Pages: 16, PageTokens: 2})
	add(t, ix, "", "aabbcc", 1, 2, 3)
	add(t, ix, "", "xxyy", 4, 5)
	drop(ix, 1, 2, 3)
	drop(ix, 4, 5)
	// The prompt aabb is used again: its pages become the newest, cc stays the oldest.
	ix.Hold(1)
	ix.Hold(2)
	check(t, ix)
	drop(ix, 1, 2)
	check(t, ix)
	var got []Page
	for {
		p, ok := ix.Evict()
		if !ok {
			break
		}
		got = append(got, p)
		check(t, ix)
	}
	if want := []Page{3, 5, 4, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("the evicted pages are %v, want %v", got, want)
	}
}

func TestClearFreesIdlePagesAndForgetsTheRest(t *testing.T) {
	ix := newIndex(t, Config{Pages: 8, PageTokens: 2})
	add(t, ix, "", "aabb", 1, 2)
	add(t, ix, "", "cc", 3)
	add(t, ix, "", "ee", 4)
	drop(ix, 4)
	drop(ix, 1, 2)
	if page, ok := ix.Evict(); !ok || page != 4 {
		t.Fatalf("evicted page %d, %v", page, ok)
	}
	if freed := ix.Clear(nil); !slices.Equal(freed, []Page{2, 1}) {
		t.Errorf("freed %v", freed)
	}
	check(t, ix)
	if ix.Has(3) || ix.Drop(3) {
		t.Error("page 3 is still stored")
	}
	// The pages of these prompts were stored, and some were evicted before Clear.
	for _, prompt := range []string{"aabb.", "ee."} {
		if _, m := ix.Lookup(ix.Root(nil), tokens(prompt), 1, nil); m.Stop != StopUnknown {
			t.Errorf("%s: %v after Clear", prompt, m)
		}
	}
	add(t, ix, "", "aabb", 2, 1)
}

// weak hashes only the last token, so that pages with the same last token collide under any parent.
func weak(b []byte) (h [32]byte) {
	h[0] = b[len(b)-4] // low byte of the last token, or of the end of the salt
	return h
}

func TestACollisionLosesAHitAndNeverServesAnotherPage(t *testing.T) {
	ix := newIndex(t, Config{Pages: 8, PageTokens: 2})
	ix.hash.sum = weak
	root := ix.Root([]byte("0123"))
	if o, _ := ix.Add(root, None, 1, []int32{5, 9}); o != Added {
		t.Fatal(o)
	}
	for _, c := range []struct {
		name   string
		parent Page
		tokens []int32
		stop   Stop
	}{
		{"other tokens with an equal hash", None, []int32{6, 9}, StopCollision},
		{"equal tokens after another page", 1, []int32{5, 9}, StopCollision},
		{"the hash of the root", None, []int32{5, int32(root[0])}, StopCollision},
	} {
		if o, _ := ix.Add(root, c.parent, 2, c.tokens); o != Refused {
			t.Errorf("%s: Add returned outcome %d", c.name, o)
		}
		prompt := append(slices.Clone(c.tokens), 0)
		if c.parent != None {
			prompt = append([]int32{5, 9}, prompt...)
		}
		pages, m := ix.Lookup(root, prompt, 1, nil)
		if len(pages) != (len(prompt)-3)/2 || m.Stop != c.stop || m.At != m.Tokens {
			t.Errorf("%s: pages %v, %v", c.name, pages, m)
		}
		check(t, ix)
	}
	// A root whose hash equals that of a stored page finds no page and stores none.
	other := Hash{9}
	if o, _ := ix.Add(other, None, 2, []int32{1, 1}); o != Refused {
		t.Errorf("Add returned outcome %d under a root whose hash is that of a page", o)
	}
	if pages, m := ix.Lookup(other, []int32{5, 9, 0}, 1, nil); pages != nil || m.Stop != StopCollision {
		t.Errorf("pages %v, match %v under a root whose hash is that of a page", pages, m)
	}
	if o, _ := ix.Add(root, 1, 3, []int32{4, 8}); o != Added {
		t.Fatal(o)
	}
	if pages, m := ix.Lookup(other, []int32{4, 8, 0}, 1, nil); pages != nil || m.Stop != StopCollision {
		t.Errorf("the page after that page: pages %v, match %v", pages, m)
	}
}

func TestTheMemoryOfEvictedPagesIsBounded(t *testing.T) {
	ix := newIndex(t, Config{Pages: 2, PageTokens: 1})
	evict := func(token int32) {
		if o, _ := ix.Add(ix.Root(nil), None, 0, []int32{token}); o != Added {
			t.Fatal(o)
		}
		ix.Drop(0)
		ix.Evict()
		check(t, ix)
	}
	why := func(token int32) Stop {
		_, m := ix.Lookup(ix.Root(nil), []int32{token, 0}, 1, nil)
		return m.Stop
	}
	evict(1)
	evict(2)
	evict(2) // the hash of this page is already remembered
	if why(1) != StopEvicted || why(2) != StopEvicted {
		t.Errorf("reasons: prompt 1 %v, prompt 2 %v", why(1), why(2))
	}
	evict(3)
	if why(1) != StopUnknown || why(2) != StopEvicted || why(3) != StopEvicted {
		t.Errorf("reasons: prompt 1 %v, prompt 2 %v, prompt 3 %v", why(1), why(2), why(3))
	}
}

// journal records events as text.
type journal struct{ lines []string }

func (j *journal) Stored(s Stored) {
	first := "behind"
	if s.Parent == s.Root {
		first = "first"
	}
	j.lines = append(j.lines, fmt.Sprintf("stored %.4v %s %.4v %v", s.Hash, first, s.Parent, s.Tokens))
}
func (j *journal) Removed(h Hash) { j.lines = append(j.lines, fmt.Sprintf("removed %.4v", h)) }
func (j *journal) Cleared()       { j.lines = append(j.lines, "cleared") }

func TestEventsTellWhatIsReusable(t *testing.T) {
	var j journal
	ix := newIndex(t, Config{Pages: 8, PageTokens: 2, Listener: &j})
	root := ix.Root(nil)
	aa := ix.hash.page(root, tokens("aa"))
	bb := ix.hash.page(aa, tokens("bb"))
	add(t, ix, "", "aabb", 1, 2)
	add(t, ix, "", "aa", 3) // a duplicate page gives no event
	drop(ix, 3)
	drop(ix, 1, 2) // idle pages stay reusable, so there is no event
	ix.Evict()
	ix.Clear(nil)
	want := []string{
		fmt.Sprintf("stored %.4v first %.4v [97 97]", aa, root),
		fmt.Sprintf("stored %.4v behind %.4v [98 98]", bb, aa),
		fmt.Sprintf("removed %.4v", bb),
		"cleared",
	}
	if d := cmp.Diff(want, j.lines); d != "" {
		t.Error(d)
	}
}
