package pool

import (
	"sync/atomic"
	"unsafe"
)

// member has the fields that one worker writes during a run. It fills two cache lines, because processors fetch lines
// in pairs.
type member struct {
	memberState
	_ [128 - unsafe.Sizeof(memberState{})]byte
}

type memberState struct {
	inside atomic.Bool
	// claimed is the number of items of this worker's share that are taken, by this worker or by others, together with
	// the number of the run: number of the run << countBits | count. A number of another run means 0 items, so the
	// field need not be reset between runs.
	claimed atomic.Uint64
	parker
}

const (
	countBits = 28
	maxItems  = 1<<countBits - 1 // maximum number of items of a share
	// resetRuns is the number of runs after which claims are reset, before run numbers in them overflow.
	resetRuns = 1 << 20
)

// share returns the items of a worker. The shares of all workers are consecutive, and their sizes differ by at most
// one. They depend only on the number of items, so that in every such run a worker reads the same part of memory. A
// worker beyond the number of items has none.
func share(items, worker, workers int) (first, n int) {
	if worker >= workers {
		return items, 0
	}
	each, more := items/workers, items%workers
	first, n = worker*each+min(worker, more), each
	if worker < more {
		n++
	}
	return first, n
}

// claim takes half of the unclaimed items of worker v's share. The items are adjacent, because adjacent items read
// adjacent memory; other workers can take the other half.
func (p *Pool) claim(v int, run uint64) (first, n int) {
	m := &p.members[v]
	start, size := share(p.items, v, p.Limit())
	for {
		word := m.claimed.Load()
		done := 0
		if word>>countBits == run&(1<<(64-countBits)-1) {
			done = int(word & maxItems)
		}
		if done >= size {
			return 0, 0
		}
		n = (size - done + 1) / 2
		if m.claimed.CompareAndSwap(word, run<<countBits|uint64(done+n)) {
			if done+n == size {
				p.left[v%leftGroups].Add(-1)
			}
			return start + done, n
		}
	}
}
