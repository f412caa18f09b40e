package engine

import (
	"time"

	"sparrow/sched"
)

// noteTime tells the scheduler how long a batch took, so that it can bound what prompts add, and keeps the longest
// batch that sequences which decode had to wait for.
func (e *Engine) noteTime(f *flight, took time.Duration, decodes bool) {
	e.sched.Took(f.load, took)
	if kept := max(e.sched.Stall(), e.inner.stall(e.cfg.MaxStall)); kept > e.stalled+e.stalled/4 {
		e.stalled = kept
		e.cfg.Log.Warn("prompts hold up running streams for longer than --max-stall: even the smallest chunk, or a "+
			"single operation, takes so long",
			"max_stall", e.cfg.MaxStall, "kept", kept.Round(time.Millisecond), "chunk_tokens", sched.SmallestChunk)
	}
	// Prompts come last. What drafts add is not part of batches between operations.
	if i := &e.inner; f.items[len(f.items)-1].Decode && (f.inner || i.took == 0 || e.drafter == nil) {
		i.note(took)
	}
	switch {
	case !f.load.Apart():
		if !e.waiting.IsZero() {
			took = e.since(e.waiting)
		}
		e.waiting = time.Time{}
	case e.waiting.IsZero():
		e.waiting = e.now().Add(-took)
	}
	if decodes {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.gaps.add(took, e.now())
	}
}

// noteWaiting tells the scheduler how long sequences that decode have waited.
func (e *Engine) noteWaiting() {
	switch {
	case e.waiting.IsZero():
	case e.sched.Decoding():
		e.sched.Waited(e.since(e.waiting))
	default: // those that waited have ended
		e.waiting = time.Time{}
	}
}

// gapWindow is how long the longest gap is remembered, at least; at most twice as long.
const gapWindow = time.Minute

// gaps keeps the longest of recent times.
type gaps struct {
	now, before time.Duration // of this window and of the one before it
	since       time.Time     // when this window began
}

func (g *gaps) add(d time.Duration, at time.Time) {
	g.turn(at)
	g.now = max(g.now, d)
}

// longest is the longest time of this window and the one before.
func (g *gaps) longest(at time.Time) time.Duration {
	g.turn(at)
	return max(g.now, g.before)
}

// turn begins a new window where the last one is over.
func (g *gaps) turn(at time.Time) {
	switch age := at.Sub(g.since); {
	case age >= 2*gapWindow:
		*g = gaps{since: at}
	case age >= gapWindow:
		*g = gaps{since: at, before: g.now}
	}
}
