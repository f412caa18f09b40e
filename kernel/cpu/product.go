package cpu

import (
	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/internal/vec"
	"sparrow/kernel"
)

// product holds the pointers and sizes of a matrix product: x [m, k] is the left side, y [m, n] receives the result.
type product struct {
	y   []float32
	ldy int
	x   []float32
	ldx int
	m   int
}

// product computes y = x times rows n0 to n1 of a weight, transposed.
func (d *Device) product(worker int, p product, w *host.Matrix, n0, n1 int) {
	k := w.In()
	band := w.Data.Slice(n0, n1)
	switch w.Data.DType {
	case kernel.F32:
		d.tier.MatMulF32(p.y, p.ldy, p.x, p.ldx, p.m, host.F32(band), band.Stride, n1-n0, k)
	case kernel.BF16:
		d.tier.MatMulBF16(p.y, p.ldy, p.x, p.ldx, p.m, host.Bytes(band), band.Stride, n1-n0, k)
	case kernel.F16:
		d.tier.MatMulF16(p.y, p.ldy, p.x, p.ldx, p.m, host.Bytes(band), band.Stride, n1-n0, k)
	case kernel.E4M3:
		switch {
		case byRows(w):
			d.unscaled(p, w, n0, n1)
			return
		case !blocksOf128(w):
			d.inBlocks(worker, p, w, n0, n1)
			return
		}
		row, within := w.ScaleRow(n0)
		d.tier.MatMulFP8(p.y, p.ldy, p.x, p.ldx, p.m, host.Bytes(band), band.Stride, n1-n0, k,
			host.F32(w.Scale)[row*w.Scale.Stride:], w.Scale.Stride, within)
	case kernel.E2M1x2:
		if !groupsOf32(w) {
			d.widened(worker, p, w, n0, n1)
			return
		}
		d.tier.MatMulFP4(p.y, p.ldy, p.x, p.ldx, p.m, host.Bytes(band), band.Stride, n1-n0, k,
			host.Bytes(w.Scale.Slice(n0, n1)), w.Scale.Stride)
	default:
		d.widened(worker, p, w, n0, n1)
	}
}

// groupsOf32 reports whether e2m1 weights have an e8m0 scale for each 32 values of a row, as the kernels require.
func groupsOf32(w *host.Matrix) bool {
	return w.BlockRows == 1 && w.BlockCols == vec.GroupFP4 && w.Scale.DType == kernel.E8M0
}

// blocksOf128 reports whether e4m3 weights have a float32 scale for each 128 x 128 block, as the kernels require.
func blocksOf128(w *host.Matrix) bool {
	return w.BlockRows == 128 && w.BlockCols == 128 && w.Scale.DType == kernel.F32
}

// widened computes the product for a weight without a product kernel: it widens one band of rows at a time to float32.
func (d *Device) widened(worker int, p product, w *host.Matrix, n0, n1 int) {
	k := w.In()
	for ; n0 < n1; n0 += plainBand {
		n := min(plainBand, n1-n0)
		wide := grow(&d.scratch[worker].rows, n*k)
		widenBand(wide, w, n0, n0+n)
		d.tier.MatMulF32(p.y, p.ldy, p.x, p.ldx, p.m, wide, k, n, k)
		p.y = p.y[min(n, len(p.y)):]
	}
}

// accumulate adds x times rows n0 to n1 of a weight, not transposed, to y: y[m] += sum over n of x[m][n] * w[n].
func (d *Device) accumulate(worker int, p product, w *host.Matrix, n0, n1 int) {
	c := w.In()
	band := w.Data.Slice(n0, n1)
	switch t := w.Data.DType; {
	case t == kernel.F32:
		d.tier.AccumulateF32(p.y, p.ldy, p.x, p.ldx, p.m, host.F32(band), band.Stride, n1-n0, c)
	case t == kernel.BF16:
		d.tier.AccumulateBF16(p.y, p.ldy, p.x, p.ldx, p.m, host.Bytes(band), band.Stride, n1-n0, c)
	case t == kernel.E4M3 && blocksOf128(w):
		row, within := w.ScaleRow(n0)
		d.tier.AccumulateFP8(p.y, p.ldy, p.x, p.ldx, p.m, host.Bytes(band), band.Stride, n1-n0, c,
			host.F32(w.Scale)[row*w.Scale.Stride:], w.Scale.Stride, within)
	default:
		wide := grow(&d.scratch[worker].rows, (n1-n0)*c)
		widenBand(wide, w, n0, n1)
		d.tier.AccumulateF32(p.y, p.ldy, p.x, p.ldx, p.m, wide, c, n1-n0, c)
	}
}

// widenHalf widens f16 rows, for the few checkpoints that were exported to f16; released checkpoints have bf16.
func widenHalf(out []float32, t kernel.Tensor) {
	for r := range t.Rows {
		for c, v := range host.U16(t.Slice(r, r+1)) {
			out[r*t.Cols+c] = num.FromF16(v)
		}
	}
}
