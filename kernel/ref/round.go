package ref

import (
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/host"
)

// Where products of a GPU round, besides activations, which are bf16 there:
//
//   - weights that are not e4m3 blocks of 128 x 128, and up-projections of latent rows, are stored as bf16;
//   - rows that multiply such blocks are quantised to e4m3 for each 128 columns;
//   - what an expert holds between its products is quantised so, or rounded to bf16 where its weights are not such
//     blocks;
//   - what an expert gives is rounded to bf16.

// blockSide is the side of the blocks whose rows are quantised.
const blockSide = 128

// met is a row as a weight meets it.
func (d *Device) met(x []float32, w *host.Matrix) []float32 {
	if !d.Rounded || !quantised(w) {
		return x
	}
	mode := num.ScaleF32
	if w.Pow2Rows {
		mode = num.ScalePow2
	}
	out, codes := make([]float32, len(x)), make([]byte, blockSide)
	for at := 0; at < len(x); at += blockSide {
		part := x[at:min(at+blockSide, len(x))]
		scale := num.QuantE4M3(codes, part, mode)
		num.DequantE4M3(out[at:at+len(part)], codes[:len(part)], scale)
	}
	return out
}

// stored rounds a row of a weight to what a GPU keeps of it.
func (d *Device) stored(row []float64, w *host.Matrix) {
	if !d.Rounded || quantised(w) {
		return
	}
	for i, v := range row {
		row[i] = float64(num.RoundBF16(float32(v)))
	}
}

// between is a row between the products of an expert.
func (d *Device) between(x []float32, w *host.Matrix) []float32 {
	if !d.Rounded || quantised(w) {
		return d.met(x, w)
	}
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = num.RoundBF16(v)
	}
	return out
}

// result is a value that an expert gives.
func (d *Device) result(v float64) float64 {
	if d.Rounded {
		return float64(num.RoundBF16(float32(v)))
	}
	return v
}

func quantised(w *host.Matrix) bool {
	return w.Role() == kernel.Projected && w.Data.DType == kernel.E4M3 && w.BlockRows == blockSide &&
		w.BlockCols == blockSide
}
