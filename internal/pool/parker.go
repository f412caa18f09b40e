package pool

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	spinPolls = 50 // polls of a spinning waiter between two readings of the clock; a pause follows each poll
	// yieldShare multiplied by the number of workers is the time between two yields of a spinning worker, in
	// nanoseconds. A yield takes a global lock, and the worker may continue late or on another processor: with 16
	// workers that yielded every 20 microseconds, a decode step took 50 % longer. With few workers, yields must be
	// frequent, because other goroutines, such as those of connections, can run on no other processor.
	yieldShare = int64(12 * time.Microsecond)
)

// parker blocks one goroutine until a condition holds. Other goroutines make the condition true and then call wake.
type parker struct {
	parked atomic.Bool
	token  chan struct{} // receives a value from a wake that found the goroutine parked
}

func (p *parker) init() { p.token = make(chan struct{}, 1) }

// wait returns once ready reports true; ready must stay true until then. It spins up to the limit, with yields so that
// other goroutines can run, and then parks, unless KeepAwake was called. Between two polls it calls idle, which takes
// less than a microsecond and reports whether it had work; nil means that there is no such work.
func (p *parker) wait(ready, idle func() bool, at *spinLimit) {
	for !p.spin(ready, idle, at) {
		p.parked.Store(true)
		if ready() || at.awake.Load() {
			// If parked is already false, wake has sent a value, which must be received.
			if !p.parked.CompareAndSwap(true, false) {
				<-p.token
			}
			continue
		}
		<-p.token
	}
}

// spin polls ready until it returns true or the limit is reached, and returns its last result.
func (p *parker) spin(ready, idle func() bool, at *spinLimit) bool {
	begin := at.now()
	last, yielded, end := begin, begin, begin+at.limit(begin)
	for awake := at.awake.Load(); last < end || awake; awake = at.awake.Load() {
		for range spinPolls {
			if ready() {
				return true
			}
			if idle == nil || !idle() {
				pause()
			}
		}
		if last-yielded >= at.workers*yieldShare {
			runtime.Gosched()
			yielded = last
		}
		now := at.now()
		if now-last > lostTime && !awake {
			at.contend(now)
			break
		}
		last = now
	}
	return ready()
}

// wake unparks the waiter, which then checks its condition. The caller has made the condition true before.
func (p *parker) wake() {
	// Usually the waiter spins and parked is false. Then a read is faster than a failed exchange, which would
	// invalidate the cache line of all workers.
	if p.parked.Load() && p.parked.CompareAndSwap(true, false) {
		p.token <- struct{}{}
	}
}
