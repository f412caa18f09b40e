package pool

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sparrow/internal/testkit/await"
)

// open returns a pool that is closed at the end of the test, where the error of Close is checked.
func open(t testing.TB, workers int) *Pool {
	t.Helper()
	p := New(workers)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

func TestEveryItemIsDoneOnce(t *testing.T) {
	for _, workers := range []int{-1, 1, 2, 3, 7, 16} {
		p := open(t, workers)
		for _, items := range []int{0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 1000} {
			done := make([]atomic.Int32, items)
			err := p.Run(items, Func(func(worker, item int) {
				if worker < 0 || worker >= p.Workers() {
					t.Errorf("worker %d of %d", worker, p.Workers())
				}
				done[item].Add(1)
			}))
			if err != nil {
				t.Fatal(err)
			}
			for i := range done {
				if n := done[i].Load(); n != 1 {
					t.Fatalf("workers=%d items=%d: item %d done %d times", workers, items, i, n)
				}
			}
		}
	}
}

// In many short runs, calls with the same worker number never overlap.
func TestWorkerNumbersAreExclusive(t *testing.T) {
	p := open(t, 4)
	inside := make([]atomic.Int32, p.Workers())
	var total int64
	sums := make([]int64, p.Workers()) // not atomic, so that the race detector checks it
	for run := range 2000 {
		err := p.Run(5, Func(func(worker, item int) {
			if inside[worker].Add(1) != 1 {
				t.Errorf("two calls on worker %d at once", worker)
			}
			sums[worker] += int64(item)
			inside[worker].Add(-1)
		}))
		if err != nil {
			t.Fatal(err)
		}
		if run%500 == 0 {
			time.Sleep(time.Millisecond) // lets the workers park
		}
	}
	for _, s := range sums {
		total += s
	}
	if total != 2000*10 {
		t.Fatalf("sum of items is %d, want %d", total, 2000*10)
	}
}

// After Run returns, the caller can read all memory that the tasks wrote, without locks.
func TestRunOrdersMemory(t *testing.T) {
	p := open(t, 3)
	values := make([]int, 100)
	for round := 1; round <= 50; round++ {
		if err := p.Run(len(values), Func(func(_, item int) { values[item]++ })); err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			if v != round {
				t.Fatalf("round %d: value %d is %d", round, i, v)
			}
		}
	}
}

func TestWorkIsShared(t *testing.T) {
	p := open(t, 2)
	var mu sync.Mutex
	by := map[int]int{}
	// Two items that wait for each other can end only if two workers run them.
	var met sync.WaitGroup
	met.Add(2)
	err := p.Run(2, Func(func(worker, _ int) {
		met.Done()
		met.Wait()
		mu.Lock()
		by[worker]++
		mu.Unlock()
	}))
	if err != nil || len(by) != 2 {
		t.Fatalf("workers used: %v, error %v", by, err)
	}
}

func TestPanicIsReturnedAndThePoolSurvives(t *testing.T) {
	p := open(t, 3)
	boom := errors.New("boom")
	for range 50 {
		err := p.Run(100, Func(func(_, item int) {
			if item == 42 {
				panic(fmt.Errorf("tile: %w", boom))
			}
		}))
		var fault *PanicError
		if !errors.As(err, &fault) || fault.Item != 42 || len(fault.Stack) == 0 {
			t.Fatalf("error is %v", err)
		}
		if !errors.Is(err, boom) {
			t.Fatalf("the panic's own error is lost: %v", err)
		}
		var n atomic.Int32
		if err := p.Run(10, Func(func(_, _ int) { n.Add(1) })); err != nil || n.Load() != 10 {
			t.Fatalf("after a panic: %d items, error %v", n.Load(), err)
		}
	}
}

// A task that ends its goroutine, as testing's FailNow does, makes its run fail, and the worker is replaced.
func TestGoexitIsReturnedAndTheWorkerReplaced(t *testing.T) {
	p := open(t, 2)
	for range 20 {
		var met sync.WaitGroup
		met.Add(2)
		err := p.Run(2, Func(func(worker, _ int) {
			met.Done()
			met.Wait()
			if worker != 0 {
				runtime.Goexit()
			}
		}))
		var fault *PanicError
		if !errors.As(err, &fault) || fault.Worker != 1 || fault.Value != nil {
			t.Fatalf("error is %v", err)
		}
	}
}

func TestGoexitOfTheOwnerLeavesThePoolUsable(t *testing.T) {
	p := open(t, 2)
	var gone sync.WaitGroup
	gone.Go(func() {
		_ = p.Run(8, Func(func(worker, _ int) {
			if worker == 0 {
				runtime.Goexit()
			}
		}))
	})
	gone.Wait()
	if err := p.Run(3, Func(func(_, _ int) {})); err != nil {
		t.Fatal(err)
	}
}

func TestNestedAndConcurrentRunsAreErrors(t *testing.T) {
	p := open(t, 2)
	var nested, closing error
	err := p.Run(1, Func(func(_, _ int) {
		nested = p.Run(1, Func(func(_, _ int) { t.Error("nested item ran") }))
		closing = p.Close()
	}))
	if err != nil || !errors.Is(nested, ErrBusy) || !errors.Is(closing, ErrBusy) {
		t.Fatalf("run: %v, nested: %v, close: %v", err, nested, closing)
	}
	if err := p.Run(1, Func(func(_, _ int) {})); err != nil {
		t.Fatalf("after a nested run: %v", err)
	}
}

