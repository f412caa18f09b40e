package kv

import (
	"fmt"

	"sparrow/internal/kv/prefix"
)

// Sequence is a handle of an open sequence: it gives access to the page table and to the number of tokens in the cache.
// Copies of a handle refer to one sequence. After Close every copy is stale: its methods return ErrClosed or zero, even
// if another sequence uses the memory. The zero Sequence is closed.
type Sequence struct {
	q          *sequence
	generation uint64
}

// sequence is the data that a handle points to. The pool keeps it for the next Open, with the memory of its table.
type sequence struct {
	pool       *Pool
	generation uint64 // incremented by Close, so that old handles are recognised
	slot       int    // index in pool.open

	table   []int32 // page table: full pages, the page being filled, reserved pages
	windows []int32 // window page of each page in table, none for pages before reached; nil without window pages
	reached int     // number of pages before the window; the window pages after them are pinned
	length  int     // number of committed tokens
	reused  int     // number of tokens that Open found in the cache
	tail    []int32 // committed tokens of the page that is being filled
	root    prefix.Hash
	salt    []byte // salt of root
	publish bool   // the index has the last full page, so the next full page will be added
}

// Reserve reserves space for the rows of n more tokens after Len. Space that was reserved before is included. Cached
// pages are evicted if needed. If too few pages are available, Reserve returns a *FullError, and nothing has changed.
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

// Needs returns how many pages Reserve(n) would allocate.
func (s Sequence) Needs(n int) int {
	q, err := s.live()
	if err != nil || n < 0 {
		return 0
	}
	return q.needs(n)
}

// Commit reports that the rows of these tokens, the next after Len, are written and accepted. Their rows must have been
// reserved. Pages that become full are reusable after this call.
func (s Sequence) Commit(tokens []int32) error {
	q, err := s.live()
	if err != nil {
		return err
	}
	size := q.pool.cfg.PageTokens
	if room := len(q.table)*size - q.length; len(tokens) > room {
		return fmt.Errorf("%w: %d tokens were to be committed after %d tokens, but the reserved pages have room for "+
			"%d tokens",
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

// Truncate releases the pages of rows from the n-th token on: reserved pages whose rows were not committed. Committed
// tokens can be removed only from the page being filled, since full pages are never written again, and only while the
// window rows of the shorter sequence are stored; otherwise Truncate returns ErrArgument, and nothing has changed.
func (s Sequence) Truncate(n int) error {
	q, err := s.live()
	if err != nil {
		return err
	}
	size := q.pool.cfg.PageTokens
	if full := q.length / size * size; n < full {
		return fmt.Errorf("%w: cannot truncate to %d tokens: the first %d tokens are in full pages, which stay",
			ErrArgument,
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

// Pages returns the page table: page i holds tokens [i*PageTokens, (i+1)*PageTokens). It covers the committed and the
// reserved tokens, and is valid until the next call that changes the sequence.
func (s Sequence) Pages() []int32 {
	q, err := s.live()
	if err != nil {
		return nil
	}
	return q.table
}

// Unshared returns how many pages no other sequence holds: these pages become available when this sequence ends.
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

// Close ends the sequence. Pages that no other sequence uses become cached if a later prompt can find them, otherwise
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
