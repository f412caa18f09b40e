package cpu

import (
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/internal/numa"
	"sparrow/internal/vec"
	"sparrow/kernel"
)

// nodes is a fake system with several memory nodes that records its calls.
type nodes struct {
	mu        sync.Mutex
	bound     [][]int
	preferred []int
}

func (n *nodes) Bind(cpus []int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bound = append(n.bound, cpus)
	return nil
}

func (n *nodes) Prefer(node int) error {
	n.preferred = append(n.preferred, node)
	return nil
}

func (n *nodes) Thread() int { return 7 }

// half returns a random bf16 weight [out, in].
func half(rng *rand.Rand, out, in int) kernel.Weight {
	data := make([]byte, 2*out*in)
	for i := range out * in {
		binary.NativeEndian.PutUint16(data[2*i:], num.BF16(float32(rng.NormFloat64())))
	}
	return kernel.Weight{Data: kernel.Tensor{Buf: kernel.HostBuffer(data), DType: kernel.BF16, Rows: out, Cols: in,
		Stride: in}}
}

// On a machine with several memory nodes, workers are bound to nodes, rows of weights are placed by node, workers read
// the rows of their own node, and results do not change.
func TestNodesShareProducts(t *testing.T) {
	const workers, in = 4, 256
	sys := &nodes{}
	m := &numa.Machine{System: sys, Nodes: []numa.Node{{ID: 0, CPUs: []int{0, 1}}, {ID: 5, CPUs: []int{2, 3}}}}
	open := func(o kernel.Options) (*Device, []kernel.Matrix, kernel.Experts) {
		o.Workers = workers
		d := Open(vec.Best(), o)
		rng := rand.New(rand.NewPCG(1, 2))
		var list []kernel.Matrix
		for _, out := range []int{1024, 192, 640} {
			w, err := d.Prepare(half(rng, out, in), kernel.Projected)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, w)
		}
		var w kernel.ExpertWeights
		for range 6 {
			w.Gate, w.Up = append(w.Gate, half(rng, 384, in)), append(w.Up, half(rng, 384, in))
			w.Down = append(w.Down, half(rng, in, 384))
		}
		x, err := d.PrepareExperts(w)
		if err != nil {
			t.Fatal(err)
		}
		return d, list, x
	}
	run := func(d *Device, list []kernel.Matrix, x kernel.Experts, rows int) (out []float32) {
		rng := rand.New(rand.NewPCG(3, 4))
		tensor := func(cols int) kernel.Tensor {
			v, err := kernel.New(d, kernel.F32, rows, cols)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		a := kernel.ProjectArgs{X: tensor(in)}
		for i := range host.F32(a.X) {
			host.F32(a.X)[i] = float32(rng.NormFloat64())
		}
		for _, w := range list {
			a.To = append(a.To, kernel.Projection{Out: tensor(w.Out()), W: w})
		}
		if err := d.Do(a); err != nil {
			t.Fatal(err)
		}
		for _, p := range a.To {
			out = append(out, host.F32(p.Out)...)
		}
		ids, err := kernel.New(d, kernel.I32, rows, 2)
		if err != nil {
			t.Fatal(err)
		}
		e := kernel.ExpertArgs{Out: tensor(in), X: a.X, IDs: ids, Weights: tensor(2), Experts: x}
		for r := range rows {
			copy(host.RowI32(ids, r), []int32{int32(r % 6), int32((r + 2) % 6)})
			copy(host.RowF32(e.Weights, r), []float32{0.25, 0.75})
		}
		if err := d.Do(e); err != nil {
			t.Fatal(err)
		}
		return append(out, host.F32(e.Out)...)
	}
	plain, list, x := open(kernel.Options{})
	defer plain.Close()
	want := [][]float32{run(plain, list, x, 1), run(plain, list, x, 3), run(plain, list, x, 40)}
	d, list, x := open(kernel.Options{NUMA: m})
	for i, rows := range []int{1, 3, 40} {
		if got := run(d, list, x, rows); !slices.Equal(got, want[i]) {
			t.Errorf("%d rows: results differ", rows)
		}
	}
	// Rows are placed in order, and the system's policy is restored after each weight.
	if len(sys.preferred) < 3*3 || !slices.Equal(sys.preferred[:3], []int{0, 5, -1}) ||
		sys.preferred[len(sys.preferred)-1] != -1 {
		t.Errorf("memory was requested from nodes %v", sys.preferred)
	}
	// The first rows that each worker reads are on its own node, except for blocks of rows at the boundary between
	// nodes.
	parts := make([]part, len(list))
	for i, w := range list {
		parts[i] = part{w: w.(*host.Matrix)}
	}
	st := &multiplyState{parts: parts}
	st.spread(d.numa.Layout)
	st.shares.cut(st.parts, workers)
	for w := range workers {
		first, n := d.pool.Share(st.shares.count(), w)
		away := 0
		for i := range st.parts {
			p := &st.parts[i]
			n0, n1 := st.shares.rows(first, first+n, i, p.to-p.from)
			from, to := d.numa.Rows(p.w.Out(), d.numa.NodeOf(w))
			for r := p.from + n0; r < p.from+n1; r++ {
				if r < from || r >= to {
					away++
				}
			}
		}
		if away > 2*packedBandFew {
			t.Errorf("worker %d reads %d rows of another node", w, away)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	// Worker 0 is bound once, even if it starts several runs on one thread.
	count := map[int]int{}
	for _, cpus := range sys.bound {
		count[cpus[0]]++
	}
	if want := map[int]int{0: 2, 2: 2}; !reflect.DeepEqual(count, want) {
		t.Errorf("bound by the first processor of a node: %v, want %v", count, want)
	}
}
