package kv

import (
	"math"

	"sparrow/internal/kv/prefix"
)

// needs returns the number of pages to add to the table for n more tokens. The sum is unsigned, because n may be the
// largest int.
func (q *sequence) needs(n int) int {
	size := uint(q.pool.cfg.PageTokens)
	pages := min((uint(q.length)+uint(n)+size-1)/size, math.MaxInt)
	return max(int(pages)-len(q.table), 0)
}

// extend allocates a page and adds it to the table; the caller has checked with ensure that one is available.
func (q *sequence) extend() Page {
	page := q.pool.take()
	q.table = append(q.table, int32(page))
	if w := q.pool.win; w != nil {
		q.windows = append(q.windows, w.take(page))
	}
	return page
}

// store adds a page, which has just become full, to the prefix index.
func (q *sequence) store(tokens []int32) {
	if !q.publish {
		return
	}
	i := q.length/len(tokens) - 1
	parent := prefix.None
	if i > 0 {
		parent = Page(q.table[i-1])
	}
	q.pool.told.salt = q.salt
	outcome, freed := q.pool.index.Add(q.root, parent, Page(q.table[i]), tokens)
	q.publish = outcome != prefix.Refused
	if k := q.pool.cfg.Copier; k != nil && outcome == prefix.Added {
		entry, _ := q.pool.index.Entry(Page(q.table[i]))
		entry.Salt = q.salt
		window := none
		if q.pool.win != nil {
			window = q.windows[i]
		}
		k.Stored(Kept{Stored: entry, Page: Page(q.table[i]), Window: window})
	}
	if freed != prefix.None {
		q.pool.win.drop(freed)
		q.pool.free = append(q.pool.free, freed)
	}
}

// shrink releases all pages after the first n, the last page first, as the index requires.
func (q *sequence) shrink(n int) {
	w := q.pool.win
	for i := len(q.table) - 1; i >= n; i-- {
		page := Page(q.table[i])
		if w != nil && i >= q.reached {
			w.unpin(page, q.pool.index.Has(page))
		}
		q.pool.release(page)
	}
	q.table = q.table[:min(n, len(q.table))]
	q.windows = q.windows[:min(n, len(q.windows))]
	q.reached = min(q.reached, len(q.table))
}

// newSequence opens an empty sequence.
func (p *Pool) newSequence() *sequence {
	var q *sequence
	if n := len(p.closed); n > 0 {
		q, p.closed = p.closed[n-1], p.closed[:n-1]
	} else {
		q = &sequence{pool: p, tail: make([]int32, 0, p.cfg.PageTokens)}
	}
	q.slot = len(p.open)
	p.open = append(p.open, q)
	return q
}

// retire adds a closed sequence without pages to closed.
func (p *Pool) retire(q *sequence) {
	last := len(p.open) - 1
	p.open[q.slot] = p.open[last]
	p.open[q.slot].slot = q.slot
	p.open[last] = nil
	p.open = p.open[:last]
	*q = sequence{pool: p, generation: q.generation + 1, table: q.table[:0], windows: q.windows[:0], tail: q.tail[:0],
		salt: q.salt[:0]}
	p.closed = append(p.closed, q)
}
