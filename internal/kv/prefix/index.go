package prefix

import (
	"crypto/sha256"
	"fmt"
)

// Config holds the parameters of an Index.
type Config struct {
	// Pages is the number of pages of the cache; page numbers are below it.
	Pages int
	// PageTokens is the number of tokens in a page.
	PageTokens int
	// Identity identifies what cached rows depend on in addition to tokens, such as the byte layout. It is part of
	// every root.
	Identity string
	// Listener, if not nil, receives every change of the set of reusable pages.
	Listener Listener
}

// Index finds pages by their tokens.
type Index struct {
	cfg    Config
	hash   hasher
	nodes  []node // [2*Pages] entries and roots: every root has an entry, every entry a page
	unused int32  // first unused node; next links unused nodes
	byHash table  // [2*Pages] nodes by hash
	pages  []slot // [Pages] entry of each page
	tokens []int32
	idle   list
	ghosts ghosts
}

// node is an entry, or a root: the parent of the first pages with one layout and salt, which has no page. Its hash is
// its key in Index.byHash.
type node struct {
	page          Page  // page that lookups return; None for a root
	parent, child int32 // parent, and the child that was stored last
	prev, next    int32 // siblings, newest first
	older, newer  int32 // neighbours in the list of idle entries
	idle          bool
}

// slot is the place of a page in the index.
type slot struct {
	node       int32 // entry of the page, or none
	prev, next Page  // other pages of the entry; the page that lookups return is the first
}

// New returns an empty index.
func New(c Config) (*Index, error) {
	if c.Pages < 1 || c.PageTokens < 1 {
		return nil, fmt.Errorf("%w: the index has %d pages of %d tokens, want at least 1 of each", ErrConfig, c.Pages,
			c.PageTokens)
	}
	ix := &Index{
		cfg:    c,
		hash:   hasher{sum: sha256.Sum256},
		nodes:  make([]node, 2*c.Pages),
		byHash: newTable(2 * c.Pages),
		pages:  make([]slot, c.Pages),
		tokens: make([]int32, c.Pages*c.PageTokens),
		ghosts: newGhosts(c.Pages),
	}
	ix.empty()
	return ix, nil
}

// Outcome is the result of Add for a page.
type Outcome uint8

const (
	// Refused: the page was not stored, and pages after it cannot be stored. The reason is that its parent is not
	// stored, that the page is already stored or not full, or that another page has the same hash.
	Refused Outcome = iota
	// Added: lookups now return the page.
	Added
	// Duplicate: another page with the same tokens is stored. Lookups return the other page until it is no longer in
	// use; if it is idle, they return the new page at once.
	Duplicate
)

// Root returns the hash that precedes the first page of prompts with a salt. Prompts with different salts share no
// pages. An empty salt is also a salt.
func (ix *Index) Root(salt []byte) Hash { return ix.hash.root(ix.cfg.Identity, salt) }

// Add makes a page in use reusable. tokens are its tokens, which are copied. parent is the page before it, or None for
// the first page of a prompt. The rows of the page must not change until the index releases it. If an idle page has the
// same tokens, it is returned as freed; otherwise freed is None.
func (ix *Index) Add(root Hash, parent, page Page, tokens []int32) (o Outcome, freed Page) {
	if page < 0 || int(page) >= len(ix.pages) || ix.pages[page].node != none || len(tokens) != ix.cfg.PageTokens {
		return Refused, None
	}
	up, ok := ix.parent(&root, parent)
	if !ok {
		return Refused, None
	}
	before := root
	if up != none {
		before = ix.byHash.keys[up]
	}
	h := ix.hash.page(before, tokens)
	if h == root {
		return Refused, None
	}
	if n := ix.byHash.find(&h); n != none {
		if !ix.same(n, up, tokens) {
			return Refused, None
		}
		copy(ix.tokensOf(page), tokens)
		return Duplicate, ix.join(n, page)
	}
	if up == none {
		up = ix.newNode(&root, none)
	}
	n := ix.newNode(&h, up)
	copy(ix.tokensOf(page), tokens)
	ix.nodes[n].page = page
	ix.pages[page].node = n
	if l := ix.cfg.Listener; l != nil {
		l.Stored(Stored{Hash: h, Parent: before, Root: root, Tokens: ix.tokensOf(page)})
	}
	return Added, None
}

