package pool

import (
	"testing"
	"time"
)

// The spin time is long, short for a while after contention, and then long again.
func TestSpinLimit(t *testing.T) {
	const us = int64(time.Microsecond)
	var p spinLimit
	p.init(4)
	p.switches = func() (int64, bool) { return 0, false } // without switch counts, only delays show contention
	want := func(now, limit int64) {
		t.Helper()
		if got := p.limit(now); got != limit {
			t.Errorf("spinning time is %v, want %v", time.Duration(got), time.Duration(limit))
		}
	}
	want(0, longSpin)
	p.ran(0, 100*us, 150*us) // other workers took slightly longer
	p.ran(0, 5000*us, 9000*us)
	want(9000*us, longSpin)
	for i := range int64(3) { // the other workers were delayed three times
		want(3000*us+i*us, longSpin)
		p.ran(0, 100*us, 3000*us+i*us)
	}
	want(3002*us, shortSpin)
	want(3002*us+contentionTime-1, shortSpin)
	want(3002*us+contentionTime, longSpin)
	var two spinLimit
	two.init(2)
	two.switches = p.switches
	if two.ran(0, 100*us, 3000*us); two.limit(3000*us) != shortSpin {
		t.Error("with one other worker, one delay is contention")
	}
	// The same number of delays at longer intervals does not count.
	for i := int64(2); i < 9; i++ {
		p.ran(0, 100*us, i*contentionTime)
		want(i*contentionTime, longSpin)
	}
}

// Delays without thread switches do not count as contention: the host of the virtual machine used the processors.
func TestDelaysWithoutSwitches(t *testing.T) {
	var p spinLimit
	p.init(4)
	switches := int64(1000) // switches before the delays
	p.switches = func() (int64, bool) { return switches, true }
	at := int64(time.Second)
	p.contend(at)
	for range 20 {
		at += 2 * contentionTime
		p.contend(at)
	}
	for range 20 {
		p.contend(at)
		at += lostTime
	}
	if p.limit(at) != longSpin {
		t.Error("delays without switches count as contention")
	}
	for range 3 { // three delays within 0.1 s, in a new window
		at += contentionTime / 2
		switches++
		p.contend(at)
	}
	if p.limit(at) != longSpin {
		t.Error("fewer switches than there are other workers count as contention")
	}
	for range 3 {
		at += contentionTime / 10
		switches += 3
		p.contend(at)
	}
	if p.limit(at) != shortSpin {
		t.Error("more switches than there are other workers do not count as contention")
	}
}

// A waiter returns when its condition becomes true while it spins, after it has parked, and under contention.
func TestWaitersReturn(t *testing.T) {
	for _, delay := range []time.Duration{0, 10 * time.Microsecond, time.Duration(2 * longSpin)} {
		for _, contended := range []bool{false, true} {
			var p parker
			var at spinLimit
			p.init()
			at.init(2)
			at.switches = func() (int64, bool) { return 0, false }
			if contended {
				at.contend(at.now())
			}
			begin, done := at.now(), make(chan int64)
			go func() {
				p.wait(func() bool { return at.now()-begin >= int64(delay) }, nil, &at)
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
