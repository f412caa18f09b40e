package testkit_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"sparrow/internal/num"
	"sparrow/internal/testkit"
	"sparrow/internal/testkit/astray"
	"sparrow/kernel"
	"sparrow/kernel/ref"
	"sparrow/layout"
)

// attention runs sparse attention over bf16 rows, or V4's attention over a window and a stream of exact entries, as the
// tests of a GPU do.
type attention struct {
	dev kernel.Device
	rng *rand.Rand
	t   *testing.T
}

func (a *attention) floats(rows, cols int) kernel.Tensor {
	x, err := kernel.New(a.dev, kernel.F32, rows, cols)
	if err != nil {
		a.t.Fatal(err)
	}
	v := make([]float32, rows*cols)
	for i := range v {
		v[i] = num.RoundBF16(float32(a.rng.NormFloat64()))
	}
	if err := kernel.WriteF32(a.dev, x, v); err != nil {
		a.t.Fatal(err)
	}
	return x
}

func (a *attention) ints(rows, cols int, v []int32) kernel.Tensor {
	x, err := kernel.New(a.dev, kernel.I32, rows, cols)
	if err == nil {
		err = kernel.WriteI32(a.dev, x, v)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return x
}

// pool returns a cache with one page of random rows.
func (a *attention) pool(kind layout.Kind, tokens, width, bytes int) kernel.Pool {
	x, err := kernel.New(a.dev, kernel.U8, 1, bytes)
	if err != nil {
		a.t.Fatal(err)
	}
	raw := make([]byte, bytes)
	for i := range tokens * width {
		v := num.RoundBF16(float32(a.rng.NormFloat64()))
		if kind == layout.BF16Row1152 {
			binary.LittleEndian.PutUint16(raw[2*i:], num.BF16(v))
		} else {
			binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(v))
		}
	}
	if err := a.dev.Write(x, raw); err != nil {
		a.t.Fatal(err)
	}
	return kernel.Pool{Mem: x, Layout: kind, PageTokens: tokens}
}

const judgedHeads, judgedKeys = 4, 1024

// run returns the output of every head of every row. Rows have up to a thousand keys.
func (a *attention) run(dual bool) []float64 {
	lens := []int32{1, 64, 128, 1000}
	if dual {
		lens = []int32{1, 64, 127, 128}
	}
	rows, cols := len(lens), int(lens[len(lens)-1])
	indices := make([]int32, rows*cols)
	for i := range indices {
		indices[i] = int32(a.rng.IntN(judgedKeys))
	}
	width := layout.LatentDim
	out := a.floats(rows, judgedHeads*width)
	var op kernel.Op = kernel.SparseArgs{Out: out, Q: a.floats(rows, judgedHeads*layout.RowDim),
		Pool:    a.pool(layout.BF16Row1152, judgedKeys, layout.RowDim, judgedKeys*layout.RowDim*2),
		Indices: a.ints(rows, cols, indices), Lens: a.ints(rows, 1, lens), Heads: judgedHeads, Scale: 0.05}
	if dual {
		op = kernel.DualArgs{Out: out, Q: a.floats(rows, judgedHeads*layout.V4Dim),
			Window: kernel.Stream{Pool: a.pool(layout.V4F32Row2048, judgedKeys, layout.V4Dim,
				judgedKeys*layout.V4Dim*4), Indices: a.ints(rows, cols, indices), Lens: a.ints(rows, 1, lens)},
			Sinks: a.floats(1, judgedHeads), Heads: judgedHeads, Scale: 0.05}
	}
	if err := kernel.Do(a.dev, op); err != nil {
		a.t.Fatal(err)
	}
	got, wide := make([]float32, rows*judgedHeads*width), make([]float64, rows*judgedHeads*width)
	if err := kernel.ReadF32(a.dev, got, out); err != nil {
		a.t.Fatal(err)
	}
	for i, v := range got {
		wide[i] = float64(v)
	}
	return wide
}

// The comparison of GPU rows with the reference accepts sums in another order and rejects every device with a fault.
// With a tolerance of 1 only the fault of the skipped row would be found.
func TestNearShowsEveryFault(t *testing.T) {
	for _, dual := range []bool{false, true} {
		on := func(d kernel.Device) []float64 {
			return (&attention{d, rand.New(rand.NewPCG(1, 2)), t}).run(dual)
		}
		want := on(&ref.Device{Rounded: true})
		faults := []astray.Fault{astray.None, astray.KeyDropped, astray.HeadScaled, astray.LastRow}
		if dual {
			faults = append(faults, astray.WindowShort)
		}
		for _, f := range faults {
			dev := astray.On(&ref.Device{Rounded: true, Moved: true}, f)
			value, noise, err := testkit.Near(on(dev), want, layout.LatentDim, 1./64)
			t.Logf("dual %v, %q: the largest differences are %.2f (values) and %.2f (rows) of the allowed "+
				"difference: %v", dual, f, value, noise, err)
			if f != astray.None && dev.Hits == 0 {
				t.Errorf("dual %v: the fault %q changed no operation", dual, f)
			}
			if (err == nil) != (f == astray.None) {
				t.Errorf("dual %v, fault %q: error %v", dual, f, err)
			}
		}
	}
}

func TestNear(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		name      string
		got, want []float64
		ok        bool
	}{
		{"equal", []float64{1, -2, inf, 0}, []float64{1, -2, inf, 0}, true},
		{"within the row's size", []float64{0.01, 0.00005}, []float64{0.01, 0}, true},
		{"a small row that is not", []float64{0.01, 0.001}, []float64{0.01, 0}, false},
		{"a large value beside a small row", []float64{100, 0, 1, 1}, []float64{100, 0, 1, 0}, false},
		{"all values a little", []float64{1.01, 1.01}, []float64{1, 1}, false},
		{"not a number", []float64{nan, 1}, []float64{1, 1}, false},
		{"minus infinity", []float64{-inf, 1}, []float64{inf, 1}, false},
		{"of zeros", []float64{0, 1e-9}, []float64{0, 0}, false},
	} {
		if _, _, err := testkit.Near(c.got, c.want, 2, 1./64); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, _, err := testkit.Near([]float64{1}, []float64{1, 1}, 1, 1); err == nil {
		t.Error("results of different sizes were accepted as equal")
	}
}
