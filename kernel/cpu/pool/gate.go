package pool

import "sync/atomic"

// gate admits workers to a run. It is one word, so that entering, leaving and shutting are each one atomic operation
// and the owner never waits for a worker that the operating system has not scheduled:
//
//	bits 63..32 number of the run, 31 open, 30 retired, 29..0 workers inside
type gate struct{ word atomic.Uint64 }

const (
	gateOpen    = 1 << 31
	gateRetired = 1 << 30
	gateInside  = gateRetired - 1
)

// gateState is one reading of a gate.
type gateState uint64

func (s gateState) run() uint32   { return uint32(s >> 32) }
func (s gateState) retired() bool { return s&gateRetired != 0 }

// open starts the next run. No worker may be inside.
func (g *gate) open() {
	g.word.Store((g.word.Load()>>32+1)<<32 | gateOpen)
}

// shut stops admission and reports whether no worker is inside. It may be called twice.
func (g *gate) shut() bool {
	return g.word.And(^uint64(gateOpen))&gateInside == 0
}

// empty reports whether all workers have left. The gate must be shut.
func (g *gate) empty() bool { return g.word.Load()&gateInside == 0 }

// retire ends all runs for good.
func (g *gate) retire() { g.word.Or(gateRetired) }

// changed reports whether a run other than seen has begun, or none will.
func (g *gate) changed(seen uint32) bool {
	s := gateState(g.word.Load())
	return s.run() != seen || s.retired()
}

// enter joins the current run if its gate is still open. It returns the state
// the decision was made on.
func (g *gate) enter() (gateState, bool) {
	for {
		w := g.word.Load()
		if w&gateOpen == 0 || w&gateRetired != 0 {
			return gateState(w), false
		}
		if g.word.CompareAndSwap(w, w+1) {
			return gateState(w), true
		}
	}
}

// leave takes a worker out of the run and reports whether it was the last
// one behind a shut gate.
func (g *gate) leave() bool {
	return g.word.Add(^uint64(0))&(gateOpen|gateInside) == 0
}
