package kernels

import (
	"math"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
)

// packing is a weight format with a scale for each group of a row, for each row, or for each block.
type packing struct {
	name  string
	data  kernel.DType
	scale kernel.DType
	group int // values of a row per scale; 0 means the whole row
	rows  int // rows per scale; 0 means 1. Scales of several rows are powers of two, as in released models
}

var packings = []packing{{"nvfp4", kernel.E2M1x2, kernel.E4M3, 16, 0}, {"int4 g32", kernel.U4x2, kernel.BF16, 32, 0},
	{"int4 g128", kernel.U4x2, kernel.BF16, 128, 0}, {"int8 g128", kernel.U8, kernel.BF16, 128, 0},
	{"e4m3 by rows", kernel.E4M3, kernel.F32, 0, 0}, {"e4m3 32x32", kernel.E4M3, kernel.F32, 32, 32},
	{"e4m3 128x128", kernel.E4M3, kernel.F32, 128, 128}}

// groupCases returns GEMMs with weights of these formats: few rows with weights from DRAM, and many rows.
func groupCases() []Case {
	var out []Case
	for _, p := range packings {
		out = append(out, Case{Name: "multiply " + p.name, Shape: gemmShape, Group: "gemm", OfPeak: true,
			Make: func(r *Rig) *Op { return multiply(r, gemmRows, r.pack(p, r.weight(p.like(), gemmOut, gemmIn))) }})
		for _, rows := range []int{1, 16} {
			out = append(out, Case{Name: "multiply " + p.name, Shape: dramShape(rows), OfPeak: true,
				Make: func(r *Rig) *Op { return multiplyInTurn(r, rows, r.pack(p, r.dram(p.like(), dramIn))) }})
		}
	}
	return out
}

// like returns a type with random bytes of the same distribution as those of p.
func (p packing) like() kernel.DType {
	if p.data == kernel.U4x2 {
		return kernel.E2M1x2
	}
	if p.data == kernel.U8 {
		return kernel.E4M3
	}
	return p.data
}

// pack returns w with its type and scales replaced by those of p.
func (r *Rig) pack(p packing, w kernel.Weight) kernel.Weight {
	w.Data.DType = p.data
	out, in := w.Out(), w.In()
	w.BlockRows, w.BlockCols = max(p.rows, 1), p.group
	if p.group == 0 {
		w.BlockCols = in
	}
	w.Scale = r.empty(p.scale, (out+w.BlockRows-1)/w.BlockRows, in/w.BlockCols)
	size := 1 / math.Sqrt(float64(in)) / 8
	if p.data == kernel.E4M3 || p.data == kernel.U8 {
		size /= 16
	}
	draw := func() float32 { return float32((1 + r.rng.Float64()) * size) }
	if p.rows > 1 {
		draw = func() float32 { return float32(math.Ldexp(1, math.Ilogb(size)+r.rng.IntN(4))) }
	}
	switch p.scale {
	case kernel.E4M3:
		repeat(host.Bytes(w.Scale), func() byte { return num.E4M3(float32(64 * (1 + r.rng.Float64()))) })
		w.Factor = float32(size / 64)
	case kernel.BF16:
		repeat(host.U16(w.Scale), func() uint16 { return num.BF16(draw()) })
	default:
		repeat(host.F32(w.Scale), draw)
	}
	return w
}
