package pool

import (
	"runtime"
	"sync/atomic"
)

// spinRounds bounds how long a waiter stays awake: about 20 microseconds,
// longer than the gap between two operations of a forward pass, far shorter
// than the gap between two steps of an idle server. Each round polls
// spinPolls times and then yields, so a spinning worker never keeps another
// goroutine from running.
const (
	spinRounds = 100
	spinPolls  = 50
)

// parker lets one goroutine wait for a condition that others make true and
// then announce with wake.
type parker struct {
	asleep atomic.Bool
	bell   chan struct{} // one token: a wake that found the goroutine asleep
}

func (p *parker) init() { p.bell = make(chan struct{}, 1) }

// wait returns once ready reports true. ready must stay true until then.
func (p *parker) wait(ready func() bool) {
	for range spinRounds {
		for range spinPolls {
			if ready() {
				return
			}
		}
		runtime.Gosched()
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
