package cpu

import (
	"runtime"

	"sparrow/internal/numa"
)

// binding keeps each worker on the processors of its memory node. Matrix products of few rows are limited by reading
// weights, so they are divided such that a worker reads the rows that are on its node.
type binding struct {
	*numa.Layout
	owner int // the thread that worker 0 was bound on
}

// bind binds the calling goroutine, which stays on its thread from then on. Worker 0 is any caller that starts a run,
// and calls this each time. Whether the system allows binding was checked when the nodes were read; if it does not,
// the worker runs on any processor.
func (b *binding) bind(worker int) {
	runtime.LockOSThread()
	if worker == 0 {
		if thread := b.Thread(); thread != b.owner {
			b.owner = thread
		} else {
			runtime.UnlockOSThread() // locked before
			return
		}
	}
	_ = b.BindWorker(worker)
}

// spread divides the weight of every part among the nodes: first all rows of the first node, then the rows of the
// next.
func (st *multiplyState) spread(nodes *numa.Layout) {
	whole := st.parts
	for node := 1; node < nodes.Count(); node++ {
		for _, p := range whole {
			p.from, p.to = nodes.Rows(p.w.Out(), node)
			st.parts = append(st.parts, p)
		}
	}
	for i := range whole {
		p := &st.parts[i]
		p.from, p.to = nodes.Rows(p.w.Out(), 0)
	}
}