// parent returns the node of the page parent or, if it is None, of root. The result is none if the root has no stored
// pages. ok is false if parent is not stored.
func (ix *Index) parent(root *Hash, parent Page) (up int32, ok bool) {
	if parent == None {
		up = ix.byHash.find(root)
		return up, up == none || ix.nodes[up].page == None
	}
	if parent < 0 || int(parent) >= len(ix.pages) {
		return none, false
	}
	up = ix.pages[parent].node
	return up, up != none
}

// Hold marks an idle page as used. It has no effect on other pages.
func (ix *Index) Hold(page Page) {
	if n := ix.pages[page].node; n != none && ix.nodes[n].idle {
		ix.idle.remove(ix.nodes, n)
	}
}

// Drop marks a page as not used by any sequence. If it returns false, the index does not keep the page, which is then
// free. The last page of a prompt must be dropped first.
func (ix *Index) Drop(page Page) (kept bool) {
	n := ix.pages[page].node
	if n == none {
		return false
	}
	if ix.nodes[n].page == page && ix.pages[page].next == None {
		ix.idle.add(ix.nodes, n)
		return true
	}
	ix.leave(n, page)
	return false
}

// Oldest returns the page that Evict would evict; ok is false if there is none.
func (ix *Index) Oldest() (Page, bool) {
	if ix.idle.oldest == none {
		return None, false
	}
	return ix.nodes[ix.idle.oldest].page, true
}

// Entry returns the description of a stored page. Its tokens are valid until the index releases the page.
func (ix *Index) Entry(page Page) (Stored, bool) {
	n := ix.pages[page].node
	if n == none {
		return Stored{}, false
	}
	up := ix.nodes[n].parent
	s := Stored{Hash: ix.byHash.keys[n], Parent: ix.byHash.keys[up], Tokens: ix.tokensOf(page)}
	for ix.nodes[up].parent != none {
		up = ix.nodes[up].parent
	}
	s.Root = ix.byHash.keys[up]
	return s, true
}

// Evict removes the page that has been idle longest. It returns false if no page is idle.
func (ix *Index) Evict() (Page, bool) {
	n := ix.idle.oldest
	if n == none {
		return None, false
	}
	page := ix.nodes[n].page
	h := ix.byHash.keys[n]
	ix.idle.remove(ix.nodes, n)
	ix.leave(n, page)
	ix.freeNode(n)
	ix.ghosts.remember(&h)
	if l := ix.cfg.Listener; l != nil {
		l.Removed(h)
	}
	return page, true
}

// Clear removes all entries. It appends the idle pages, which are now free, to freed. Pages in use cannot be found any
// more.
func (ix *Index) Clear(freed []Page) []Page {
	for n := ix.idle.oldest; n != none; n = ix.nodes[n].newer {
		freed = append(freed, ix.nodes[n].page)
	}
	ix.empty()
	if l := ix.cfg.Listener; l != nil {
		l.Cleared()
	}
	return freed
}

// Idle returns the number of idle pages, which Evict could evict.
func (ix *Index) Idle() int { return ix.idle.count }

// Has reports whether a page is stored.
func (ix *Index) Has(page Page) bool { return ix.pages[page].node != none }

// IsIdle reports whether a page is stored and no sequence uses it.
func (ix *Index) IsIdle(page Page) bool {
	n := ix.pages[page].node
	return n != none && ix.nodes[n].idle
}

// Follows reports whether a stored page follows the page parent or, if parent is None, the root.
func (ix *Index) Follows(root Hash, parent, page Page) bool {
	n := ix.pages[page].node
	up, ok := ix.parent(&root, parent)
	return n != none && ok && up != none && ix.nodes[n].parent == up
}

// same reports whether entry n has the given tokens and the parent node up.
func (ix *Index) same(n, up int32, tokens []int32) bool {
	e := &ix.nodes[n]
	return e.page != None && e.parent == up && equal(ix.tokensOf(e.page), tokens)
}

func (ix *Index) tokensOf(page Page) []int32 {
	at := int(page) * ix.cfg.PageTokens
	return ix.tokens[at : at+ix.cfg.PageTokens]
}

func (ix *Index) empty() {
	for i := range ix.nodes {
		ix.nodes[i] = node{next: int32(i) + 1}
	}
	ix.nodes[len(ix.nodes)-1].next = none
	ix.unused = 0
	for i := range ix.pages {
		ix.pages[i] = slot{node: none, prev: None, next: None}
	}
	ix.byHash.clear()
	ix.ghosts.forget()
	ix.idle = newList()
}
