package pool

import (
	"sync/atomic"
	"time"
)

// pace is how long waiters stay awake, in nanoseconds since the pool began.
//
// Waking a worker takes the operating system some 60 microseconds, which is
// longer than many operations of a forward pass take. One that came late leaves
// its share to others, ends before them and would fall asleep again. So waiters
// are patient: longer than a worker waits within a pass, shorter than the gap
// between two steps of an idle server. But where other programs want the same
// processors, the time a waiter spends awake is taken from it when it has work, and the
// others wait for it. That shows in time that was lost, and makes waiters
// impatient for a while.
type pace struct {
	start   time.Time
	crowded atomic.Int64 // waiters are impatient until then
}

const (
	patient   = int64(500 * time.Microsecond)
	impatient = int64(20 * time.Microsecond)
	// lostTime is how long a waiter cannot be away, or be waiting for others
	// who had as much to do as it, if processors are free.
	lostTime    = int64(200 * time.Microsecond)
	crowdedTime = int64(100 * time.Millisecond)
)

func (p *pace) init() { p.start = time.Now() }

func (p *pace) now() int64 { return int64(time.Since(p.start)) }

// patience is how long a wait that begins now spins.
func (p *pace) patience(now int64) int64 {
	if now < p.crowded.Load() {
		return impatient
	}
	return patient
}

// crowd notes that somebody else had the processor.
func (p *pace) crowd(now int64) { p.crowded.Store(now + crowdedTime) }

// waited looks at a run: when it began, when the owner had no work left, and when
// everyone had ended.
func (p *pace) waited(begin, own, end int64) {
	if end-own > own-begin+lostTime {
		p.crowd(end)
	}
}
