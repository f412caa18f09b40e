package pool

import (
	"runtime"
	"sync/atomic"
)

// spinPolls is the number of polls of a spinning waiter between two yields.
const spinPolls = 50

// parker blocks one goroutine until a condition holds. Others make the condition true and then call wake.
type parker struct {
	parked atomic.Bool
	token  chan struct{} // holds one token: a wake that found the goroutine parked
}

func (p *parker) init() { p.token = make(chan struct{}, 1) }

// wait returns once ready reports true; ready must stay true until then. It spins up to the limit: spinPolls polls, a
// fraction of a microsecond, then a yield, so that a spinning worker does not block other goroutines. Then it parks.
func (p *parker) wait(ready func() bool, at *spinLimit) {
	begin := at.now()
	last, end := begin, begin+at.limit(begin)
	for last < end {
		for range spinPolls {
			if ready() {
				return
			}
		}
		runtime.Gosched()
		now := at.now()
		if now-last > lostTime {
			at.contend(now)
			break
		}
		last = now
	}
	for {
		p.parked.Store(true)
		if ready() {
			// Where parked is false already, wake has sent a token, which must be received.
			if !p.parked.CompareAndSwap(true, false) {
				<-p.token
			}
			return
		}
		<-p.token
		if ready() {
			return
		}
	}
}

// wake unparks the waiter, which checks its condition again. The caller makes the condition true before.
func (p *parker) wake() {
	if p.parked.CompareAndSwap(true, false) {
		p.token <- struct{}{}
	}
}
