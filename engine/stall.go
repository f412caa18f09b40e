package engine

import (
	"time"

	"sparrow/internal/sched"
)

// noteTime passes the time of a batch to the scheduler, which limits the time that prompts add. It also stores the time
// of the longest batch that decoding sequences waited for.
func (l *loop) noteTime(b *batch, took time.Duration, decodes bool) {
	l.sched.Took(b.load, took)
	if kept := max(l.sched.Stall(), l.inner.stall(l.cfg.MaxStall)); kept > l.stalled+l.stalled/4 {
		l.stalled = kept
		l.cfg.Log.Warn("prompts delay running streams for longer than --max-stall, because the smallest chunk, or a "+
			"single operation, takes longer; set a larger --max-stall",
			"max_stall", l.cfg.MaxStall, "kept", kept.Round(time.Millisecond), "chunk_tokens", sched.SmallestChunk)
	}
	// Items of prompts come last, so this batch only decodes. If sequences draft, only batches between the operations
	// of another batch are used, because these have no drafts.
	if i := &l.inner; b.items[len(b.items)-1].Decode && (b.between || i.took == 0 || l.drafter == nil) {
		i.note(took)
	}
	switch {
	case !b.load.Apart():
		if !l.waiting.IsZero() {
			took = l.since(l.waiting)
		}
		l.waiting = time.Time{}
	case l.waiting.IsZero():
		l.waiting = l.now().Add(-took)
	}
	if decodes {
		l.tally.Lock()
		defer l.tally.Unlock()
		l.tally.gaps.add(took, l.now())
	}
}

// noteWaiting passes the time that decoding sequences have waited so far to the scheduler.
func (l *loop) noteWaiting() {
	if !l.waiting.IsZero() && l.sched.Decoding() {
		l.sched.Waited(l.since(l.waiting))
	}
}

// gapWindow is the minimum time for which a gap counts in gaps.longest; the maximum is twice as long.
const gapWindow = time.Minute

// gaps stores the longest recent time between two tokens of a sequence.
type gaps struct {
	now, before time.Duration // longest gap of this window and of the previous window
	since       time.Time     // time when this window began
}

func (g *gaps) add(d time.Duration, at time.Time) {
	g.turn(at)
	g.now = max(g.now, d)
}

// longest returns the longest gap of this window and the previous window.
func (g *gaps) longest(at time.Time) time.Duration {
	g.turn(at)
	return max(g.now, g.before)
}

// turn begins a new window if the current window has ended.
func (g *gaps) turn(at time.Time) {
	switch age := at.Sub(g.since); {
	case age >= 2*gapWindow:
		*g = gaps{since: at}
	case age >= gapWindow:
		*g = gaps{since: at, before: g.now}
	}
}
