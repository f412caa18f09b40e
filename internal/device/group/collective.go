package group

import (
	"fmt"
	"sync/atomic"
	"time"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
)

// Meet returns collective operations for ranks in host memory without a Group. Each rank must use its element from its
// own thread. If the other ranks wait for a rank for the timeout, all operations fail.
func Meet(ranks int, timeout time.Duration) []kernel.Collective {
	m, beats := &barrier{}, make([]*atomic.Uint64, ranks)
	for i := range beats {
		beats[i] = &atomic.Uint64{}
	}
	m.init(beats, timeout)
	var list []kernel.Collective
	for i := range ranks {
		list = append(list, &member{m, i})
	}
	return list
}

// member implements kernel.Collective for a rank. All ranks wait for each other. Each rank then computes its share of
// the result in the memory of all ranks, and they wait again, so that no rank changes its tensors before all have read
// them.
type member struct {
	*barrier
	rank int
}

// exchange waits for all ranks, does the rank's work and waits again.
func (m *member) exchange(c call, work func(m *member)) error {
	if err := m.arrive(m.rank, &c); err != nil {
		return err
	}
	work(m)
	return m.arrive(m.rank, nil)
}

// share returns the bounds of the rank's share of n elements; n need not be divisible by the number of ranks.
func (m *member) share(n int) (first, last int) {
	return n * m.rank / len(m.states), n * (m.rank + 1) / len(m.states)
}

// AllReduce sums the rank's share of the elements over all ranks and writes the sums to all ranks.
func (m *member) AllReduce(a kernel.AllReduceArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	return m.exchange(call{op: "all-reduce", x: a.X}, func(m *member) {
		first, last := m.share(a.X.Rows * a.X.Cols)
		if first == last {
			return
		}
		own := func(r int) kernel.Tensor {
			x := m.states[r].at.x
			x.Rows, x.Cols, x.Stride = 1, last, last
			return x.Columns(first, last)
		}
		m.sum(own(0), own)
		for r := 1; r < len(m.states); r++ {
			copy(host.Bytes(own(r)), host.Bytes(own(0)))
		}
	})
}

// sum writes the sum of a row of every rank to out, in the order of the ranks: in float32, rounded once if rows are
// bf16, as on GPUs. out may be the row of the first rank.
func (m *member) sum(out kernel.Tensor, row func(rank int) kernel.Tensor) {
	if out.DType == kernel.F32 {
		to := host.F32(out)
		copy(to, host.F32(row(0)))
		for r := 1; r < len(m.states); r++ {
			for i, v := range host.F32(row(r)) {
				to[i] += v
			}
		}
		return
	}
	sum := make([]float32, out.Cols)
	for r := range m.states {
		for i, v := range host.U16(row(r)) {
			if x := num.FromBF16(v); r == 0 {
				sum[i] = x
			} else {
				sum[i] += x
			}
		}
	}
	to := host.U16(out)
	for i, v := range sum {
		to[i] = num.BF16(v)
	}
}

// AllGather copies the rank's columns to all ranks.
func (m *member) AllGather(a kernel.AllGatherArgs) error {
	if err := a.Fits(len(m.states)); err != nil {
		return err
	}
	return m.exchange(call{op: "all-gather", x: a.X, out: a.Out}, func(m *member) {
		for r := range m.states {
			to := m.states[r].at.out.Columns(m.rank*a.X.Cols, (m.rank+1)*a.X.Cols)
			for t := range a.X.Rows {
				copy(host.Bytes(to.Slice(t, t+1)), host.Bytes(a.X.Slice(t, t+1)))
			}
		}
	})
}

// ReduceScatter sums the rank's columns over all ranks.
func (m *member) ReduceScatter(a kernel.ReduceScatterArgs) error {
	if err := a.Fits(len(m.states)); err != nil {
		return err
	}
	return m.exchange(call{op: "reduce-scatter", x: a.X, out: a.Out}, func(m *member) {
		for t := range a.Out.Rows {
			m.sum(a.Out.Slice(t, t+1), func(r int) kernel.Tensor {
				return m.states[r].at.x.Slice(t, t+1).Columns(m.rank*a.Out.Cols, (m.rank+1)*a.Out.Cols)
			})
		}
	})
}

// Broadcast copies the rows of rank a.From to this rank.
func (m *member) Broadcast(a kernel.BroadcastArgs) error {
	if err := a.Fits(len(m.states)); err != nil {
		return err
	}
	return m.exchange(call{op: fmt.Sprintf("broadcast from rank %d", a.From), x: a.X}, func(m *member) {
		if m.rank == a.From {
			return
		}
		for t := range a.X.Rows {
			copy(host.Bytes(a.X.Slice(t, t+1)), host.Bytes(m.states[a.From].at.x.Slice(t, t+1)))
		}
	})
}

// ShareRows copies the rank's rows to all other ranks.
func (m *member) ShareRows(a kernel.ShareArgs) error {
	if err := a.Fits(len(m.states)); err != nil {
		return err
	}
	return m.exchange(call{op: "share of rows", x: a.X}, func(m *member) {
		for r := range m.states {
			for t := a.Bounds[m.rank]; t < a.Bounds[m.rank+1] && r != m.rank; t++ {
				copy(host.Bytes(m.states[r].at.x.Slice(t, t+1)), host.Bytes(a.X.Slice(t, t+1)))
			}
		}
	})
}
