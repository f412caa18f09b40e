package kv

import (
	"fmt"

	"sparrow/internal/kv/prefix"
)

// Sequence is a handle of an open sequence: its page table and how many of its tokens are in the cache. Copies of a
// handle mean the same sequence. After Close every copy is stale: calls on it fail with ErrClosed or return zero,
// also when the memory is in use again. The zero Sequence is closed.
type Sequence struct {
	q          *sequence
	generation uint64
}

// sequence is the data that a handle points to. The pool keeps it for the next Open, with the memory of its table.
type sequence struct {
	pool       *Pool
	generation uint64 // raised by Close, so that old handles are known
	slot       int    // place in pool.open

	table   []int32 // pages: full ones, the one being filled, reserved ones
	windows []int32 // with window pages: one for each page of table, none before reached
	reached int     // pages before it have fallen out of the window; what follows is pinned
	length  int     // tokens committed
	reused  int     // of them found by Open
	tail    []int32 // committed tokens of the page being filled
	root    prefix.Hash
	salt    []byte // of root
	publish bool   // pages up to here are known to the index, the next full one will be
}

// Reserve reserves space for the rows of n more tokens after Len. Space that was reserved before is included. Cached
// pages are dropped where needed; when there are too few it returns a *FullError and nothing has changed.
func (s Sequence) Reserve(n int) error {
	q, err := s.live()
	if err != nil {
		return err
	}
	if n < 0 {
		return fmt.Errorf("%w: Reserve was called for %d tokens, want 0 or more", ErrArgument, n)
	}
	need := q.needs(n)
	if err := q.pool.ensure(need); err != nil {
		return err
	}
	for range need {
		q.extend()
	}
	return nil
}

// Needs returns how many pages Reserve(n) would take.
func (s Sequence) Needs(n int) int {
	q, err := s.live()
	if err != nil || n < 0 {
		return 0
	}
	return q.needs(n)
}

// Commit reports that the rows of these tokens, the next after Len, are written and accepted. They must have been
// reserved. Pages that become full are reusable from now on.
func (s Sequence) Commit(tokens []int32) error {
	q, err := s.live()
	if err != nil {
		return err
	}
	size := q.pool.cfg.PageTokens
	if room := len(q.table)*size - q.length; len(tokens) > room {
		return fmt.Errorf("%w: %d tokens were to be committed after %d, and the reserved pages have room for %d",
			ErrNotReserved, len(tokens), q.length, room)
	}
	for len(tokens) > 0 {
		n := min(size-len(q.tail), len(tokens))
		page := tokens[:n]
		if n < size {
			q.tail = append(q.tail, page...)
			page = q.tail
		}
		tokens = tokens[n:]
		q.length += n
		if len(page) == size {
			q.store(page)
			q.tail = q.tail[:0]
		}
	}
	q.advance()
	return nil
}

// Truncate releases the pages of rows from the n-th token on: reserved ones that were not committed. Committed tokens
// can be removed only from the page being filled, since full pages are never written again, and only while the window
// rows of the shorter sequence are stored; otherwise it returns ErrArgument and nothing has changed.
func (s Sequence) Truncate(n int) error {
	q, err := s.live()
	if err != nil {
		return err
	}
	size := q.pool.cfg.PageTokens
	if full := q.length / size * size; n < full {
		return fmt.Errorf("%w: cannot truncate to %d tokens: the first %d are in full pages, which stay", ErrArgument,
			n, full)
	}
	if n < q.length {
		if err := q.retreat(n); err != nil {
			return err
		}
		q.tail = q.tail[:n%size]
		q.length = n
	}
	q.shrink((min(n, len(q.table)*size) + size - 1) / size)
	return nil
}

// Pages returns the page table: page i holds tokens [i*PageTokens, (i+1)*PageTokens). It covers Len and what is
// reserved, and is valid until the next call that changes the sequence.
func (s Sequence) Pages() []int32 {
	q, err := s.live()
	if err != nil {
		return nil
	}
	return q.table
}

// Unshared returns how many pages no other sequence holds: they become available when this one ends.
func (s Sequence) Unshared() (n int) {
	q, err := s.live()
	if err != nil {
		return 0
	}
	for _, page := range q.table {
		if q.pool.refs[page] == 1 {
			n++
		}
	}
	return n
}

// Len returns the number of tokens in the cache.
func (s Sequence) Len() int {
	q, err := s.live()
	if err != nil {
		return 0
	}
	return q.length
}

// Reused returns how many tokens Open found in the cache.
func (s Sequence) Reused() int {
	q, err := s.live()
	if err != nil {
		return 0
	}
	return q.reused
}

// Close ends the sequence. Pages that no other sequence uses become cached where a later prompt can find them, else
// free.
func (s Sequence) Close() error {
	q, err := s.live()
	if err != nil {
		return err
	}
	q.shrink(0)
	q.pool.retire(q)
	return nil
}

func (s Sequence) live() (*sequence, error) {
	if s.q == nil || s.q.generation != s.generation {
		return nil, ErrClosed
	}
	return s.q, nil
}
