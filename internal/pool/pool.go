// Package pool runs the items of one task on a fixed set of workers: a parallel for-loop that is cheap to start and
// end. Its input is a number of items and a [Task]; Run returns when every item is done. A run uses no queue and starts
// no goroutine.
package pool

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Task is the body of a parallel loop. Do is called once for every item, from several goroutines at once, in no
// particular order. Worker numbers are in [0, Workers); calls with equal worker numbers do not overlap, so the number
// may index scratch memory. If the caller keeps the Task, Run does not allocate.
type Task interface {
	Do(worker, item int)
}

// Ranger is a Task that runs all items [first, end) that a worker claims together in one call.
type Ranger interface {
	Task
	DoRange(worker, first, end int)
}

// Func is a Task made of a function. The closure is usually an allocation.
type Func func(worker, item int)

// Do calls f.
func (f Func) Do(worker, item int) { f(worker, item) }

// Pool is a set of workers. The goroutine that calls Run is worker 0; the other workers wait, first spinning, then
// parked. One goroutine at a time may use a Pool, and Close releases it.
//
// Every worker has a share of the items of a run. The share depends only on the numbers of items and workers. A worker
// that has finished its own share takes items of other workers.
type Pool struct {
	workers int
	idle    []func() bool // idle function of every worker; nil if there is none
	bind    func(worker int)
	owner   parker   // waiter of the goroutine inside Run, worker 0
	members []member // one for every worker; worker 0 waits with owner
	done    sync.WaitGroup
	busy    atomic.Bool
	closed  bool // guarded by busy
	spin    spinLimit

	_ [128]byte
	// gate lets workers enter the current run (gate.go). The fields below are written only while the gate is closed and
	// no worker is inside.
	gate  gate
	task  Task
	items int
	limit atomic.Int32 // number of workers that take part in runs
	fault atomic.Pointer[PanicError]
	_     [128]byte
	// left is the number of shares with unclaimed items, counted separately for groups of shares. A worker whose own
	// share is finished reads these counters instead of a cache line of every other worker.
	left [leftGroups]leftCount
}

// leftGroups is the number of counters of shares with unclaimed items. A single counter would be written by all
// workers: a run of two items for each of 16 workers took 5.4 microseconds with one counter, and 3.8 with four.
const leftGroups = 4

// leftCount fills two cache lines, because processors fetch lines in pairs.
type leftCount struct {
	atomic.Int64
	_ [128 - unsafe.Sizeof(atomic.Int64{})]byte
}

// New starts a pool of the given number of workers, at least one. The caller of Run is one of them.
func New(workers int) *Pool { return NewIdle(workers, nil) }

// NewIdle is like New, with a function that waiting workers call until the next run, or the end of a run. Each worker
// calls idle repeatedly, with its number, until it returns false, which means that it had no work. A call takes less
// than a microsecond.
func NewIdle(workers int, idle func(worker int) bool) *Pool { return NewBound(workers, idle, nil) }

// NewBound is like NewIdle, with a function that each worker calls with its number before it works. Workers call bind
// once; the caller of Run, which may be another goroutine each time, calls it in every run. A goroutine that bind locks
// to its thread stays locked.
func NewBound(workers int, idle func(worker int) bool, bind func(worker int)) *Pool {
	workers = max(workers, 1)
	p := &Pool{workers: workers, idle: make([]func() bool, workers), bind: bind, members: make([]member, workers)}
	for w := range p.idle {
		if idle != nil {
			p.idle[w] = func() bool { return idle(w) }
		}
	}
	p.limit.Store(int32(workers))
	p.owner.init()
	p.spin.init(workers)
	for i := range p.members[1:] {
		p.members[1+i].init()
		p.start(1 + i)
	}
	return p
}

// Workers returns the number of workers, the caller of Run included.
func (p *Pool) Workers() int { return p.workers }

// SetLimit restricts later runs to the first n workers, at least one. The other workers park, so that other threads can
// use their processors. The goroutine that calls Run may call SetLimit between runs.
func (p *Pool) SetLimit(n int) {
	if n = min(max(n, 1), p.workers); n != p.Limit() {
		p.limit.Store(int32(n))
	}
}

// Limit returns the number of workers that take part in runs.
func (p *Pool) Limit() int { return int(p.limit.Load()) }

// Share returns the items that a worker takes first in a run with the given number of items: n items, starting at
// first.
func (p *Pool) Share(items, worker int) (first, n int) { return share(items, worker, p.Limit()) }

