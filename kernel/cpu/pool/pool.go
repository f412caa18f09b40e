// Package pool runs the items of one task on a fixed set of workers: a
// parallel for-loop with a low cost of starting and ending. A count and a
// [Task] flow in; Run returns when every item is done. It is independent of
// what the items compute, keeps no queue and starts no goroutine per run.
package pool

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Task is the body of a parallel loop. Do is called once for every item, from
// several goroutines at once, in no particular order. Worker numbers lie in
// [0, Workers); no two calls with the same number overlap, so it may index
// scratch memory. A Task kept by the caller makes Run free of allocations.
type Task interface {
	Do(worker, item int)
}

// Func is a Task made of a function. The closure is usually an allocation.
type Func func(worker, item int)

// Do calls f.
func (f Func) Do(worker, item int) { f(worker, item) }

// Pool is a set of workers. The goroutine that calls Run is worker 0; the
// others wait, first spinning, then parked. One goroutine at a time may use a
// Pool, and Close releases it.
type Pool struct {
	workers int
	owner   parker // the goroutine inside Run, as worker 0
	waiters []parker
	done    sync.WaitGroup
	busy    atomic.Bool
	closed  bool // guarded by busy

	// gate admits workers to the current run; see gate.go.
	gate gate

	spin spinLimit // see spin.go

	// The run in progress, written only while the gate is shut and no worker is inside.
	task  Task
	items int
	next  atomic.Int64 // first unclaimed item
	fault atomic.Pointer[PanicError]
}

// New starts a pool of the given number of workers, at least one, of which
// one is the caller of Run.
func New(workers int) *Pool {
	workers = max(workers, 1)
	p := &Pool{workers: workers, waiters: make([]parker, workers-1)}
	p.owner.init()
	p.spin.init()
	for i := range p.waiters {
		p.waiters[i].init()
		p.start(i + 1)
	}
	return p
}

// Workers is the number of workers, the caller of Run included.
func (p *Pool) Workers() int { return p.workers }

// Run calls task.Do for every item in [0, items) and returns when all calls
// have returned. After a panic in a task no further items are started; the panic is
// returned as a *PanicError; the pool stays usable. Run on a pool that is
// already running returns ErrBusy without calling the task.
func (p *Pool) Run(items int, task Task) error {
	if !p.busy.CompareAndSwap(false, true) {
		return ErrBusy
	}
	defer p.busy.Store(false)
	if p.closed {
		return ErrClosed
	}
	if items <= 0 {
		return nil
	}
	defer p.end() // also when a task ends this goroutine
	p.task, p.items = task, items
	p.fault.Store(nil)
	p.next.Store(0)
	if items > 1 { // else there is nothing to share
		p.gate.open()
		p.wake(items - 1)
	}
	begin := p.spin.now()
	before := debug.SetPanicOnFault(true) // as in serve
	p.work(0)
	debug.SetPanicOnFault(before)
	own := p.spin.now()
	p.settle()
	p.spin.ran(begin, own, p.spin.now())
	if f := p.fault.Load(); f != nil {
		return f
	}
	return nil
}

// Close stops the workers and waits for them. It returns ErrBusy, and does
// nothing, while a Run is in progress; it may be called twice.
func (p *Pool) Close() error {
	if !p.busy.CompareAndSwap(false, true) {
		return ErrBusy
	}
	defer p.busy.Store(false)
	if p.closed {
		return nil
	}
	p.closed = true
	p.gate.retire()
	p.wake(len(p.waiters))
	p.done.Wait()
	return nil
}

// settle shuts the gate and waits for the workers inside. A worker that
// never entered is not waited for.
func (p *Pool) settle() {
	if p.gate.shut() {
		return
	}
	p.owner.wait(p.gate.empty, &p.spin)
}

// end clears the state of the run, also when Run ends by a panic.
func (p *Pool) end() {
	p.settle()
	p.task = nil
}

// wake wakes at most that many workers.
func (p *Pool) wake(most int) {
	for i := range p.waiters[:min(most, len(p.waiters))] {
		p.waiters[i].wake()
	}
}

// start runs worker number w until the pool closes.
func (p *Pool) start(w int) {
	p.done.Add(1)
	go p.serve(w)
}

// serve joins run after run. If a task ends this goroutine, a new one takes
// over the number.
func (p *Pool) serve(w int) {
	defer p.done.Done()
	// Tasks read mapped files. Where one was truncated, a read is a fault: it becomes a panic of the item instead of
	// the end of the process.
	debug.SetPanicOnFault(true)
	self := &p.waiters[w-1]
	var seen uint32
	inside := false
	defer func() {
		if inside {
			p.start(w)
			p.leave()
		}
	}()
	for {
		self.wait(func() bool { return p.gate.changed(seen) }, &p.spin)
		state, entered := p.gate.enter()
		if state.retired() {
			return
		}
		seen = state.run()
		if entered {
			inside = true
			p.work(w)
			inside = false
			p.leave()
		}
	}
}

func (p *Pool) leave() {
	if p.gate.leave() {
		p.owner.wake()
	}
}

// work claims ranges of items and runs them until none are left. A claim is a fraction of the remaining items: long at
// first, because adjacent items read adjacent memory, and single items at the end, so that workers finish together.
func (p *Pool) work(w int) {
	for {
		first := p.next.Load()
		left := int64(p.items) - first
		if left <= 0 {
			return
		}
		n := max(1, left/int64(2*p.workers))
		if p.next.CompareAndSwap(first, first+n) {
			p.do(w, int(first), int(first+n))
		}
	}
}

// do runs items [item, end). It turns a panic into the run's fault and moves
// the claim counter to the end so that the run ends.
func (p *Pool) do(w, item, end int) {
	defer func() {
		if item == end {
			return
		}
		f := &PanicError{Item: item, Worker: w, Value: recover(), Stack: debug.Stack()}
		p.fault.CompareAndSwap(nil, f)
		p.next.Store(int64(p.items))
	}()
	for ; item < end; item++ {
		p.task.Do(w, item)
	}
}
