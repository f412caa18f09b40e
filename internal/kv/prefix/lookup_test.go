package prefix

import (
	"slices"
	"testing"
)

// tokens returns one token for each letter of s.
func tokens(s string) []int32 {
	var ts []int32
	for _, r := range s {
		ts = append(ts, int32(r))
	}
	return ts
}

// add stores the pages of a prompt, page by page, in the given page numbers.
func add(t testing.TB, ix *Index, salt, prompt string, pages ...Page) {
	t.Helper()
	parent, size := None, ix.cfg.PageTokens
	for i, p := range pages {
		if o, _ := ix.Add(ix.Root([]byte(salt)), parent, p, tokens(prompt[i*size:(i+1)*size])); o == Refused {
			t.Fatalf("Add refused page %d of %q", i, prompt)
		}
		parent = p
	}
	check(t, ix)
}

// drop drops pages, the last page first, and returns the pages that the index does not keep.
func drop(ix *Index, pages ...Page) (freed []Page) {
	for _, p := range slices.Backward(pages) {
		if !ix.Drop(p) {
			freed = append(freed, p)
		}
	}
	return freed
}

func check(t testing.TB, ix *Index) {
	t.Helper()
	if err := ix.Check(); err != nil {
		t.Fatal(err)
	}
}

func TestLookupSaysHowFarItMatchedAndWhyItStopped(t *testing.T) {
	ix := newIndex(t, Config{Pages: 16, PageTokens: 4})
	add(t, ix, "", "the cat sat.", 1, 2, 3)
	add(t, ix, "", "the cow ran.", 1+8, 4, 5) // the first page duplicates page 1
	add(t, ix, "acme", "the dog", 6)
	add(t, ix, "", "gone", 7)
	drop(ix, 7)
	if p, ok := ix.Evict(); p != 7 || !ok {
		t.Fatalf("evicted page %d", p)
	}
	check(t, ix)

	for _, c := range []struct {
		name    string
		salt    string
		prompt  string
		compute int
		pages   []int32
		want    Match
	}{
		{"an empty prompt has no page", "", "", 1, nil, Match{0, 0, 0, StopWhole, 0}},
		{"one token has no full page", "", "t", 1, nil, Match{0, 0, 1, StopWhole, 0}},
		{"a page less one token has no full page", "", "the", 1, nil, Match{0, 0, 3, StopWhole, 0}},
		{"a prompt of one page must compute its last token", "", "the ", 1, nil, Match{0, 0, 4, StopCompute, 0}},
		{"a page and a token reuses the page", "", "the c", 1, []int32{1}, Match{4, 1, 5, StopWhole, 4}},
		{"a whole stored prompt stops before its last page", "", "the cat sat.", 1, []int32{1, 2},
			Match{8, 2, 12, StopCompute, 8}},
		{"a longer prompt reuses all of it", "", "the cat sat.x", 1, []int32{1, 2, 3}, Match{12, 3, 13, StopWhole, 12}},
		{"the other branch is found under the shared page", "", "the cow ran.x", 1, []int32{1, 4, 5},
			Match{12, 3, 13, StopWhole, 12}},
		{"a prompt that goes on past what is stored", "", "the cat sat. and more", 1, []int32{1, 2, 3},
			Match{12, 3, 21, StopUnknown, 12}},
		{"the first difference is named within the page", "", "the cab sat.", 1, []int32{1},
			Match{4, 1, 12, StopDifferent, 6}},
		{"the closest of several branches counts", "", "the coX ran.", 1, []int32{1},
			Match{4, 1, 12, StopDifferent, 6}},
		{"a difference in the first page", "", "thy cat sat.", 1, nil, Match{0, 0, 12, StopDifferent, 2}},
		{"a difference at the first token", "", "a cat sat.", 1, nil, Match{0, 0, 10, StopDifferent, 0}},
		{"an evicted page is remembered", "", "gone fishing", 1, nil, Match{0, 0, 12, StopEvicted, 0}},
		{"another salt sees nothing", "beta", "the cat sat.x", 1, nil, Match{0, 0, 13, StopUnknown, 0}},
		{"a salt sees its own", "acme", "the dog", 1, []int32{6}, Match{4, 1, 7, StopWhole, 4}},
		{"a salt does not see the shared space", "acme", "the cat sat.x", 1, []int32{6},
			Match{4, 1, 13, StopUnknown, 4}},
		{"five tokens to compute leave one page", "", "the cat sat.", 5, []int32{1}, Match{4, 1, 12, StopCompute, 4}},
		{"four tokens to compute leave two pages", "", "the cat sat.", 4, []int32{1, 2},
			Match{8, 2, 12, StopCompute, 8}},
		{"all tokens to compute", "", "the cat sat.", 12, nil, Match{0, 0, 12, StopCompute, 0}},
		{"more tokens to compute than there are", "", "the cat sat.", 99, nil, Match{0, 0, 12, StopCompute, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			pages, m := ix.Lookup(ix.Root([]byte(c.salt)), tokens(c.prompt), c.compute, nil)
			if !slices.Equal(pages, c.pages) || m != c.want {
				t.Errorf("pages %v, match %v\nwant  %v, %v", pages, m, c.pages, c.want)
			}
		})
	}
	check(t, ix)
}

