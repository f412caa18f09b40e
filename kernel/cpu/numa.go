package cpu

import (
	"runtime"

	"sparrow/internal/numa"
)

// binding keeps each worker on the processors of its memory node. Matrix products of few rows are limited by reading
// weights, so weights are divided such that each worker reads rows in the memory of its node.
type binding struct {
	*numa.Layout
	owner int // system id of the thread to which worker 0 was bound
}

// bind binds the calling goroutine to its thread, and the thread to the processors of the worker. Worker 0 is any
// caller that starts a run, and calls bind in each run. Whether the system allows binding was checked when the nodes
// were read; if it does not, the worker runs on any processor.
func (b *binding) bind(worker int) {
	runtime.LockOSThread()
	if worker == 0 {
		if thread := b.Thread(); thread != b.owner {
			b.owner = thread
		} else {
			runtime.UnlockOSThread() // an earlier call has locked the thread
			return
		}
	}
	_ = b.BindWorker(worker)
}

// spread divides the weight of every part among the nodes: the list has first the rows of all parts on the first node,
// then those on the next node.
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
