package kv

import (
	"fmt"
	"slices"

	"sparrow/internal/kv/prefix"
)

// Pool allocates pages. Only one goroutine at a time may use it.
type Pool struct {
	cfg   Config
	index *prefix.Index
	refs  []int32  // [Pages] number of page tables that contain the page
	free  []Page   // free pages; the last element is allocated next
	win   *windows // nil if the pool has no window pages

	open   []*sequence
	closed []*sequence // closed sequences, whose memory the next Open uses
	peeked []int32     // buffer for the pages that Peek finds
	shared prefix.Hash // root hash of prompts without a salt
	salts  saltMemory
	count  counters
	told   teller // listener of the prefix index
}

// teller forwards events of the prefix index, and adds the salt, which the index does not have.
type teller struct {
	prefix.Listener
	salt []byte
}

// Stored forwards the event for a page that became reusable.
func (t *teller) Stored(s prefix.Stored) {
	s.Salt = t.salt
	t.Listener.Stored(s)
}

// New returns a pool in which all pages are free.
func New(c Config) (*Pool, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	p := &Pool{cfg: c, refs: make([]int32, c.Pages), free: make([]Page, 0, c.Pages-c.FirstPage)}
	p.win = newWindows(c, p.leaving)
	identity := p.Tag().String()
	if c.Identity != "" {
		identity += " " + c.Identity
	}
	indexed := prefix.Config{Pages: c.Pages, PageTokens: c.PageTokens, Identity: identity}
	if c.Listener != nil {
		p.told.Listener, indexed.Listener = c.Listener, &p.told
	}
	index, err := prefix.New(indexed)
	if err != nil {
		return nil, err
	}
	p.index, p.shared = index, index.Root(nil)
	if l, ok := c.Listener.(interface{ Root(prefix.Hash) }); ok {
		l.Root(p.shared)
	}
	for page := c.Pages - 1; page >= c.FirstPage; page-- {
		p.free = append(p.free, Page(page))
	}
	return p, nil
}

// Tag returns the tag for pages that are exported from this pool.
func (p *Pool) Tag() Tag {
	return Tag{Main: p.cfg.Main, Index: p.cfg.Index, PageTokens: p.cfg.PageTokens}
}

// OpenOptions states how a prompt may use the cache.
type OpenOptions struct {
	// Salt separates tenants: only sequences with the same salt share pages, and reasons of lookups do not depend on
	// pages with other salts. An empty salt is also a salt.
	Salt []byte
	// Compute is the number of last tokens that must be computed even if they are stored, for example to get their
	// logits. 0 means 1, because the row of the last token is needed for sampling.
	Compute int
}

// Open starts a sequence with the cached pages of the longest prefix of its tokens. The first Match.Tokens tokens need
// not be computed; Len begins with this number.
func (p *Pool) Open(tokens []int32, o OpenOptions) (Sequence, Match, error) {
	root, err := p.root(o)
	if err != nil {
		return Sequence{}, Match{}, err
	}
	q := p.newSequence()
	q.root, q.salt, q.publish = root, append(q.salt[:0], o.Salt...), p.cfg.Reuse
	if p.cfg.Copier != nil {
		p.salts.note(root, o.Salt)
	}
	m := p.lookup(root, tokens, o, &q.table)
	for _, page := range q.table {
		p.hold(Page(page))
	}
	q.length, q.reused = m.Tokens, m.Tokens
	q.adopt()
	p.count.lookup(m)
	return Sequence{q: q, generation: q.generation}, m, nil
}

// Peek returns the match that Open would return, without changing the pool.
func (p *Pool) Peek(tokens []int32, o OpenOptions) (Match, error) {
	root, err := p.root(o)
	if err != nil {
		return Match{}, err
	}
	p.peeked = p.peeked[:0]
	return p.lookup(root, tokens, o, &p.peeked), nil
}

// Chain returns the hashes of the full pages of a prompt, except pages with tokens that must be computed. They are the
// keys of pages outside the pool.
func (p *Pool) Chain(tokens []int32, o OpenOptions) ([]prefix.Hash, error) {
	root, err := p.root(o)
	if err != nil || !p.cfg.Reuse {
		return nil, err
	}
	limit := max(len(tokens)-max(o.Compute, 1), 0) / p.cfg.PageTokens
	return p.index.Chain(root, tokens, limit, make([]prefix.Hash, 0, limit)), nil
}

