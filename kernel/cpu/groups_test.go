package cpu_test

import (
	"fmt"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
)

// grouped describes a weight whose scales belong to blocks, groups or rows.
type grouped struct {
	data, scale kernel.DType
	rows, cols  int // size of a scale block; 0 means all rows or columns
	zeros       bool
}

var groupedKinds = []grouped{
	{kernel.U4x2, kernel.BF16, 1, 32, false}, {kernel.U4x2, kernel.F16, 1, 128, true},
	{kernel.U4x2, kernel.F32, 1, 0, false}, {kernel.U8, kernel.BF16, 1, 64, false},
	{kernel.U8, kernel.F16, 1, 32, true}, {kernel.I8, kernel.F32, 1, 0, false},
	{kernel.E2M1x2, kernel.E4M3, 1, 16, false}, {kernel.E4M3, kernel.F32, 1, 0, false},
	{kernel.E4M3, kernel.F32, 0, 0, false}, {kernel.E4M3, kernel.F32, 32, 32, false},
	{kernel.E4M3, kernel.F32, 1, 128, false}, {kernel.U4x2, kernel.BF16, 1, 8, false},
}

// grouped returns a random weight with the element type and blocks of g.
func (r *blockRig) grouped(g grouped, out, in int) kernel.Weight {
	bytes := make([]byte, out*in/g.data.Values())
	for i := range bytes {
		bytes[i] = byte(r.rng.Uint32())
		if g.data == kernel.E4M3 {
			bytes[i] = num.E4M3(float32(r.rng.NormFloat64()))
		}
	}
	cols := in / g.data.Values()
	w := kernel.Weight{Data: kernel.Tensor{Buf: kernel.HostBuffer(bytes), DType: g.data, Rows: out, Cols: cols,
		Stride: cols}, BlockRows: g.rows, BlockCols: g.cols}
	if g.rows == 0 {
		w.BlockRows = out
	}
	if g.cols == 0 {
		w.BlockCols = in
	}
	w.Scale = r.tensor(g.scale, (out+w.BlockRows-1)/w.BlockRows, (in+w.BlockCols-1)/w.BlockCols)
	for i := range w.Scale.Rows * w.Scale.Cols {
		v := 0.5 + r.rng.Float32()
		switch g.scale {
		case kernel.F32:
			host.F32(w.Scale)[i] = v
		case kernel.BF16:
			host.U16(w.Scale)[i] = num.BF16(v)
		case kernel.F16:
			host.U16(w.Scale)[i] = 0x3800 | uint16(r.rng.IntN(1024))
		default:
			host.Bytes(w.Scale)[i], w.Factor = num.E4M3(64*v), 1.0/64
		}
	}
	if g.zeros {
		w.Zero = r.tensor(kernel.U8, w.Scale.Rows, w.Scale.Cols)
		for i := range host.Bytes(w.Zero) {
			host.Bytes(w.Zero)[i] = byte(w.Middle() - 2 + r.rng.IntN(5))
		}
	}
	return w
}

func (r *blockRig) tensor(d kernel.DType, rows, cols int) kernel.Tensor {
	t, err := kernel.New(r.ref, d, rows, cols)
	r.must(err)
	return t
}

// Products with integer, NVFP4 and FP8 weights, for all supported shapes of scale blocks, are close to the reference,
// and a row's results are bitwise equal whatever the other rows are.
func TestGroupProjections(t *testing.T) {
	eachBlockRig(t, func(r *blockRig, most float64) {
		var weights []kernel.Weight
		for i, g := range groupedKinds {
			weights = append(weights, r.grouped(g, 33+i, 256))
		}
		r.projections(weights, most)
	})
}

// Results of experts with integer, NVFP4 and FP8 weights are close to the reference.
func TestGroupExperts(t *testing.T) {
	eachBlockRig(t, func(r *blockRig, most float64) {
		for _, kinds := range [][2]int{{0, 0}, {1, 3}, {6, 6}, {4, 7}, {7, 8}} {
			r.experts(fmt.Sprint(kinds), func() kernel.Weight { return r.grouped(groupedKinds[kinds[0]], 256, 256) },
				func() kernel.Weight { return r.grouped(groupedKinds[kinds[1]], 256, 256) }, most)
		}
	})
}
