// Package clock is a virtual clock for simulations: time advances only when all processes wait, and then jumps to the
// time at which the next process continues.
//
// A process is a function in its own goroutine. Only one process runs at a time, until it waits or ends. The next one
// is the first process whose channel has a value or, if there is none, the process with the earliest time; for equal
// times, the one that began to wait first. A run is therefore deterministic, and waiting takes no real time.
package clock

import (
	"container/heap"
	"errors"
	"slices"
	"time"
)

// ErrStuck means that all processes wait without a time limit, so that none can continue.
var ErrStuck = errors.New("clock: every process waits, and none has a time at which it continues")

// Virtual is a virtual clock. Only its processes and the caller of Run may use it. It is an engine.Clock.
type Virtual struct {
	now    time.Time
	calls  int64 // number of timers so far, which orders timers with equal times
	timers timers
	parked []*process // waiting processes, in the order in which they began to wait
	count  int        // number of processes that have not ended
	driver chan error // receives the result of a run, for the caller of Run
	done   bool       // whether the function passed to Run has returned
}

// process is a waiting goroutine.
type process struct {
	resume chan bool // receives a value when the process continues: whether its channel had a value
	wake   <-chan struct{}
	timer  *timer // nil if it waits without a time limit
}

// New returns a clock whose time is at.
func New(at time.Time) *Virtual { return &Virtual{now: at, driver: make(chan error, 1)} }

// Now returns the virtual time.
func (v *Virtual) Now() time.Time { return v.now }

// Processes returns the number of processes that have not ended.
func (v *Virtual) Processes() int { return v.count }

// Run runs f as a process, and other processes while f waits, until f returns. Processes that have not ended continue
// in the next Run. If all processes wait without a time limit, Run returns ErrStuck and the clock cannot be used any
// more.
func (v *Virtual) Run(f func()) error {
	v.done = false
	v.Go(func() {
		f()
		v.done = true
	})
	v.next()
	return <-v.driver
}

// Go starts f as a process. f begins when the caller waits.
func (v *Virtual) Go(f func()) {
	p := &process{resume: make(chan bool, 1)}
	v.count++
	v.park(p, 0)
	go func() {
		<-p.resume
		f()
		v.count--
		v.next()
	}()
}

// Wait waits until the channel has a value, or for the time limit if it is positive. It returns true if there was a
// value.
func (v *Virtual) Wait(wake <-chan struct{}, limit time.Duration) bool {
	p := &process{resume: make(chan bool, 1), wake: wake}
	if limit <= 0 {
		limit = -1
	}
	v.park(p, limit)
	v.next()
	return <-p.resume
}

// Sleep waits for the time d.
func (v *Virtual) Sleep(d time.Duration) {
	if d > 0 {
		v.Wait(nil, d)
	}
}

// After calls f when the time d has passed. f must not wait.
func (v *Virtual) After(d time.Duration, f func()) {
	v.calls++
	heap.Push(&v.timers, &timer{at: v.now.Add(max(d, 0)), order: v.calls, call: f})
}

// park makes a process wait; a negative limit means without a time limit.
func (v *Virtual) park(p *process, limit time.Duration) {
	if limit >= 0 {
		v.calls++
		p.timer = &timer{at: v.now.Add(limit), order: v.calls, process: p}
		heap.Push(&v.timers, p.timer)
	}
	v.parked = append(v.parked, p)
}

// next continues the next process. After the call, the caller must not use the clock until its own process continues.
func (v *Virtual) next() {
	if v.done {
		v.done = false
		v.driver <- nil
		return
	}
	for {
		for i, p := range v.parked {
			select {
			case <-p.wake: // a nil channel never has a value
				v.parked = slices.Delete(v.parked, i, i+1)
				if p.timer != nil {
					heap.Remove(&v.timers, p.timer.index)
				}
				p.resume <- true
				return
			default:
			}
		}
		if len(v.timers) == 0 {
			v.driver <- ErrStuck
			return
		}
		t := heap.Pop(&v.timers).(*timer)
		v.now = t.at
		if t.process == nil {
			t.call()
			continue
		}
		i := slices.Index(v.parked, t.process)
		v.parked = slices.Delete(v.parked, i, i+1)
		t.process.resume <- false
		return
	}
}

// timer is a time at which a process continues or a function is called.
type timer struct {
	at      time.Time
	order   int64
	process *process // process that continues; nil if a function is called
	call    func()
	index   int // index in timers
}

// timers is a heap ordered by time.
type timers []*timer

func (t timers) Len() int { return len(t) }
func (t timers) Less(i, j int) bool {
	if c := t[i].at.Compare(t[j].at); c != 0 {
		return c < 0
	}
	return t[i].order < t[j].order
}
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

// Push implements heap.Interface.
func (t *timers) Push(x any) {
	x.(*timer).index = len(*t)
	*t = append(*t, x.(*timer))
}

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	last := len(*t) - 1
	x := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	return x
}
