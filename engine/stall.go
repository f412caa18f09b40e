package engine

import (
	"time"

	"sparrow/sched"
)

// noteTime tells the scheduler how long a batch took, so that it can bound what prompts add, and keeps the longest
// batch that sequences which decode had to wait for.
func (e *Engine) noteTime(of sched.Load, took time.Duration, decodes bool) {
	e.sched.Took(of, took)
	if kept := e.sched.Stall(); kept > e.stalled+e.stalled/4 {
		e.stalled = kept
		e.cfg.Log.Warn("even the smallest chunk of a prompt holds up running streams for longer than --max-stall",
			"max_stall", e.cfg.MaxStall, "kept", kept.Round(time.Millisecond), "chunk_tokens", sched.SmallestChunk)
	}
	switch {
	case of.Apart():
		e.apart = took
	case decodes:
		e.mu.Lock()
		defer e.mu.Unlock()
		e.gaps.add(e.apart+took, e.now())
		e.apart = 0
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
