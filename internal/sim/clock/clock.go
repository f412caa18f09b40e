// Package clock is a virtual clock: time advances only when all processes wait, and then at once.
//
// Processes are functions that wait; each runs in its own goroutine, one at a time, until it waits or ends. Then the
// next one runs: the first whose channel has a value, or else the one with the earliest time, in the order of waiting
// if times are equal. So a run depends only on the processes, and an hour takes as long as the work in it.
package clock

import (
	"container/heap"
	"errors"
	"slices"
	"time"
)

// ErrStuck means that all processes wait for each other.
var ErrStuck = errors.New("clock: every process waits, and none has a time at which it continues")

// Virtual is a virtual clock. Only its processes and the one caller of Run use it. It implements engine.Clock.
type Virtual struct {
	now    time.Time
	calls  int64 // orders timers of the same time
	timers timers
	parked []*process // that wait, in order of their waiting
	count  int        // processes that have not ended
	driver chan error // to the caller of Run
	done   bool       // the function of Run has returned
}

// process is a goroutine that waits.
type process struct {
	resume chan bool // its turn: whether its channel had a value
	wake   <-chan struct{}
	timer  *timer // nil without a limit
}

// New makes a clock that starts at a time.
func New(at time.Time) *Virtual { return &Virtual{now: at, driver: make(chan error, 1)} }

// Now returns the time.
func (v *Virtual) Now() time.Time { return v.now }

// Processes returns the number of processes that have not ended.
func (v *Virtual) Processes() int { return v.count }

// Run runs f as a process, and all others while it waits, until f returns; processes that have not ended wait for the
// next Run. It fails if all of them wait forever; then the clock cannot be used any more.
func (v *Virtual) Run(f func()) error {
	v.done = false
	v.Go(func() {
		f()
		v.done = true
	})
	v.next()
	return <-v.driver
}

// Go makes f a process. It begins when its caller waits.
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

// park makes a process wait, forever with a negative limit.
func (v *Virtual) park(p *process, limit time.Duration) {
	if limit >= 0 {
		v.calls++
		p.timer = &timer{at: v.now.Add(limit), order: v.calls, process: p}
		heap.Push(&v.timers, p.timer)
	}
	v.parked = append(v.parked, p)
}

// next passes control to the next process; the caller stops using the clock, unless that process is its own.
func (v *Virtual) next() {
	if v.done {
		v.done = false
		v.driver <- nil
		return
	}
	for {
		for i, p := range v.parked {
			select {
			case <-p.wake: // never of a nil channel
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
	process *process // or
	call    func()
	index   int // in the heap
}

// timers is a heap, the earliest first.
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

// Push is for package heap.
func (t *timers) Push(x any) {
	x.(*timer).index = len(*t)
	*t = append(*t, x.(*timer))
}

// Pop is for package heap.
func (t *timers) Pop() any {
	last := len(*t) - 1
	x := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	return x
}
