package pool

import "sync/atomic"

// gate admits workers to a run. The owner writes one word, which all workers read, and every worker writes its own
// word, in its own cache line: with many workers a run would wait for a word that all of them write.
//
// A worker announces itself and then reads the gate again; the owner shuts the gate and then reads the announcements.
// So either the owner reads the announcement and waits until the worker has left, or the worker reads that the gate
// is shut and does nothing. The owner never waits for a worker that the operating system has not scheduled.
type gate struct{ word atomic.Uint64 } // number of the run << 2 | retired << 1 | open

const (
	gateOpen    = 1
	gateRetired = 2
)

// gateState is one reading of a gate.
type gateState uint64

func (s gateState) run() uint64   { return uint64(s) >> 2 }
func (s gateState) open() bool    { return s&gateOpen != 0 }
func (s gateState) retired() bool { return s&gateRetired != 0 }

// open starts the next run and returns its number. No worker may be inside.
func (g *gate) open() uint64 {
	run := g.state().run() + 1
	g.word.Store(run<<2 | gateOpen)
	return run
}

// shut stops admission. It may be called twice.
func (g *gate) shut() { g.word.And(^uint64(gateOpen)) }

// retire ends all runs for good.
func (g *gate) retire() { g.word.Or(gateRetired) }

func (g *gate) state() gateState { return gateState(g.word.Load()) }
