package kv

import (
	"fmt"

	"sparrow/internal/kv/prefix"
)

// Check examines the pool, its sequences and its prefix index, and returns the first violated invariant. Its time is
// proportional to the size of the pool. It is for diagnosis and tests, and may be called between any two calls.
func (p *Pool) Check() error {
	if err := p.index.Check(); err != nil {
		return fmt.Errorf("kv: %w", err)
	}
	c := checker{Pool: p, holders: make([]int32, p.cfg.Pages), place: make([]int, p.cfg.Pages),
		free: make([]bool, p.cfg.Pages)}
	for _, walk := range []func() error{c.sequences, c.freeList, c.states, c.windowStates} {
		if err := walk(); err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
	return nil
}

// checker holds the buffers of a call of Check.
type checker struct {
	*Pool
	holders []int32 // [Pages] number of page tables that contain the page
	place   []int   // [Pages] index of the page in these tables, if holders > 0
	free    []bool  // [Pages] whether the page is in the free list
}

// sequences checks that every open sequence has the pages for its tokens, and that closed sequences have none.
func (c *checker) sequences() error {
	for i, q := range c.open {
		if q.slot != i {
			return fmt.Errorf("sequence %d is stored with index %d", i, q.slot)
		}
		if err := c.sequence(q); err != nil {
			return fmt.Errorf("sequence %d: %w", i, err)
		}
	}
	for i, q := range c.closed {
		if len(q.table) != 0 || len(q.tail) != 0 || q.length != 0 {
			return fmt.Errorf("closed sequence %d still has %d pages and %d tokens", i, len(q.table), q.length)
		}
	}
	return nil
}

func (c *checker) sequence(q *sequence) error {
	size := c.cfg.PageTokens
	if q.length < 0 || q.length > len(q.table)*size || len(q.tail) != q.length%size || q.reused > q.length {
		return fmt.Errorf("the counts are inconsistent: %d tokens, %d reused, %d after the last full page, in %d pages",
			q.length, q.reused,
			len(q.tail), len(q.table))
	}
	for i, page := range q.table {
		if int(page) < c.cfg.FirstPage || int(page) >= c.cfg.Pages {
			return fmt.Errorf("entry %[2]d of the page table is page %[1]d, want %[3]d to %[4]d", page, i,
				c.cfg.FirstPage, c.cfg.Pages-1)
		}
		if c.holders[page] > 0 && c.place[page] != i {
			return fmt.Errorf("page %d is at index %d of one page table and at index %d of another", page,
				c.place[page], i)
		}
		c.holders[page]++
		c.place[page] = i
		if err := c.entry(q, i); err != nil {
			return err
		}
	}
	return nil
}

// entry checks page i of a sequence. A full page of a publishing sequence must be in the prefix index, after the page
// before it; a page that can still be written must not be shared.
func (c *checker) entry(q *sequence, i int) error {
	page, parent := Page(q.table[i]), prefix.None
	if i > 0 {
		parent = Page(q.table[i-1])
	}
	stored := c.index.Has(page)
	switch full := (i+1)*c.cfg.PageTokens <= q.length; {
	case !full && (stored || c.refs[page] != 1):
		return fmt.Errorf("page %d at index %d is not full, but it is stored or has %d references", page, i,
			c.refs[page])
	case full && q.publish && !stored:
		return fmt.Errorf("page %d at index %d is full but not stored", page, i)
	case stored && !c.index.Follows(q.root, parent, page):
		return fmt.Errorf("page %d at index %d is stored, but not as a successor of page %d", page, i, parent)
	}
	return nil
}

// freeList checks that the free list contains no page twice.
func (c *checker) freeList() error {
	for _, page := range c.Pool.free {
		if int(page) < c.cfg.FirstPage || int(page) >= c.cfg.Pages || c.free[page] {
			return fmt.Errorf("page %d is free twice or outside the pool", page)
		}
		c.free[page] = true
	}
	return nil
}

// states checks that every page is either free, in use or cached, and that its reference count equals the number of
// page tables that contain it.
func (c *checker) states() error {
	for i := range c.refs {
		page, states := Page(i), 0
		for _, is := range []bool{c.free[i], c.holders[i] > 0, c.index.IsIdle(page)} {
			if is {
				states++
			}
		}
		want := 1
		if i < c.cfg.FirstPage {
			want = 0
		}
		if states != want {
			return fmt.Errorf("page %d must be in one state, but: free %t, in %d page tables, cached %t", page,
				c.free[i], c.holders[i],
				c.index.IsIdle(page))
		}
		if c.refs[i] != c.holders[i] {
			return fmt.Errorf("page %d has %d references and is in %d page tables", page, c.refs[i], c.holders[i])
		}
		if c.holders[i] == 0 && c.index.Has(page) != c.index.IsIdle(page) {
			return fmt.Errorf("page %d is stored, but neither in use nor cached", page)
		}
	}
	return nil
}

// windowStates checks three invariants: every window page is either free, idle or in use; a page inside a sequence's
// window has a window page, pinned once per such sequence; idle window pages belong to cached pages.
func (c *checker) windowStates() error {
	w := c.win
	if w == nil {
		return nil
	}
	pins := make([]int32, c.cfg.Pages)
	for i, q := range c.open {
		if first := c.cfg.Window.first(q.length, c.cfg.PageTokens); q.reached != first ||
			len(q.windows) != len(q.table) {
			return fmt.Errorf("the window of sequence %d (%d tokens) begins at page %d, and it has %d window pages "+
				"for %d pages; the window must begin at page %d", i, q.length, q.reached, len(q.windows), len(q.table),
				first)
		}
		for at, page := range q.table {
			want := none
			if at >= q.reached {
				want = w.of[page]
				pins[page]++
			}
			if q.windows[at] != want || at >= q.reached && want == none {
				return fmt.Errorf("sequence %d has window page %d at index %d, but page %d has window page %d", i,
					q.windows[at], at, page,
					w.of[page])
			}
		}
	}
	states := make([]int, c.cfg.Window.First+c.cfg.Window.Pages)
	for _, x := range w.free {
		states[x]++
	}
	idle := 0
	for x := w.oldest; x != none; x = w.newer[x] {
		states[x]++
		idle++
		if page := w.owner[x]; w.of[page] != x || w.pins[page] != 0 || !c.index.Has(page) {
			return fmt.Errorf("idle window page %d belongs to page %d, which has window page %d, %d pins and stored %t",
				x, page,
				w.of[page], w.pins[page], c.index.Has(page))
		}
	}
	for page, x := range w.of {
		if w.pins[page] != pins[page] || pins[page] > 0 && (x == none || w.owner[x] != Page(page)) {
			return fmt.Errorf("page %d has window page %d and %d pins, but %d windows include it", page, x,
				w.pins[page],
				pins[page])
		}
		if pins[page] > 0 {
			states[x]++
		}
	}
	for x, n := range states {
		if want := min(max(x-c.cfg.Window.First+1, 0), 1); n != want {
			return fmt.Errorf("window page %d is in %d states, want %d", x, n, want)
		}
	}
	if idle != w.idle {
		return fmt.Errorf("there are %d idle window pages, the counter is %d", idle, w.idle)
	}
	return nil
}
