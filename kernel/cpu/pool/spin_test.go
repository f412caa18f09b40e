package pool

import (
	"testing"
	"time"
)

// Waiters are patient until somebody else had a processor, and again some time after that.
func TestPace(t *testing.T) {
	const us = int64(time.Microsecond)
	var p pace
	p.init()
	want := func(now, patience int64) {
		t.Helper()
		if got := p.patience(now); got != patience {
			t.Errorf("patience is %v, want %v", time.Duration(got), time.Duration(patience))
		}
	}
	want(0, patient)
	p.waited(0, 100*us, 150*us) // others had a little more to do
	p.waited(0, 5000*us, 9000*us)
	want(9000*us, patient)
	p.waited(0, 100*us, 3000*us) // others were away
	want(3000*us, impatient)
	want(3000*us+crowdedTime-1, impatient)
	want(3000*us+crowdedTime, patient)
}

// A waiter that finds its condition late returns, whether it was awake, asleep or cut off.
func TestWaitersReturn(t *testing.T) {
	for _, delay := range []time.Duration{0, 10 * time.Microsecond, time.Duration(2 * patient)} {
		for _, crowded := range []bool{false, true} {
			var p parker
			var at pace
			p.init()
			at.init()
			if crowded {
				at.crowd(at.now())
			}
			begin, done := at.now(), make(chan int64)
			go func() {
				p.wait(func() bool { return at.now()-begin >= int64(delay) }, &at)
				done <- at.now() - begin
			}()
			for waiting := true; waiting; {
				select {
				case waited := <-done:
					if waiting = false; waited < int64(delay) {
						t.Errorf("returned after %v, want %v", time.Duration(waited), delay)
					}
				default:
					p.wake()
				}
			}
		}
	}
}
