package group

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/host"
)

// Meet makes the collective operations of ranks in host memory that are no group: each is used by a thread of its own.
// One that keeps the others waiting for the time-out ends them.
func Meet(ranks int, timeout time.Duration) []kernel.Collective {
	m, beats := &meeting{}, make([]*atomic.Uint64, ranks)
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

// member is a rank's kernel.Collective. Ranks meet, each does its share of the work in the memory of all, and they meet
// again: what each of them posted is not read after that.
type member struct {
	*meeting
	rank int
}

// exchange lets ranks meet, work and meet again.
func (m *member) exchange(c call, work func(m *member)) error {
	if err := m.come(m.rank, &c); err != nil {
		return err
	}
	work(m)
	return m.come(m.rank, nil)
}

// share is the rank's share of n elements, which need not divide.
func (m *member) share(n int) (first, last int) {
	return n * m.rank / len(m.seats), n * (m.rank + 1) / len(m.seats)
}

// AllReduce sums a share of the elements and writes it to all ranks.
func (m *member) AllReduce(a kernel.AllReduceArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	if err := sums(a.X, kernel.BF16); err != nil {
		return err
	}
	return m.exchange(call{op: "all-reduce", x: a.X}, func(m *member) {
		first, last := m.share(a.X.Rows * a.X.Cols)
		if first == last {
			return
		}
		if a.X.DType == kernel.BF16 {
			m.sumBF16(first, last)
			return
		}
		sum := host.F32(m.seats[0].at.x)[first:last]
		for r := 1; r < len(m.seats); r++ {
			add(sum, host.F32(m.seats[r].at.x)[first:last])
		}
		for r := 1; r < len(m.seats); r++ {
			copy(host.F32(m.seats[r].at.x)[first:last], sum)
		}
	})
}

// sumBF16 sums elements as float32, rounded once, as GPUs do.
func (m *member) sumBF16(first, last int) {
	sum := make([]float32, last-first)
	for r := range m.seats {
		for i, v := range host.U16(m.seats[r].at.x)[first:last] {
			if x := num.FromBF16(v); r == 0 {
				sum[i] = x
			} else {
				sum[i] += x
			}
		}
	}
	for r := range m.seats {
		to := host.U16(m.seats[r].at.x)[first:last]
		for i, v := range sum {
			to[i] = num.BF16(v)
		}
	}
}

// AllGather copies the rank's columns to all ranks.
func (m *member) AllGather(a kernel.AllGatherArgs) error {
	if err := a.Check(len(m.seats)); err != nil {
		return err
	}
	return m.exchange(call{op: "all-gather", x: a.X, out: a.Out}, func(m *member) {
		for r := range m.seats {
			to := m.seats[r].at.out.Columns(m.rank*a.X.Cols, (m.rank+1)*a.X.Cols)
			for t := range a.X.Rows {
				copy(host.Bytes(to.Slice(t, t+1)), host.Bytes(a.X.Slice(t, t+1)))
			}
		}
	})
}

// ReduceScatter sums the rank's columns.
func (m *member) ReduceScatter(a kernel.ReduceScatterArgs) error {
	if err := a.Check(len(m.seats)); err != nil {
		return err
	}
	if err := sums(a.X); err != nil {
		return err
	}
	return m.exchange(call{op: "reduce-scatter", x: a.X, out: a.Out}, func(m *member) {
		for t := range a.Out.Rows {
			sum := host.RowF32(a.Out, t)
			for r := range m.seats {
				part := host.RowF32(m.seats[r].at.x.Columns(m.rank*a.Out.Cols, (m.rank+1)*a.Out.Cols), t)
				if r == 0 {
					copy(sum, part)
				} else {
					add(sum, part)
				}
			}
		}
	})
}

// Broadcast copies the rows of one rank to this one.
func (m *member) Broadcast(a kernel.BroadcastArgs) error {
	if err := a.Check(len(m.seats)); err != nil {
		return err
	}
	return m.exchange(call{op: fmt.Sprintf("broadcast from rank %d", a.From), x: a.X}, func(m *member) {
		if m.rank == a.From {
			return
		}
		for t := range a.X.Rows {
			copy(host.Bytes(a.X.Slice(t, t+1)), host.Bytes(m.seats[a.From].at.x.Slice(t, t+1)))
		}
	})
}

// ShareRows copies the rank's rows to all others.
func (m *member) ShareRows(a kernel.ShareArgs) error {
	if err := a.Check(len(m.seats)); err != nil {
		return err
	}
	return m.exchange(call{op: "share of rows", x: a.X}, func(m *member) {
		for r := range m.seats {
			for t := a.Bounds[m.rank]; t < a.Bounds[m.rank+1] && r != m.rank; t++ {
				copy(host.Bytes(m.seats[r].at.x.Slice(t, t+1)), host.Bytes(a.X.Slice(t, t+1)))
			}
		}
	})
}

// sums refuses element types that are not added: others than f32 and those named.
func sums(t kernel.Tensor, too ...kernel.DType) error {
	if t.DType != kernel.F32 && !slices.Contains(too, t.DType) {
		return fmt.Errorf("%w: sums of %s over ranks, supported on CPUs are f32 and in all-reduces bf16",
			kernel.ErrUnsupported, t.DType)
	}
	return nil
}

func add(sum, x []float32) {
	for i, v := range x {
		sum[i] += v
	}
}
