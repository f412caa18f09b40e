package pool

import (
	"sync/atomic"
	"time"
)

// spinLimit is the time a waiter spins before it parks. Times are nanoseconds since the pool was made.
//
// The operating system takes about 60 microseconds to wake a parked worker, longer than many operations of a forward
// pass. A worker that wakes late finds its items taken and would park again. So waiters spin for longer than a worker
// waits within a pass, and for less than the gap between two steps of an idle server. If other programs use the same
// processors, spinning uses up the time slice that the worker needs once it has items, and the run waits for it.
// Contention is detected if, within contentionTime, there are as many delays as other workers; it shortens spinning
// for the same time. Single delays of many workers are not contention: on a machine with 16 dedicated processors
// there are some every 100 ms, and when workers parked after each of them, decode steps took 50 % longer.
//
// Delays of a virtual machine whose host runs others are not contention either: the system here has not switched to
// another thread, and parking would not bring the processor back, but each wake would take its 60 microseconds too.
type spinLimit struct {
	start     time.Time
	workers   int64
	window    atomic.Int64                 // when delays began to be counted
	delays    atomic.Int64                 // since then
	switches  func() (n int64, known bool) // to other threads
	last      atomic.Int64                 // when the last delay was noted
	seen      atomic.Int64                 // switches until then
	since     atomic.Int64                 // last, and seen, before delays began to be counted
	before    atomic.Int64
	contended atomic.Int64 // spinning is short until this time
	awake     atomic.Bool  // spinning does not end
}

const (
	longSpin  = int64(500 * time.Microsecond)
	shortSpin = int64(20 * time.Microsecond)
	// lostTime is the minimum delay that counts: between two polls of a waiter, or in the end of a run beyond the time
	// the owner worked. With free processors delays are shorter.
	lostTime       = int64(200 * time.Microsecond)
	contentionTime = int64(100 * time.Millisecond)
)

func (p *spinLimit) init(workers int) {
	p.start, p.workers, p.switches = time.Now(), int64(workers), involuntarySwitches
}

func (p *spinLimit) now() int64 { return int64(time.Since(p.start)) }

// limit returns the spinning time of a wait that begins now.
func (p *spinLimit) limit(now int64) int64 {
	if now < p.contended.Load() {
		return shortSpin
	}
	return longSpin
}

// contend records a delay. Contention means as many delays as there are other workers, and as many switches to other
// threads in that time, if their number is known.
func (p *spinLimit) contend(now int64) {
	switches, known := p.switches()
	if now-p.window.Load() > contentionTime {
		p.window.Store(now)
		p.delays.Store(0)
		p.before.Store(p.seen.Load())
		p.since.Store(p.last.Load())
	}
	p.seen.Store(switches)
	p.last.Store(now)
	others := p.workers - 1
	often := (switches-p.before.Load())*contentionTime >= others*(now-p.since.Load())
	if p.delays.Add(1) >= others && (often || !known) {
		p.contended.Store(now + contentionTime)
	}
}

// ran checks a finished run for contention: begin is its start, own the time when the owner had no items left, end
// the time when all workers had finished.
func (p *spinLimit) ran(begin, own, end int64) {
	if end-own > own-begin+lostTime {
		p.contend(end)
	}
}
