package bench

import (
	"encoding/binary"
	"fmt"
	"math"

	"sparrow/internal/num"
	"sparrow/kernel/cuda"
	"sparrow/kernel/cuda/expect"
)

const vocabulary = 129280

// rowCases are the small operations between a layer's products.
func rowCases() []Case {
	var list []Case
	for _, rows := range []int{1, 64, 4096} {
		list = append(list, normCase(rows, 7168), gateCase(rows, 18432), routeCase(rows, 256))
	}
	for _, rows := range []int{1, 64, 512} {
		for _, best := range []int{1, 20} {
			list = append(list, candidatesCase(rows, best))
		}
	}
	return list
}

type normSet struct {
	*holder
	args   cuda.RMSNormArgs
	x      []uint16
	weight []float32
}

func normCase(rows, columns int) Case {
	return Case{Name: "rms_norm", Shape: fmt.Sprintf("%d x %d", rows, columns),
		Bytes: float64(rows) * float64(columns) * 4, SetBytes: int64(rows * columns * 4),
		New: func(r *Rig) (Set, error) {
			h := newHolder(r)
			n := &normSet{holder: h, x: h.bf16s(columns), weight: h.floats(columns, 1, 0)}
			n.args = cuda.RMSNormArgs{X: h.repeat(raw16(n.x), int64(2*rows*columns)),
				Out: h.output(int64(2 * rows * columns)), Weight: h.put(rawF32(n.weight)), Epsilon: 1e-6,
				XStride: int64(columns), OutStride: int64(columns), Rows: int32(rows), Columns: int32(columns)}
			return h.ready(n)
		}}
}

func (n *normSet) Launch(s *cuda.Stream) error { return n.rig.Kernels.RMSNorm(s, &n.args) }

func (n *normSet) Check(s *cuda.Stream) error {
	var sum float64
	for _, v := range n.x {
		sum += float64(num.FromBF16(v)) * float64(num.FromBF16(v))
	}
	inverse := 1 / math.Sqrt(sum/float64(len(n.x))+n.args.Epsilon)
	return near(s, n.args.Out.Add(2*int64(len(n.x))*int64(n.args.Rows-1)), len(n.x), 1./200, func(i int) float64 {
		return float64(num.FromBF16(n.x[i])) * inverse * float64(n.weight[i])
	})
}

// near compares bf16 values with what the host expects.
func near(s *cuda.Stream, p cuda.Ptr, n int, tol float64, want func(int) float64) error {
	got, err := read(s, p, int64(2*n))
	if err != nil {
		return err
	}
	for i := range n {
		g, w := float64(num.FromBF16(binary.LittleEndian.Uint16(got[2*i:]))), want(i)
		if !(math.Abs(g-w) <= tol*max(math.Abs(w), 1e-3)) {
			return fmt.Errorf("value %d is %g, want %g", i, g, w)
		}
	}
	return nil
}

type gateSet struct {
	*holder
	args cuda.GateArgs
	g, u []uint16
}

func gateCase(rows, columns int) Case {
	return Case{Name: "gate", Shape: fmt.Sprintf("%d x %d", rows, columns),
		Bytes: float64(rows) * float64(columns) * 6, SetBytes: int64(rows * columns * 6),
		New: func(r *Rig) (Set, error) {
			h := newHolder(r)
			n := &gateSet{holder: h, g: h.bf16s(columns), u: h.bf16s(columns)}
			bytes := int64(2 * rows * columns)
			n.args = cuda.GateArgs{Gate: h.repeat(raw16(n.g), bytes), Up: h.repeat(raw16(n.u), bytes),
				Out: h.output(bytes), GateStride: int64(columns), UpStride: int64(columns),
				OutStride: int64(columns), Rows: int32(rows), Columns: int32(columns), GateType: cuda.ElementBF16,
				UpType: cuda.ElementBF16, OutType: cuda.ElementBF16}
			return h.ready(n)
		}}
}

