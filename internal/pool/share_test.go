package pool

import (
	"sync/atomic"
	"testing"
	"unsafe"
)

// Shares are consecutive, cover every item, and differ in size by at most one; the first workers have the larger
// shares.
func TestSharesCoverTheItems(t *testing.T) {
	for workers := 1; workers <= 17; workers++ {
		for items := range 70 {
			next, last := 0, items
			for w := range workers {
				first, n := share(items, w, workers)
				if first != next || n > last || n < items/workers {
					t.Fatalf("%d items, worker %d of %d: %d from %d on, after %d", items, w, workers, n, first, next)
				}
				next, last = first+n, n
			}
			if next != items {
				t.Fatalf("%d items on %d workers: shares end at %d", items, workers, next)
			}
		}
	}
}

// Claims start at zero in every run, including when run numbers wrap around and when the run number no longer fits into
// a word together with the count.
func TestClaimsBeginAnew(t *testing.T) {
	for _, begin := range []uint64{0, resetRuns - 3, 1<<(64-countBits) - 3} {
		p := open(t, 3)
		p.gate.word.Store(begin << 2)
		for run := range 8 {
			var done atomic.Int64
			if err := p.Run(50, Func(func(_, item int) { done.Add(1 << (item % 50)) })); err != nil {
				t.Fatal(err)
			}
			if done.Load() != 1<<50-1 {
				t.Fatalf("run %d after %d: items %b", run, begin, done.Load())
			}
		}
	}
}

// With more workers than processors and items of very different length, all items are done, and no worker waits for a
// worker that does not run.
func TestOversubscribed(t *testing.T) {
	p := open(t, 64)
	for range 200 {
		var sum atomic.Int64
		err := p.Run(100, Func(func(_, item int) {
			n := 1
			for range (item % 7) * 1000 {
				n = -n
			}
			sum.Add(int64(n * n))
		}))
		if err != nil || sum.Load() != 100 {
			t.Fatalf("%d items, %v", sum.Load(), err)
		}
	}
}

func TestMembersShareNoLine(t *testing.T) {
	if n := unsafe.Sizeof(member{}); n != 128 {
		t.Errorf("a member has %d bytes, want 128", n)
	}
}