func TestLookupNamesADifferenceAmongManyBranches(t *testing.T) {
	const pages = 3 * maxSiblings
	ix := newIndex(t, Config{Pages: pages, PageTokens: 2})
	for p := range pages {
		if o, _ := ix.Add(ix.Root(nil), None, Page(p), []int32{7, int32(p)}); o != Added {
			t.Fatal(p, o)
		}
	}
	for p := range pages {
		got, m := ix.Lookup(ix.Root(nil), []int32{7, int32(p), 0}, 1, nil)
		if !slices.Equal(got, []int32{int32(p)}) || m.Tokens != 2 {
			t.Fatalf("branch %d: pages %v, %v", p, got, m)
		}
	}
	if _, m := ix.Lookup(ix.Root(nil), []int32{7, -1, 0}, 1, nil); m.Stop != StopDifferent || m.At != 1 {
		t.Errorf("match %v, want the first difference at token 1", m)
	}
}

func TestMatchReadsAsASentence(t *testing.T) {
	m := Match{Tokens: 64, Pages: 1, Prompt: 300, Stop: StopDifferent, At: 70}
	if got, want := m.String(), "matched 64 of 300 tokens (1 pages), stopped at token 70: first difference"; got !=
		want {
		t.Errorf("%q, want %q", got, want)
	}
	for s := range Stops {
		if s.String() == "" {
			t.Errorf("reason %d has no name", s)
		}
	}
	if got := Stops.String(); got != "Stop(8)" {
		t.Errorf("%q for a reason that does not exist", got)
	}
}

func TestEqualComparesEveryTokenOfAPage(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 17, 64, 100, 256} {
		a := make([]int32, n)
		if !equal(a, slices.Clone(a)) || equal(a, make([]int32, n+1)) {
			t.Fatalf("%d tokens", n)
		}
		for i := range a {
			b := slices.Clone(a)
			b[i] = 1
			if equal(a, b) {
				t.Errorf("pages of %d tokens that differ at token %d are reported as equal", n, i)
			}
		}
	}
}

// A lookup computes a hash only where more than one page continues a prompt, or none that it has.
func TestLookupsOfOneBranchComputeNoHashes(t *testing.T) {
	ix := newIndex(t, Config{Pages: 8, PageTokens: 2})
	add(t, ix, "", "aabbcc", 1, 2, 3)
	root, sum, count := ix.Root(nil), ix.hash.sum, 0
	ix.hash.sum = func(b []byte) [32]byte { count++; return sum(b) }
	hashes := func(prompt string, pages, want int) {
		t.Helper()
		count = 0
		if _, m := ix.Lookup(root, tokens(prompt), 0, nil); m.Pages != pages || count != want {
			t.Errorf("%s: %d pages and %d hashes, want %d and %d", prompt, m.Pages, count, pages, want)
		}
	}
	hashes("aabbcc", 3, 0)
	hashes("aabbdd", 2, 1)
	ix.hash.sum = sum
	ix.Add(root, 2, 4, tokens("ee"))
	check(t, ix)
	ix.hash.sum = func(b []byte) [32]byte { count++; return sum(b) }
	hashes("aabbee", 3, 0)
	hashes("aabbcc", 3, 1)
}

// An index reports for each page whether it is stored, whether it is idle, and after which page it follows.
func TestWhatIsKnownOfAPage(t *testing.T) {
	ix := newIndex(t, Config{Pages: 8, PageTokens: 2})
	add(t, ix, "", "aabb", 1, 2)
	ix.Add(ix.Root(nil), 1, 3, tokens("cc"))
	add(t, ix, "x", "aa", 4)
	drop(ix, 3)
	drop(ix, 4)
	root, other := ix.Root(nil), ix.Root([]byte("x"))
	for page, want := range []struct{ stored, idle bool }{{}, {true, false}, {true, false}, {true, true}, {true, true},
		{}, {}, {}} {
		if p := Page(page); ix.Has(p) != want.stored || ix.IsIdle(p) != want.idle {
			t.Errorf("page %d: stored %t, idle %t", page, ix.Has(p), ix.IsIdle(p))
		}
	}
	if ix.Idle() != 2 {
		t.Errorf("%d pages are idle", ix.Idle())
	}
	for _, c := range []struct {
		root         Hash
		parent, page Page
		want         bool
	}{
		{root, None, 1, true}, {root, 1, 2, true}, {root, 1, 3, true}, {other, None, 4, true},
		{root, None, 2, false}, {root, 2, 3, false}, {root, 2, 1, false}, {other, None, 1, false},
		{root, None, 4, false}, {root, 1, 5, false}, {root, 5, 2, false}, {root, -2, 2, false}, {root, 8, 2, false},
		{Hash{1}, None, 1, false}, {root, None, 5, false},
	} {
		if got := ix.Follows(c.root, c.parent, c.page); got != c.want {
			t.Errorf("page %d follows page %d: %t", c.page, c.parent, got)
		}
	}
}
