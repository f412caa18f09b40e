package pool

import (
	"runtime"
	"sync/atomic"
	"time"
)

// spinTime bounds how long a waiter stays awake. Waking it takes the operating
// system some 60 microseconds, which is longer than many operations of a forward
// pass take, and a waiter that came late leaves its share to others, ends
// before them and would fall asleep again. So the bound is longer than a worker
// waits within a pass, and shorter than the gap between two steps of an idle
// server. Each round polls spinPolls times, a fraction of a microsecond, and then
// yields, so that a spinning worker never keeps another goroutine from running.
const (
	spinTime  = time.Millisecond
	spinPolls = 50
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
	for start := time.Now(); ; {
		for range spinPolls {
			if ready() {
				return
			}
		}
		if time.Since(start) > spinTime {
			break
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