// Run calls task.Do for every item in [0, items) and returns when all calls have returned. After a panic in a task no
// further items are started; Run returns the panic as a *PanicError, and the pool can be used again. If another Run is
// in progress, it returns ErrBusy without calling the task.
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
	if items/p.Limit() >= maxItems {
		return fmt.Errorf("pool: the run has %d items for %d workers, want at most %d items per worker", items,
			p.Limit(), maxItems)
	}
	if p.bind != nil {
		p.bind(0)
	}
	defer p.end() // runs also if a task ends this goroutine
	p.task, p.items = task, items
	p.fault.Store(nil)
	before := debug.SetPanicOnFault(true) // restored below; serve sets it for the other workers
	if items == 1 {                       // a single item: no other worker is needed
		p.do(0, 0, 1)
		debug.SetPanicOnFault(before)
	} else {
		begin := p.spin.now()
		run := p.open()
		p.wake(min(items, p.Limit()) - 1)
		p.work(0, run)
		debug.SetPanicOnFault(before)
		own := p.spin.now()
		p.settle()
		p.spin.ran(begin, own, p.spin.now())
	}
	if f := p.fault.Load(); f != nil {
		return f
	}
	return nil
}

// KeepAwake(true) makes workers spin instead of parking until KeepAwake(false) is called. Use it if the processors have
// no other work, because waking many parked workers takes a millisecond.
func (p *Pool) KeepAwake(on bool) {
	if p.spin.awake.Store(on); on {
		p.wake(p.workers - 1)
	}
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
	p.wake(p.workers - 1)
	p.done.Wait()
	return nil
}

// open admits workers to the next run and returns its number.
func (p *Pool) open() uint64 {
	if p.gate.state().run()%resetRuns == 0 {
		for i := range p.members {
			p.members[i].claimed.Store(0)
		}
	}
	n := min(p.items, p.Limit())
	for i := range p.left {
		p.left[i].Store(int64((n + leftGroups - 1 - i) / leftGroups))
	}
	return p.gate.open()
}

// settle closes the gate and waits for the workers inside. It does not wait for workers that never entered.
func (p *Pool) settle() {
	p.gate.shut()
	if !p.empty() {
		p.owner.wait(p.empty, p.idle[0], &p.spin)
	}
}

// empty reports whether all workers have left. The gate must be shut.
func (p *Pool) empty() bool {
	for i := range p.members {
		if p.members[i].inside.Load() {
			return false
		}
	}
	return true
}

// end clears the state of the run. It also runs if a task ends this goroutine.
func (p *Pool) end() {
	if p.gate.state().open() { // an unnecessary write would invalidate the cache line of all workers that poll it
		p.settle()
	}
	p.task = nil
}

// wake wakes at most the given number of workers.
func (p *Pool) wake(most int) {
	for i := range p.members[1:min(1+most, p.workers)] {
		p.members[1+i].wake()
	}
}

// start runs worker number w until the pool closes.
func (p *Pool) start(w int) {
	p.done.Add(1)
	go p.serve(w)
}

// serve takes part in one run after another. If a task ends this goroutine, a new goroutine continues with the worker's
// number.
func (p *Pool) serve(w int) {
	defer p.done.Done()
	// Tasks read mapped files. If a file was truncated, a read causes a fault; with this setting it is a panic of the
	// item and does not end the process.
	debug.SetPanicOnFault(true)
	if p.bind != nil {
		p.bind(w)
	}
	self, idle := &p.members[w], p.idle[w]
	var seen uint64
	ready := func() bool {
		s := p.gate.state()
		return s.run() != seen && w < p.Limit() || s.retired()
	}
	inside := false
	defer func() {
		if inside {
			p.leave(self)
			p.start(w)
		}
	}()
	for {
		self.wait(ready, idle, &p.spin)
		state := p.gate.state()
		if state.retired() {
			return
		}
		seen = state.run()
		if !state.open() {
			continue
		}
		self.inside.Store(true)
		if p.gate.state() == state {
			inside = true
			p.work(w, seen)
			inside = false
		}
		p.leave(self)
	}
}

func (p *Pool) leave(m *member) {
	m.inside.Store(false)
	p.owner.wake()
}

// work runs the items of a worker's share, and then unclaimed items of other workers until there are none. A worker
// above the limit that is still running has no share and only takes items of others.
func (p *Pool) work(w int, run uint64) {
	limit := p.Limit()
	for i := range limit {
		if i > 0 && p.allClaimed() {
			return
		}
		v := (w + i) % limit
		for p.fault.Load() == nil {
			first, n := p.claim(v, run)
			if n == 0 {
				break
			}
			p.do(w, first, first+n)
		}
	}
}

// allClaimed reports whether all items of the run are claimed.
func (p *Pool) allClaimed() bool {
	for i := range p.left {
		if p.left[i].Load() > 0 {
			return false
		}
	}
	return true
}

// do runs items [item, end). It stores a panic as the error of the run, after which no more items are claimed.
func (p *Pool) do(w, item, end int) {
	defer func() {
		if item == end {
			return
		}
		f := &PanicError{Item: item, Worker: w, Value: recover(), Stack: debug.Stack()}
		p.fault.CompareAndSwap(nil, f)
	}()
	if r, ok := p.task.(Ranger); ok {
		r.DoRange(w, item, end)
		item = end
	}
	for ; item < end; item++ {
		p.task.Do(w, item)
	}
}
