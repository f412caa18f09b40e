package kv

import (
	"errors"
	"fmt"
)

var (
	// ErrConfig means that a Config is invalid; the message lists all problems.
	ErrConfig = errors.New("kv: bad configuration")
	// ErrFull means that too few pages are free or cached. The error is a *FullError, and the pool has not changed.
	ErrFull = errors.New("kv: out of pages")
	// ErrClosed means that a sequence was used after Close.
	ErrClosed = errors.New("kv: sequence is closed")
	// ErrArgument means that an argument is out of range.
	ErrArgument = errors.New("kv: bad argument")
	// ErrNotReserved means that more tokens were committed than reserved.
	ErrNotReserved = errors.New("kv: tokens were not reserved")
	// ErrCorrupt is wrapped by errors of Check about the pool itself; those about the prefix index wrap
	// prefix.ErrCorrupt.
	ErrCorrupt = errors.New("kv: pool is corrupt")
)

// FullError states how many pages are missing.
type FullError struct {
	Needed    int  // number of pages that the call needed
	Free      int  // number of free pages
	Evictable int  // number of cached pages that could be evicted
	Window    bool // whether the numbers are those of window pages
}

// Missing returns the number of pages in use that must be released before the call can succeed.
func (e *FullError) Missing() int { return e.Needed - e.Free - e.Evictable }

// Error returns the numbers of needed, free, cached and missing pages as text.
func (e *FullError) Error() string {
	kind := ErrFull.Error()
	if e.Window {
		kind = "kv: out of window pages"
	}
	return fmt.Sprintf("%s: %d needed, %d free, %d cached; release %d more", kind, e.Needed, e.Free, e.Evictable,
		e.Missing())
}

// Unwrap returns ErrFull.
func (e *FullError) Unwrap() error { return ErrFull }
