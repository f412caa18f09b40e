package group

import "time"

// watch tells ranks that are slow from ranks that hang: one that stays at an operation for the time-out, while the
// process reads no pages of files, hangs.
type watch struct {
	group *Group
	every time.Duration // between two looks
	fresh bool          // nobody has looked yet
	seen  []uint64      // operations of each rank at the latest look
	since []time.Time   // when they last changed
	reads int64         // of the process
}

// begin begins to watch, at the first look.
func (w *watch) begin() { w.fresh = true }

// stuck looks at the ranks that are not here and reports whether one of them hangs.
func (w *watch) stuck(here func(rank int) bool) bool {
	now, reads, hangs := time.Now(), pageReads(), false
	for i, r := range w.group.ranks {
		if n := r.beats.Load(); w.fresh || n != w.seen[i] || reads != w.reads {
			w.seen[i], w.since[i] = n, now
		}
		hangs = hangs || !here(i) && now.Sub(w.since[i]) >= w.group.opts.Timeout
	}
	w.reads, w.fresh = reads, false
	return hangs
}