func TestCloseStopsTheWorkers(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		p := New(4)
		if err := p.Run(3, Func(func(_, _ int) {})); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Run(1, Func(func(_, _ int) {})); !errors.Is(err, ErrClosed) {
			t.Fatalf("run after close: %v", err)
		}
	}
	await.Goroutines(t, before)
}

// ranges is a task that counts how often each item was done.
type ranges struct{ done []atomic.Int32 }

func (r *ranges) Do(_, _ int) { panic("a Ranger's items come in ranges") }

func (r *ranges) DoRange(_, first, end int) {
	for i := first; i < end; i++ {
		r.done[i].Add(1)
	}
}

func TestRangesCoverTheItems(t *testing.T) {
	p := open(t, 3)
	for _, items := range []int{1, 2, 3, 64, 1000} {
		r := &ranges{done: make([]atomic.Int32, items)}
		if err := p.Run(items, r); err != nil {
			t.Fatal(err)
		}
		for i := range r.done {
			if n := r.done[i].Load(); n != 1 {
				t.Fatalf("%d items: item %d done %d times", items, i, n)
			}
		}
	}
}

// Waiting workers call the idle function with their number until it reports that it has nothing to do.
func TestWaitingWorkersAreIdle(t *testing.T) {
	var left [3]atomic.Int32
	for w := range left {
		left[w].Store(10)
	}
	p := NewIdle(len(left), func(worker int) bool { return left[worker].Load() > 0 && left[worker].Add(-1) >= 0 })
	t.Cleanup(func() { p.Close() })
	await.True(t, "workers that wait call idle", func() bool {
		// A worker that has parked is woken by a run.
		if err := p.Run(3, Func(func(_, _ int) { time.Sleep(10 * time.Microsecond) })); err != nil {
			t.Fatal(err)
		}
		return left[1].Load()+left[2].Load() <= 0
	})
}

// count is a Task without a closure.
type count struct{ n atomic.Int64 }

func (c *count) Do(_, _ int) { c.n.Add(1) }

func TestRunDoesNotAllocate(t *testing.T) {
	p := open(t, 2)
	task := &count{}
	if n := testing.AllocsPerRun(100, func() {
		if err := p.Run(16, task); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Fatalf("%v allocations per run", n)
	}
}

func BenchmarkRun(b *testing.B) {
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprint(workers), func(b *testing.B) {
			p := open(b, workers)
			task := &count{}
			for b.Loop() {
				if err := p.Run(workers, task); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Workers that are kept awake do not park between runs. They park after they are no longer kept awake.
func TestKeptAwake(t *testing.T) {
	p := New(3)
	defer p.Close()
	parked := func() (n int) {
		for i := range p.members[1:] {
			if p.members[1+i].parked.Load() {
				n++
			}
		}
		return n
	}
	reaches := func(want int) {
		t.Helper()
		await.True(t, "workers park, or are awake", func() bool { return parked() == want })
	}
	reaches(2)
	for range 3 {
		p.KeepAwake(true)
		reaches(0)
		for range 20 {
			var done atomic.Int32
			if err := p.Run(9, Func(func(int, int) { done.Add(1) })); err != nil || done.Load() != 9 {
				t.Fatalf("%d of 9 items, %v", done.Load(), err)
			}
		}
		time.Sleep(2 * time.Duration(longSpin))
		if n := parked(); n != 0 {
			t.Errorf("%d workers are parked", n)
		}
		p.KeepAwake(false)
		reaches(2)
	}
}

// With a limit, every item is done once by the workers within the limit. Workers beyond the limit park, and run again
// when the limit is raised.
func TestLimit(t *testing.T) {
	p := open(t, 4)
	for _, limit := range []int{4, 2, 1, 3, 9, 0} {
		p.SetLimit(limit)
		if want := min(max(limit, 1), 4); p.Limit() != want {
			t.Fatalf("limit %d is taken as %d", limit, p.Limit())
		}
		for _, items := range []int{2, 3, 50} {
			seen := make([]atomic.Int32, items)
			runs := 0
			for late := true; late; runs++ { // a worker may have started before the limit was set
				late = false
				var took [4]atomic.Int32
				if err := p.Run(items, Func(func(w, i int) { seen[i].Add(1); took[w].Add(1) })); err != nil {
					t.Fatal(err)
				}
				for w := p.Limit(); w < 4; w++ {
					late = late || took[w].Load() > 0
				}
				if runs > 1000 {
					t.Fatalf("workers beyond the limit of %d take part in run after run", p.Limit())
				}
			}
			for i := range seen {
				if n := seen[i].Load(); int(n) != runs {
					t.Fatalf("limit %d: item %d of %d was done %d times in %d runs", limit, i, items, n, runs)
				}
			}
		}
	}
	p.SetLimit(2)
	if err := p.Run(2, &count{}); err != nil {
		t.Fatal(err)
	}
	parked := func() bool { return p.members[2].parked.Load() && p.members[3].parked.Load() }
	await.True(t, "workers beyond the limit park", parked)
	p.SetLimit(4)
	var all sync.WaitGroup // each item waits for all other items
	all.Add(4)
	if err := p.Run(4, Func(func(_, _ int) { all.Done(); all.Wait() })); err != nil {
		t.Fatal(err)
	}
	for items := range 9 { // items are divided among the workers within the limit
		p.SetLimit(3)
		next := 0
		for w := range 4 {
			first, n := p.Share(items, w)
			if n > 0 && first != next || w == 3 && n > 0 {
				t.Errorf("worker %d has %d of %d items from %d on", w, n, items, first)
			}
			next += n
		}
		if next != items {
			t.Errorf("shares have %d of %d items", next, items)
		}
	}
}
