package ref_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/ref"
)

// linearRows returns one sequence whose rows have another order in the pass, without snapshots.
func linearRows(t *testing.T, d kernel.Device, rows, slot, begin int) kernel.Sequences {
	t.Helper()
	order, none := make([]int32, rows), make([]int32, rows)
	for i := range order {
		order[i], none[i] = int32((i*7+3)%rows), -1
	}
	spans := []int32{0, int32(rows), int32(slot), int32(begin), 0, 0}
	var s kernel.Sequences
	for _, x := range []struct {
		to         *kernel.Tensor
		from       []int32
		rows, cols int
	}{{&s.Rows, order, rows, 1}, {&s.Spans, spans, 1, kernel.SpanWords}, {&s.Snapshots, none, rows, 1}} {
		var err error
		if *x.to, err = kernel.New(d, kernel.I32, x.rows, x.cols); err == nil {
			err = kernel.WriteI32(d, *x.to, x.from)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// The chunked form of the delta rule agrees with the recurrent form for any position of the first row in its chunk.
// This also holds if channels decay so fast that exponentials of their sums overflow.
func TestChunkedDeltaEqualsRecurrent(t *testing.T) {
	d := &ref.Device{}
	const heads, rows, n = 2, 150, kernel.DeltaDim
	r := rand.New(rand.NewPCG(1, 2))
	make32 := func(rows, cols int, spread float64) kernel.Tensor {
		v := make([]float32, rows*cols)
		for i := range v {
			v[i] = float32(r.NormFloat64() * spread)
		}
		x, err := kernel.New(d, kernel.F32, rows, cols)
		if err == nil {
			err = kernel.WriteF32(d, x, v)
		}
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	for _, first := range []int{0, 64, 37} {
		for _, speed := range []float64{0.3, 4} {
			a := kernel.DeltaArgs{Out: make32(rows, heads*n, 0), Q: make32(rows, heads*n, 1), K: make32(rows, heads*n,
				1), V: make32(rows, heads*n, 1), Gate: make32(rows, heads*n, speed), Beta: make32(rows, heads, 1),
				ALog: make32(1, heads, 1), Bias: make32(1, heads*n, speed), Kept: make32(heads*n, n, 0),
				Sequences: linearRows(t, d, rows, 1, 0), Heads: heads, Bound: -5}
			start, out := make([]float32, 2*heads*n*n), [2][]float32{}
			for i := range start {
				start[i] = float32(r.NormFloat64() * 0.1)
			}
			var states [2][]float32
			for i, chunk := range []int{0, 64} {
				b := a
				b.Chunk, b.State = chunk, make32(2*heads*n, n, 0)
				if err := kernel.WriteF32(d, b.State, start); err != nil {
					t.Fatal(err)
				}
				b.First, _ = kernel.New(d, kernel.I32, 1, 1)
				if err := kernel.WriteI32(d, b.First, []int32{int32(first)}); err != nil {
					t.Fatal(err)
				}
				if err := kernel.Do(d, b); err != nil {
					t.Fatal(err)
				}
				out[i], states[i] = make([]float32, rows*heads*n), make([]float32, len(start))
				if err := kernel.ReadF32(d, out[i], b.Out); err != nil {
					t.Fatal(err)
				}
				if err := kernel.ReadF32(d, states[i], b.State); err != nil {
					t.Fatal(err)
				}
			}
			for i := range out[0] {
				if e := math.Abs(float64(out[0][i] - out[1][i])); !(e < 1e-5) {
					t.Fatalf("from position %d: output %d differs by %g", first, i, e)
				}
			}
			for i := range states[0] {
				if e := math.Abs(float64(states[0][i] - states[1][i])); !(e < 1e-5) {
					t.Fatalf("from position %d: state %d differs by %g", first, i, e)
				}
			}
		}
	}
}
