package cuda

// LowRankArgs are the arguments of the kernel that adds a low-rank matrix product to its output.
type LowRankArgs struct {
	Weight       Ptr   // bf16 [Columns, K]; Weight and Input are multiples of 16
	Input        Ptr   // bf16 [Rows, K]
	Out          Ptr   // f32 [Rows, Columns]
	WeightStride int64 // elements between rows, multiple of 8
	InputStride  int64 // elements between rows, multiple of 8
	OutStride    int64 // elements between rows
	Rows         int32
	Columns      int32
	K            int32 // multiple of 8, at most 512
	Reserved     int32
}

// mostRank is the maximum length of a row of weights (K): a warp has the weights of 16 columns in registers.
const mostRank = 512

// rankColumns is the number of columns that a block computes: 16 for each warp.
const rankColumns = 16 * portableThreads / 32

// LowRankFits reports whether MultiplyLowRank supports rows of length k.
func LowRankFits(k int32) bool { return k <= mostRank && k%8 == 0 }

// MultiplyLowRank adds Input * Weight transposed to Out. The result of a row does not depend on other rows. With
// Stream.SetOverlap the kernel may read the weight before the previous kernel has ended, so the previous kernel must
// not write the weight.
func MultiplyLowRank(k *Kernels, s *Stream, a *LowRankArgs) error {
	c, perSM := checks{kernel: "low_rank_512"}, int32(1) // blocks per SM, limited by registers
	switch {
	case a.K <= 64:
		c.kernel, perSM = "low_rank_64", 4
	case a.K <= 256:
		c.kernel, perSM = "low_rank_256", 2
	}
	c.count("rows", a.Rows)
	c.positive("columns", a.Columns)
	c.multiple("k", int64(a.K), 8, 8)
	if a.K > mostRank {
		c.fail("k is %d, want at most %d; use a product and add it", a.K, mostRank)
	}
	c.memory("weight", a.Weight, 16)
	c.memory("input", a.Input, 16)
	c.memory("out", a.Out, 4)
	c.multiple("weight stride", a.WeightStride, 8, int64(a.K))
	c.multiple("input stride", a.InputStride, 8, int64(a.K))
	c.multiple("out stride", a.OutStride, 1, int64(a.Columns))
	if c.err != nil || a.Rows == 0 {
		return c.err
	}
	return runPersistent(k, s, c.kernel, (a.Columns+rankColumns-1)/rankColumns, perSM, a)
}