// Fit returns the number of pages that a sequence of these tokens and n more would allocate, beyond those found in the
// cache, and the number of pages that are available for it. It does not change the pool or its counters.
func (p *Pool) Fit(tokens []int32, n int, o OpenOptions) (need, available int, err error) {
	if n < 0 {
		return 0, 0, fmt.Errorf("%w: Fit was called for %d more tokens, want 0 or more", ErrArgument, n)
	}
	m, err := p.Peek(tokens, o)
	if err != nil {
		return 0, 0, err
	}
	available = p.Available()
	for _, page := range p.peeked {
		if p.index.IsIdle(Page(page)) {
			available-- // an idle page that the sequence would use cannot be evicted for it
		}
	}
	return (len(tokens)+n+p.cfg.PageTokens-1)/p.cfg.PageTokens - m.Pages, available, nil
}

// Available returns the number of pages that Reserve can allocate: free pages and cached pages.
func (p *Pool) Available() int { return len(p.free) + p.index.Idle() }

// Reset removes all pages from the prefix cache. Pages in use stay in their sequences, but are not reused later.
func (p *Pool) Reset() {
	p.free = p.index.Clear(p.free)
	for _, q := range p.open {
		q.publish = false
	}
	for page := range p.refs {
		// Pages can no longer be found, so window pages outside the windows of sequences are freed.
		if p.win != nil && p.win.pins[page] == 0 {
			p.win.drop(Page(page))
		}
	}
}

func (p *Pool) root(o OpenOptions) (prefix.Hash, error) {
	if o.Compute < 0 {
		return prefix.Hash{}, fmt.Errorf("%w: Compute is %d tokens, want 0 or more", ErrArgument,
			o.Compute)
	}
	if len(o.Salt) == 0 {
		return p.shared, nil
	}
	return p.index.Root(o.Salt), nil
}

func (p *Pool) lookup(root prefix.Hash, tokens []int32, o OpenOptions, table *[]int32) (m Match) {
	if !p.cfg.Reuse {
		return Match{Prompt: len(tokens), Stop: prefix.StopOff}
	}
	*table, m = p.index.Lookup(root, tokens, max(o.Compute, 1), *table)
	if p.win == nil {
		return m
	}
	// The next token attends to window rows, so the match is shortened to the longest prefix whose window rows are
	// stored.
	for !p.win.reaches(*table, &p.cfg, m.Tokens) {
		m.Pages--
		m.Tokens -= p.cfg.PageTokens
		m.Stop, m.At = prefix.StopWindow, m.Tokens
	}
	*table = (*table)[:m.Pages]
	return m
}

// ensure returns a *FullError unless n pages, with their window pages if there are any, can be allocated.
func (p *Pool) ensure(n int) error {
	if n > p.Available() {
		return &FullError{Needed: n, Free: len(p.free), Evictable: p.index.Idle()}
	}
	return p.win.ensure(n)
}

// take allocates a page; the caller has checked with ensure that one is available.
func (p *Pool) take() Page {
	if len(p.free) == 0 {
		page, ok := p.index.Oldest()
		if !ok {
			panic("kv: a page was allocated without ensure")
		}
		if p.win == nil {
			p.leaving(page, none)
		} else if x := p.win.of[page]; x != none {
			p.leaving(page, x)
		}
		p.index.Evict()
		p.count.evictions++
		p.win.drop(page)
		p.free = append(p.free, page)
	}
	page := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.refs[page] = 1
	return page
}

// saltMemory maps recent root hashes to salts, for the copier.
type saltMemory struct {
	byRoot map[prefix.Hash][]byte
	bytes  int
}

// maxSaltBytes is the maximum memory of a saltMemory in bytes, saltBytes the overhead per salt.
const (
	maxSaltBytes = 1 << 20
	saltBytes    = 160
)

// note stores the salt of a root.
func (s *saltMemory) note(root prefix.Hash, salt []byte) {
	if len(salt) == 0 || s.byRoot[root] != nil {
		return
	}
	n := len(salt) + saltBytes
	if s.byRoot == nil || s.bytes+n > maxSaltBytes {
		*s = saltMemory{byRoot: map[prefix.Hash][]byte{}}
	}
	s.byRoot[root] = slices.Clone(salt)
	s.bytes += n
}

// leaving calls the copier before a page or its window page is evicted.
func (p *Pool) leaving(page Page, window int32) {
	if p.cfg.Copier == nil {
		return
	}
	if entry, ok := p.index.Entry(page); ok {
		entry.Salt = p.salts.byRoot[entry.Root]
		p.cfg.Copier.Leaving(Kept{Stored: entry, Page: page, Window: window})
	}
}

// hold adds a reference to a full page.
func (p *Pool) hold(page Page) {
	p.index.Hold(page)
	p.refs[page]++
}

// release drops a reference. After the last reference, the page is cached or free.
func (p *Pool) release(page Page) {
	p.refs[page]--
	if p.refs[page] == 0 && !p.index.Drop(page) {
		p.win.drop(page)
		p.free = append(p.free, page)
	}
}
