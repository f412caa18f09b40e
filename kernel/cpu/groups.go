package cpu

import (
	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
)

// Weights of integers and of NVFP4 are multiplied in packed form: x is quantised to eight bits (package vec), as for
// block formats.

// groupCodes returns the packing of a weight whose scales belong to groups of a row, or 0 for other weights.
func groupCodes(w *host.Matrix) vec.Codes {
	switch w.Data.DType {
	case kernel.U4x2:
		return vec.CodesU4
	case kernel.U8:
		return vec.CodesU8
	case kernel.I8:
		return vec.CodesI8
	case kernel.E2M1x2:
		if w.Scale.DType == kernel.E4M3 {
			return vec.CodesE2M1
		}
	}
	return 0
}

// groupWeights returns rows n0 to n1 of a weight whose scales belong to groups.
func groupWeights(w *host.Matrix, n0, n1 int) vec.GroupWeights {
	band, scale := w.Data.Slice(n0, n1), w.Scale.Slice(n0, n1)
	out := vec.GroupWeights{Codes: groupCodes(w), Group: w.BlockCols, Data: host.Bytes(band), Ld: band.Stride,
		Scale: host.Bytes(scale), LdScale: scale.Stride, Factor: w.Factor}
	switch scale.DType {
	case kernel.F32:
		out.Type = vec.ScaleF32
	case kernel.BF16:
		out.Type = vec.ScaleBF16
	case kernel.F16:
		out.Type = vec.ScaleF16
	default:
		out.Type = vec.ScaleE4M3
	}
	if w.Zero.Given() {
		zero := w.Zero.Slice(n0, n1)
		out.Zero, out.LdZero = host.Bytes(zero), zero.Stride
	}
	return out
}

// byRows reports whether e4m3 weights have one scale for each row, or one scale for all rows. Then the sums are scaled
// instead of the weights.
func byRows(w *host.Matrix) bool {
	return w.Data.DType == kernel.E4M3 && !blocksOf128(w) && w.BlockCols >= w.In() &&
		(w.BlockRows == 1 || w.BlockRows >= w.SkipRows+w.Out())
}

// unscaled computes the product for e4m3 weights by rows: y = (x times codes) times the scale of each row of the
// weight.
func (d *Device) unscaled(p product, w *host.Matrix, n0, n1 int) {
	band, blocks := w.Data.Slice(n0, n1), ceilDiv(w.In(), 128)
	d.tier.MatMulFP8(p.y, p.ldy, p.x, p.ldx, p.m, host.Bytes(band), band.Stride, n1-n0, w.In(),
		d.ones(ceilDiv(n1-n0, 128)*blocks), blocks, 0)
	scales := host.F32(w.Scale)
	for m := range p.m {
		y := p.y[m*p.ldy:][:n1-n0]
		for n := range y {
			at, _ := w.ScaleRow(n0 + n)
			y[n] *= scales[at*w.Scale.Stride]
		}
	}
}

// inBlocks computes the product for e4m3 weights in blocks other than 128 x 128.
func (d *Device) inBlocks(worker int, p product, w *host.Matrix, n0, n1 int) {
	row, within := w.ScaleRow(n0)
	b := vec.FP8Blocks{Scale: host.F32(w.Scale)[row*w.Scale.Stride:], Ld: w.Scale.Stride, Row0: within,
		Rows: w.BlockRows, Cols: w.BlockCols}
	if !b.Whole() {
		d.widened(worker, p, w, n0, n1)
		return
	}
	band := w.Data.Slice(n0, n1)
	d.tier.MatMulFP8Blocks(p.y, p.ldy, p.x, p.ldx, p.m, host.Bytes(band), band.Stride, n1-n0, w.In(), b)
}

// ones returns n scales of one.
func (d *Device) ones(n int) []float32 {
	if len(d.unit) < n {
		panic("cpu: the scales of an e4m3 weight are missing, want a weight from Prepare")
	}
	return d.unit[:n]
}

// prepareOnes allocates the array of ones for e4m3 weights by rows, before several workers read it.
func (d *Device) prepareOnes(w *host.Matrix) {
	if !byRows(w) {
		return
	}
	n := ceilDiv(w.Out(), 128) * ceilDiv(w.In(), 128)
	for len(d.unit) < n {
		d.unit = append(d.unit, 1)
	}
}
