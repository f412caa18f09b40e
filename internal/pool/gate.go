package pool

import "sync/atomic"

// gate lets workers enter a run. The owner writes one word, which all workers read, and every worker writes its own
// word, in its own cache line. With many workers, a single word that all of them write would be slow.
//
// A worker writes its word and then reads the gate again; the owner closes the gate and then reads the workers' words.
// So either the owner reads the worker's word and waits until the worker has left, or the worker reads that the gate is
// closed and does nothing. The owner does not wait for a worker that is not running.
type gate struct{ word atomic.Uint64 } // number of the run << 2 | retired << 1 | open

const (
	gateOpen    = 1
	gateRetired = 2
)

// gateState is a value of the gate's word.
type gateState uint64

func (s gateState) run() uint64   { return uint64(s) >> 2 }
func (s gateState) open() bool    { return s&gateOpen != 0 }
func (s gateState) retired() bool { return s&gateRetired != 0 }

// open starts the next run and returns its number. No worker may be inside the gate.
func (g *gate) open() uint64 {
	run := g.state().run() + 1
	g.word.Store(run<<2 | gateOpen)
	return run
}

// shut closes the gate: no further worker can enter. It may be called twice.
func (g *gate) shut() { g.word.And(^uint64(gateOpen)) }

// retire closes the gate permanently and makes the workers end.
func (g *gate) retire() { g.word.Or(gateRetired) }

func (g *gate) state() gateState { return gateState(g.word.Load()) }
