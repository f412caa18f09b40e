package kv

import (
	"fmt"

	"sparrow/internal/kv/prefix"
)

// Sequence is a handle of an open sequence, with its page table and its number of tokens. Copies of a handle refer to
// the same sequence. After Close their methods return ErrClosed or zero, even if another sequence uses the memory. The
// zero Sequence is closed.
type Sequence struct {
	q          *sequence
	generation uint64
}

// sequence is the data of a handle. After Close, the pool keeps it and its slices for the next Open.
type sequence struct {
	pool       *Pool
	generation uint64 // incremented by Close, so that old handles are detected
	slot       int    // index in pool.open

	table   []int32 // page table: full pages, the page that is being filled, reserved pages
	windows []int32 // [table] window page, or none for pages before reached; nil without window pages
	reached int     // number of pages before the window; those after them have pinned window pages
	length  int     // number of committed tokens
	reused  int     // number of tokens that Open found in the cache
	tail    []int32 // committed tokens of the page that is being filled
	root    prefix.Hash
	salt    []byte // salt of the root
	publish bool   // whether the index has the last full page, so that the next one can be added
}

// Reserve allocates pages for the rows of the n tokens after Len, including those that are already reserved. Cached
// pages are evicted if needed. If too few pages are available, it returns a *FullError and changes nothing.
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

// Needs returns the number of pages that Reserve(n) would allocate.
func (s Sequence) Needs(n int) int {
	q, err := s.live()
	if err != nil || n < 0 {
		return 0
	}
	return q.needs(n)
}

// Commit adds tokens after Len whose rows have been written and accepted. The rows must have been reserved. Pages that
// become full are then reusable.
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

// Truncate removes the tokens from index n on, and releases their pages and all reserved pages. Committed tokens can be
// removed only from the page that is being filled, since full pages are never written again, and only if the window
// rows of the shorter sequence are stored. Otherwise Truncate returns ErrArgument and changes nothing.
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

// Pages returns the page table: page i holds tokens [i*PageTokens, (i+1)*PageTokens). It includes reserved pages, and
// is valid until the next call that changes the sequence.
func (s Sequence) Pages() []int32 {
	q, err := s.live()
	if err != nil {
		return nil
	}
	return q.table
}

// Unshared returns the number of pages that no other sequence uses. They become available when this sequence is closed.
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

// Reused returns the number of tokens that Open found in the cache.
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
