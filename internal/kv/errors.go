package kv

import (
	"errors"
	"fmt"
)

var (
	// ErrConfig reports a pool that cannot be made; the message lists every problem.
	ErrConfig = errors.New("kv: bad configuration")
	// ErrFull reports that too few pages are free or cached. The error is a *FullError, and the pool has not changed.
	ErrFull = errors.New("kv: out of pages")
	// ErrClosed reports the use of a sequence after Close.
	ErrClosed = errors.New("kv: sequence is closed")
	// ErrArgument reports a count that a call does not accept.
	ErrArgument = errors.New("kv: bad argument")
	// ErrNotReserved reports a commit of more tokens than were reserved.
	ErrNotReserved = errors.New("kv: tokens were not reserved")
	// ErrCorrupt is wrapped by every error of Check about the pool itself; problems of the prefix index wrap
	// prefix.ErrCorrupt.
	ErrCorrupt = errors.New("kv: pool is corrupt")
)

// FullError states how many pages are missing.
type FullError struct {
	Needed    int  // number of pages that the call needed
	Free      int  // number of free pages
	Evictable int  // number of cached pages that could be evicted
	Window    bool // the numbers count window pages
}

// Missing returns how many pages in use would have to be released.
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

// Unwrap makes errors.Is(err, ErrFull) hold.
func (e *FullError) Unwrap() error { return ErrFull }
