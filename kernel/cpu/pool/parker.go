package pool

import (
	"runtime"
	"sync/atomic"
)

// spinPolls is how often a spinning waiter looks between two yields.
const spinPolls = 50

// parker lets one goroutine wait for a condition that others make true and
// then announce with wake.
type parker struct {
	asleep atomic.Bool
	bell   chan struct{} // one token: a wake that found the goroutine asleep
}

func (p *parker) init() { p.bell = make(chan struct{}, 1) }

// wait returns once ready reports true. ready must stay true until then. It
// spins for as long as the pace says, polling spinPolls times, a fraction of a
// microsecond, and then yielding, so that a spinning worker never keeps another
// goroutine from running.
func (p *parker) wait(ready func() bool, at *pace) {
	begin := at.now()
	last, end := begin, begin+at.patience(begin)
	for last < end {
		for range spinPolls {
			if ready() {
				return
			}
		}
		runtime.Gosched()
		now := at.now()
		if now-last > lostTime {
			at.crowd(now)
			break
		}
		last = now
	}
	for {
		p.asleep.Store(true)
		if ready() {
			// Either nobody has seen us asleep, or a token is on its way.
			if !p.asleep.CompareAndSwap(true, false) {
				<-p.bell
			}
			return
		}
		<-p.bell
		if ready() {
			return
		}
	}
}

// wake lets a sleeping waiter look at its condition again. The caller has made
// the condition true before.
func (p *parker) wake() {
	if p.asleep.CompareAndSwap(true, false) {
		p.bell <- struct{}{}
	}
}