func (n *gateSet) Launch(s *cuda.Stream) error { return n.rig.Kernels.GateRows(s, &n.args) }

func (n *gateSet) Check(s *cuda.Stream) error {
	return near(s, n.args.Out.Add(2*int64(len(n.g))*int64(n.args.Rows-1)), len(n.g), 1./200, func(i int) float64 {
		return expect.Gated(float64(num.FromBF16(n.g[i])), float64(num.FromBF16(n.u[i])), 0)
	})
}

type routeSet struct {
	*holder
	args   cuda.RouteArgs
	logits []float32
}

// routeCase chooses 8 of 4 of 8 groups without bias, so that the best of all is always first.
func routeCase(rows, experts int) Case {
	return Case{Name: "route", Shape: fmt.Sprintf("%d x %d", rows, experts),
		Bytes: float64(rows) * float64(experts*4+64), SetBytes: int64(rows * (experts*4 + 64)),
		New: func(r *Rig) (Set, error) {
			h := newHolder(r)
			n := &routeSet{holder: h, logits: h.floats(rows*experts, 1, 0)}
			n.args = cuda.RouteArgs{Logits: h.put(rawF32(n.logits)), Bias: h.put(make([]byte, 4*experts)),
				IDs: h.output(int64(32 * rows)), Weights: h.output(int64(32 * rows)),
				LogitStride: int64(experts), IDStride: 8, WeightStride: 8, Rows: int32(rows),
				Experts: int32(experts), Top: 8, Groups: 8, KeepGroups: 8, Normalize: 1, Scale: 2.5}
			return h.ready(n)
		}}
}

func (n *routeSet) Launch(s *cuda.Stream) error { return n.rig.Kernels.RouteExperts(s, &n.args) }

func (n *routeSet) Check(s *cuda.Stream) error {
	e := int(n.args.Experts)
	var want []int32
	for row := range int(n.args.Rows) {
		ids, _ := expect.Candidates(n.logits[row*e:][:e], 8)
		want = append(want, ids...)
	}
	return same(s, "ids", n.args.IDs, rawI32(want))
}

type candidateSet struct {
	*holder
	args   cuda.CandidatesArgs
	logits []float32
}

func candidatesCase(rows, best int) Case {
	return Case{Name: "candidates", Shape: fmt.Sprintf("best %d of %d x %d", best, rows, vocabulary),
		Bytes: float64(rows) * vocabulary * 4, SetBytes: int64(rows) * vocabulary * 4,
		New: func(r *Rig) (Set, error) {
			h := newHolder(r)
			n := &candidateSet{holder: h, logits: h.floats(vocabulary, 3, 0)}
			n.args = cuda.CandidatesArgs{Logits: h.repeat(rawF32(n.logits), int64(rows)*vocabulary*4),
				IDs: h.output(int64(4 * rows * best)), Values: h.output(int64(4 * rows * best)),
				LogSum: h.output(int64(4 * rows)), Stride: vocabulary, IDStride: int64(best),
				Keys:        h.alloc(cuda.CandidatesScratch(int32(rows), vocabulary, int32(best))),
				ValueStride: int64(best), Rows: int32(rows), Columns: vocabulary, Best: int32(best)}
			return h.ready(n)
		}}
}

func (n *candidateSet) Launch(s *cuda.Stream) error { return n.rig.Kernels.FindCandidates(s, &n.args) }

func (n *candidateSet) Check(s *cuda.Stream) error {
	ids, logSum := expect.Candidates(n.logits, int(n.args.Best))
	var want []int32
	for range n.args.Rows {
		want = append(want, ids...)
	}
	if err := same(s, "ids", n.args.IDs, rawI32(want)); err != nil {
		return err
	}
	got, err := read(s, n.args.LogSum.Add(4*int64(n.args.Rows-1)), 4)
	if err != nil {
		return err
	}
	if g := float64(f32At(got, 0)); !(math.Abs(g-logSum) < 1e-4) {
		return fmt.Errorf("log-sum %g, want %g", g, logSum)
	}
	return nil
}
