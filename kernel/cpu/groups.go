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

// inBlocks computes the product for e4m3 weights in blocks other than 128 x 128: for each row of blocks, x is scaled
// instead of the weights.
func (d *Device) inBlocks(worker int, p product, w *host.Matrix, n0, n1 int) {
	k := w.In()
	scaled := grow(&d.scratch[worker].rows, p.m*k)
	for n0 < n1 {
		at, within := w.ScaleRow(n0)
		rows := min(w.BlockRows-within, n1-n0)
		for b, s := range host.RowF32(w.Scale, at) {
			c0, c1 := b*w.BlockCols, min((b+1)*w.BlockCols, k)
			for m := range p.m {
				scaleTo(scaled[m*k+c0:m*k+c1], p.x[m*p.ldx+c0:m*p.ldx+c1], s)
			}
		}
		band, blocks := w.Data.Slice(n0, n0+rows), ceilDiv(k, 128)
		d.tier.MatMulFP8(p.y, p.ldy, scaled, k, p.m, host.Bytes(band), band.Stride, rows, k,
			d.ones(ceilDiv(rows, 128)*blocks), blocks, 0)
		n0 += rows
		p.y = p.y[min(rows, len(p.y)):]
	}
}

// scaleTo writes s times x to to. It is plain Go because blocks are short: the call of an assembly function would cost
// more than the products.
func scaleTo(to, x []float32, s float32) {
	for len(to) >= 8 && len(x) >= 8 {
		a, b := (*[8]float32)(to), (*[8]float32)(x)
		a[0], a[1], a[2], a[3] = b[0]*s, b[1]*s, b[2]*s, b[3]*s
		a[4], a[5], a[6], a[7] = b[4]*s, b[5]*s, b[6]*s, b[7]*s
		to, x = to[8:], x[8:]
	}
	for i, v := range x {
		to[i] = v * s
	}
}

// ones returns n scales of one.
func (d *Device) ones(n int) []float32 {
	if len(d.unit) < n {
		panic("cpu: the scales of an e4m3 weight are missing, want a weight from Prepare")
	}
	return d.unit[:n]
}

// prepareOnes allocates the array of ones for e4m3 weights in blocks other than 128 x 128, before several workers read
// it.
func (d *Device) prepareOnes(w *host.Matrix) {
	if w.Data.DType != kernel.E4M3 || blocksOf128(w) {
		return
	}
	n := max(ceilDiv(w.Out(), 128)*ceilDiv(w.In(), 128), w.In())
	for len(d.unit) < n {
		d.unit = append(d.unit, 1)
	}
}
