package cpu

import (
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/host"
)

// product is the left side and the result of a product: y [m, n] and x [m, k].
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
	case kernel.E4M3:
		s := host.F32(w.Scale)
		d.tier.MatMulFP8(p.y, p.ldy, p.x, p.ldx, p.m, host.Bytes(band), band.Stride, n1-n0, k,
			s[n0/128*w.Scale.Stride:], w.Scale.Stride, n0%128)
	default:
		wide := grow(&d.scratch[worker].rows, (n1-n0)*k)
		widenBand(wide, w, n0, n1)
		d.tier.MatMulF32(p.y, p.ldy, p.x, p.ldx, p.m, wide, k, n1-n0, k)
	}
}

// accumulate adds x times rows n0 to n1 of a weight, not transposed, to y: y[m] += sum over n of x[m][n] * w[n].
func (d *Device) accumulate(worker int, p product, w *host.Matrix, n0, n1 int) {
	c := w.In()
	band := w.Data.Slice(n0, n1)
	switch w.Data.DType {
	case kernel.F32:
		d.tier.AccumulateF32(p.y, p.ldy, p.x, p.ldx, p.m, host.F32(band), band.Stride, n1-n0, c)
	case kernel.BF16:
		d.tier.AccumulateBF16(p.y, p.ldy, p.x, p.ldx, p.m, host.Bytes(band), band.Stride, n1-n0, c)
	case kernel.E4M3:
		s := host.F32(w.Scale)
		d.tier.AccumulateFP8(p.y, p.ldy, p.x, p.ldx, p.m, host.Bytes(band), band.Stride, n1-n0, c,
			s[n0/128*w.Scale.Stride:], w.Scale.Stride, n0%128)
	default:
		wide := grow(&d.scratch[worker].rows, (n1-n0)*c)
		widenBand(wide, w, n0, n1)
		d.tier.AccumulateF32(p.y, p.ldy, p.x, p.ldx, p.m, wide, c, n1-n0, c)
	}
}

// widenHalf widens f16 rows. Released checkpoints hold bf16; this path is for the rare re-export.
func widenHalf(out []float32, t kernel.Tensor) {
	for r := range t.Rows {
		for c, v := range host.U16(t.Slice(r, r+1)) {
			out[r*t.Cols+c] = num.FromF16(v)
		}
	}
}
