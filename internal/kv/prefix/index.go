package prefix

import (
	"crypto/sha256"
	"fmt"
)

// Config sizes an Index.
type Config struct {
	// Pages is the number of pages of the cache; the numbers of stored pages are below this number.
	Pages int
	// PageTokens is the number of tokens in a page.
	PageTokens int
	// Identity names what cached rows depend on in addition to tokens, such as the byte layouts. It is hashed into
	// every root.
	Identity string
	// Listener, if set, is called at every change of the set of reusable pages.
	Listener Listener
}

// Index maps content to pages.
type Index struct {
	cfg    Config
	hash   hasher
	nodes  []node // [2*Pages] entries and roots: each root has an entry, each entry a page
	unused int32  // first unused node; unused nodes are linked by next
	byHash table  // [2*Pages] nodes by hash
	pages  []slot // [Pages]
	tokens []int32
	idle   list
	ghosts ghosts
}

// node is an entry, or a root: the common parent, without a page, of the first pages under one layout and salt. Its
// hash is its key in Index.byHash.
type node struct {
	page          Page  // page that lookups return; None for a root
	parent, child int32 // parent node, and the child that was stored last
	prev, next    int32 // siblings in the list of children, newest first
	older, newer  int32 // neighbours in the list of idle entries
	idle          bool
}

// slot is the entry of a page.
type slot struct {
	node       int32 // node of the page's entry, or none
	prev, next Page  // neighbours among the pages of one entry; the page that lookups return is first
}

// New makes an empty index.
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
	// Refused: the page was not stored, and no page after it can be stored. Its parent is not stored, it is already
	// stored, it is not a full page of this index, or another page has an equal hash.
	Refused Outcome = iota
	// Added: lookups now return the page.
	Added
	// Duplicate: the content is stored already. Lookups return this page instead of the stored page when the stored
	// page is no longer in use, or at once if the stored page is idle.
	Duplicate
)

// Root returns the hash before the first page of a prompt under a salt. Prompts with different salts share no pages;
// the empty salt is also a salt.
func (ix *Index) Root(salt []byte) Hash { return ix.hash.root(ix.cfg.Identity, salt) }

// Add makes a page in use reusable. tokens are the tokens of the page and are copied. parent is the page before it, or
// None under root for the first page of a prompt. The page must keep its rows until the index releases it. If an idle
// page has equal content, the idle page is no longer needed and is returned as freed; otherwise freed is None.
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

// parent returns the parent node of a page that follows the page parent: the result is none for the first page under a
// root that has no stored pages.
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

// Hold marks a stored page that was idle as used. Pages that are not stored or not idle do not change.
func (ix *Index) Hold(page Page) {
	if n := ix.pages[page].node; n != none && ix.nodes[n].idle {
		ix.idle.remove(ix.nodes, n)
	}
}

// Drop reports that no sequence uses a page any more, and returns whether the index keeps it. A page that the index
// does not keep is free. The last page of a prompt must be dropped first.
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

// Oldest returns the page that Evict would evict.
func (ix *Index) Oldest() (Page, bool) {
	if ix.idle.oldest == none {
		return None, false
	}
	return ix.nodes[ix.idle.oldest].page, true
}

// Entry describes a stored page. Its tokens are valid until the index releases the page.
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

// Evict evicts the page that has been idle longest. It returns false if no page is idle.
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

// Clear removes all entries and appends the idle pages, which are free now, to freed. Pages in use become private.
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

// Has reports whether a page belongs to an entry.
func (ix *Index) Has(page Page) bool { return ix.pages[page].node != none }

// IsIdle reports whether a page is kept although no sequence uses it.
func (ix *Index) IsIdle(page Page) bool {
	n := ix.pages[page].node
	return n != none && ix.nodes[n].idle
}

// Follows reports whether the entry of a stored page is a child of the entry of parent, or of root if parent is None.
func (ix *Index) Follows(root Hash, parent, page Page) bool {
	n := ix.pages[page].node
	up, ok := ix.parent(&root, parent)
	return n != none && ok && up != none && ix.nodes[n].parent == up
}

// same reports whether entry n is the page of these tokens after node up.
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
