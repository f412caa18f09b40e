package group

import (
	"sync/atomic"
	"time"
)

// watch distinguishes slow ranks from hanging ranks: a rank hangs if it stays at an operation for the timeout while the
// process reads no pages of files.
type watch struct {
	beats   []*atomic.Uint64 // number of operations of each rank
	timeout time.Duration
	every   time.Duration // interval between two checks
	fresh   bool          // no check was made since begin
	seen    []uint64      // number of operations of each rank at the latest check
	since   []time.Time   // time at which each number last changed
	reads   int64         // number of page reads of the process at the latest check
}

func newWatch(beats []*atomic.Uint64, timeout time.Duration) watch {
	return watch{beats: beats, timeout: timeout, every: max(timeout/4, 1), seen: make([]uint64, len(beats)),
		since: make([]time.Time, len(beats))}
}

// begin starts a new watch: the next call of stuck makes the first check.
func (w *watch) begin() { w.fresh = true }

// stuck checks the ranks that have not arrived and reports whether one of them hangs.
func (w *watch) stuck(here func(rank int) bool) bool {
	now, reads, hangs := time.Now(), pageReads(), false
	for i, b := range w.beats {
		if n := b.Load(); w.fresh || n != w.seen[i] || reads != w.reads {
			w.seen[i], w.since[i] = n, now
		}
		hangs = hangs || !here(i) && now.Sub(w.since[i]) >= w.timeout
	}
	w.reads, w.fresh = reads, false
	return hangs
}
