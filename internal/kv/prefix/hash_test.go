package prefix

import (
	"slices"
	"testing"
)

// The literals were computed without this code, with another implementation of SHA-256: sha256(parent || tokens as
// little-endian int32) under sha256(len||domain||len||identity||len||salt). The literals may change only if the number
// in domain changes.
func TestHashesAreTheSameInEveryProcess(t *testing.T) {
	ix := newIndex(t, Config{Pages: 1, PageTokens: 4, Identity: "bf16+idx/4"})
	root := ix.Root(nil)
	for _, c := range []struct {
		name string
		got  Hash
		want string
	}{
		{"root without salt", root, "0f1bc870d43050457560fb6fb2be90a1d5d16076fd6dfc9a25b774f5e6aef2ea"},
		{"root with a salt", ix.Root([]byte("acme")),
			"44953c4aef2c96c29ee66659ecb79650fbc0d455698ec0d9f25a8fa69e7f19c2"},
		{"page behind the root", ix.hash.page(root, []int32{1, 2, 3, -1}),
			"ef46156a96d14281a48a083b1929c26ce68e7e86b0db50aa62803bd03b831de5"},
	} {
		if c.got.String() != c.want {
			t.Errorf("%s: %v, want %s", c.name, c.got, c.want)
		}
	}
}

func TestIdentityAndSaltCannotRunIntoEachOther(t *testing.T) {
	a := newIndex(t, Config{Pages: 1, PageTokens: 1, Identity: "ab"})
	b := newIndex(t, Config{Pages: 1, PageTokens: 1, Identity: "a"})
	if a.Root([]byte("c")) == b.Root([]byte("bc")) {
		t.Error("identity ab with salt c has the root of identity a with salt bc")
	}
}

func newIndex(t testing.TB, c Config) *Index {
	t.Helper()
	ix, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return ix
}

// A chain has one hash for each full page of a prompt, up to a limit: the hashes under which Add stores these pages.
func TestAChainHasTheHashesOfStoredPages(t *testing.T) {
	ix := newIndex(t, Config{Pages: 8, PageTokens: 2})
	add(t, ix, "salt", "aabbcc", 4, 2, 7)
	root := ix.Root([]byte("salt"))
	var want []Hash
	before := root
	for i, page := range []Page{4, 2, 7} {
		e, ok := ix.Entry(page)
		if !ok || e.Root != root || e.Parent != before || e.Hash != PageHash(before, tokens("aabbcc"[2*i:2*i+2])) ||
			!slices.Equal(e.Tokens, tokens("aabbcc"[2*i:2*i+2])) {
			t.Errorf("page %d has the entry %+v, want root %v and parent %v", page, e, root, before)
		}
		before = e.Hash
		want = append(want, e.Hash)
	}
	if _, ok := ix.Entry(3); ok {
		t.Error("a page that is not stored has an entry")
	}
	for _, c := range []struct {
		prompt string
		limit  int
		want   int
	}{{"aabbcc", 9, 3}, {"aabbcc", 3, 3}, {"aabbcc", 2, 2}, {"aabbcc", 0, 0}, {"aabbc", 9, 2}, {"a", 9, 0},
		{"", 9, 0}} {
		given := []Hash{{1}}
		got := ix.Chain(root, tokens(c.prompt), c.limit, given)
		if !slices.Equal(got, append(given, want[:c.want]...)) {
			t.Errorf("%q, at most %d: %d hashes, want one in addition to %d", c.prompt, c.limit, len(got), c.want)
		}
	}
}
