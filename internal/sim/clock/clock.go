// Package clock is a virtual clock: time advances only when all processes wait, and then jumps to the time of the next
// process.
//
// Processes are functions that wait; each runs in its own goroutine, one at a time, until it waits or ends. Then the
// next one runs: the first process whose channel has a value, or else the process with the earliest time; processes
// with equal times run in the order in which they began to wait. So a run depends only on the processes, and an hour
// takes as long as the work in it.
package clock

import (
	"container/heap"
	"errors"
	"slices"
	"time"
)

// ErrStuck means that all processes wait for each other.
var ErrStuck = errors.New("clock: every process waits, and none has a time at which it continues")

// Virtual is a virtual clock. Only its processes and the caller of Run may use it. It implements engine.Clock.
type Virtual struct {
	now    time.Time
	calls  int64 // number of calls so far, which orders timers with equal times
	timers timers
	parked []*process // waiting processes, in the order in which they began to wait
	count  int        // number of processes that have not ended
	driver chan error // receives the end of a run, for the caller of Run
	done   bool       // the function that Run was called with has returned
}

// process is a goroutine that waits.
type process struct {
	resume chan bool // receives true at its turn if its channel had a value, else false
	wake   <-chan struct{}
	timer  *timer // nil if the process waits without a limit
}

// New makes a clock that starts at a time.
func New(at time.Time) *Virtual { return &Virtual{now: at, driver: make(chan error, 1)} }

// Now returns the time.
func (v *Virtual) Now() time.Time { return v.now }

// Processes returns the number of processes that have not ended.
func (v *Virtual) Processes() int { return v.count }

// Run runs f as a process, and all other processes while f waits, until f returns; processes that have not ended wait
// for the next Run. Run returns ErrStuck if all processes wait forever; then the clock can no longer be used.
func (v *Virtual) Run(f func()) error {
	v.done = false
	v.Go(func() {
		f()
		v.done = true
	})
	v.next()
	return <-v.driver
}

// Go starts f as a process. f begins when its caller waits.
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

// Wait waits for a value of a channel, or until a positive limit has passed.
func (v *Virtual) Wait(wake <-chan struct{}, limit time.Duration) bool {
	p := &process{resume: make(chan bool, 1), wake: wake}
	if limit <= 0 {
		limit = -1
	}
	v.park(p, limit)
	v.next()
	return <-p.resume
}

// Sleep waits for some time.
func (v *Virtual) Sleep(d time.Duration) {
	if d > 0 {
		v.Wait(nil, d)
	}
}

// After calls f after some time has passed. f must not wait.
func (v *Virtual) After(d time.Duration, f func()) {
	v.calls++
	heap.Push(&v.timers, &timer{at: v.now.Add(max(d, 0)), order: v.calls, call: f})
}

// park makes a process wait, forever if the limit is negative.
func (v *Virtual) park(p *process, limit time.Duration) {
	if limit >= 0 {
		v.calls++
		p.timer = &timer{at: v.now.Add(limit), order: v.calls, process: p}
		heap.Push(&v.timers, p.timer)
	}
	v.parked = append(v.parked, p)
}

// next passes control to the next process; the caller must not use the clock after the call, unless the next process is
// its own.
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

// timer is the time at which a process continues or a function is called.
type timer struct {
	at      time.Time
	order   int64
	process *process // process that continues; nil if a function is called
	call    func()
	index   int // index in the heap
}

// timers is a heap with the earliest timer first.
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

// Push appends a timer, for package heap.
func (t *timers) Push(x any) {
	x.(*timer).index = len(*t)
	*t = append(*t, x.(*timer))
}

// Pop removes the last timer, for package heap.
func (t *timers) Pop() any {
	last := len(*t) - 1
	x := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	return x
}
