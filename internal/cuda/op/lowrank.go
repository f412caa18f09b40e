package op

import (
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// lowRank reports whether a matrix product that is added to Out has short rows of bf16, such as the contribution of
// the previous token to the logits of a DSpark head. Such products are computed and added in one launch.
func lowRank(out kernel.Tensor, w *matrix) bool {
	return out.DType == kernel.F32 && w.kind == cuda.ProductBF16 && w.packed == "" && cuda.LowRankFits(int32(w.in))
}

// addLowRank launches a product that lowRank accepts.
func (p *rowProducts) addLowRank(out kernel.Tensor, w *matrix) error {
	return cuda.MultiplyLowRank(p.dev.kernels, p.dev.stream, &cuda.LowRankArgs{Weight: w.data, Input: at(p.x),
		Out:          at(out),
		WeightStride: int64(w.in), InputStride: stride(p.x), OutStride: stride(out), Rows: p.rows,
		Columns: int32(w.out), K: p.k})
}
