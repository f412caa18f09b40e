package kernels

import (
	"sparrow/internal/block"
	"sparrow/internal/vec"
	"sparrow/kernel"
)

// blockCases returns GEMMs with the block formats of GGUF files that have kernels: few rows with weights from DRAM, and
// many rows. Two formats without kernels, which are unpacked first, are included.
func blockCases() []Case {
	var out []Case
	for _, f := range block.Formats() {
		d := kernel.Blocks(f)
		if vec.BlockGroup(f) == 0 {
			continue
		}
		if vec.BlockGroup(f)%32 == 0 || f == block.Q2_K || f == block.IQ2_XXS {
			out = append(out, Case{Name: "multiply " + d.String(), Shape: gemmShape, Group: "gemm", OfPeak: true,
				Make: func(r *Rig) *Op { return multiply(r, gemmRows, r.weight(d, gemmOut, gemmIn)) }})
		}
		for _, rows := range []int{1, 16} {
			out = append(out, Case{Name: "multiply " + d.String(), Shape: dramShape(rows), OfPeak: true,
				Make: func(r *Rig) *Op { return multiplyInTurn(r, rows, r.dram(d, dramIn)) }})
		}
	}
	return out
}

// tolerance returns the maximum error of a GEMM, relative to its largest element. With weights in block formats,
// integers and NVFP4 the rows x are quantised to eight bits, with other e2m1 weights to fifteen.
func tolerance(w kernel.Weight) float64 {
	_, blocks := w.Data.DType.Block()
	switch d := w.Data.DType; {
	case blocks, d == kernel.U4x2, d == kernel.U8, d == kernel.I8, d == kernel.E2M1x2 && w.Scale.DType == kernel.E4M3:
		return 0.03
	case d == kernel.E2M1x2:
		return 3e-4
	}
	return 1e-4
}
