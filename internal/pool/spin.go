package pool

import (
	"sync/atomic"
	"time"
)

// spinLimit determines how long a waiter spins before it parks. Times are nanoseconds since the pool was made.
//
// The operating system takes about 60 microseconds to wake a parked worker, longer than many operations of a forward
// pass, and a worker that wakes late finds no items and parks again. So waiters spin for longer than a worker waits
// within a pass, but for less than the time between two steps of an idle server. If other programs use the processors,
// spinning uses up the time slice that a worker needs for its next items. So spinning is short for contentionTime after
// contention was detected: at least as many delays within contentionTime as there are other workers. A few delays are
// not contention: a machine with 16 dedicated processors has some every 100 ms, and decode steps took 50 % longer when
// workers parked after each of them.
//
// Delays of a virtual machine whose host runs other machines are not contention either. The guest system has not
// switched to another thread, so parking would not help, and each wake would take another 60 microseconds.
type spinLimit struct {
	start     time.Time
	workers   int64
	window    atomic.Int64                 // time when the counting of delays began
	delays    atomic.Int64                 // delays since window
	switches  func() (n int64, known bool) // number of switches to other threads
	last      atomic.Int64                 // time of the last delay
	seen      atomic.Int64                 // switches until the time last
	since     atomic.Int64                 // values of last and seen before delays were counted
	before    atomic.Int64
	contended atomic.Int64 // spinning is short until this time
	awake     atomic.Bool  // spinning has no limit
}

const (
	longSpin  = int64(500 * time.Microsecond)
	shortSpin = int64(20 * time.Microsecond)
	// lostTime is the minimum length of a delay: the time between two polls of a waiter, or the time by which a run
	// ends after the owner has finished its items, minus the time that the owner worked. Without contention these times
	// are shorter.
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

// contend records a delay. It detects contention if there were as many delays as other workers and, if their number is
// known, as many switches to other threads.
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

// ran checks a finished run for a delay. begin is the start of the run, own the time when the owner had no items left,
// and end the time when all workers had finished.
func (p *spinLimit) ran(begin, own, end int64) {
	if end-own > own-begin+lostTime {
		p.contend(end)
	}
}
