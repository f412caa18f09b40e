package cuda

// Kernels that do what two or four others do, with the same bits.

// PutFourArgs are the arguments of up to four PutRows; those without rows are none.
type PutFourArgs struct {
	First, Second, Third, Fourth PutArgs
}

// HeadTurnArgs are the arguments of the kernel that normalises heads and rotates them.
type HeadTurnArgs struct {
	Norm   HeadNormArgs
	Rotate RotateArgs // of the same heads (Joins)
}

// QuantiseTurnedArgs are the arguments of the kernel that rotates heads in place and quantises them.
type QuantiseTurnedArgs struct {
	Quantise QuantiseRowsArgs
	Rotate   RotateArgs // of the same rows (Joins)
}

// HyperSumArgs are the arguments of the kernel that adds up what experts gave and writes it into the streams.
type HyperSumArgs struct {
	Post HyperPostArgs
	Sum  NormQuantiseArgs // without a norm; its sum is the Sub of Post
}

// PutFour copies rows to places of up to four tensors. No place is written twice, and none is read.
func (k *Kernels) PutFour(s *Stream, a *PutFourArgs) error {
	c, rows := checks{kernel: "put_four"}, int32(0)
	for _, p := range []*PutArgs{&a.First, &a.Second, &a.Third, &a.Fourth} {
		if p.Rows != 0 {
			p.check(&c)
		}
		rows = max(rows, p.Rows)
	}
	return runGrid(k, s, &c, Dim{X: uint32(rows), Y: 4}, a)
}

// Joins reports whether a rotation can be a part of another kernel over bf16 rows of a stride: pairs of neighbours,
// whole pieces of eight columns, no copy.
func (a *RotateArgs) Joins(columns int32, stride int64) bool {
	return a.XType == ElementBF16 && a.Interleaved == 1 && a.Copy == 0 && a.Angles != 0 && a.Offset%8 == 0 &&
		a.Rope%8 == 0 && a.HeadDim%8 == 0 && a.Heads*a.HeadDim == columns && a.XStride == stride && a.XStride%8 == 0 &&
		a.X%16 == 0
}

// HeadNormTurn does what HeadNorm and then Turn do.
func (k *Kernels) HeadNormTurn(s *Stream, a *HeadTurnArgs) error {
	c := checks{kernel: "head_norm_turn"}
	n, t := &a.Norm, &a.Rotate
	t.check(&c)
	if n.X != t.X || n.Rows != t.Rows || n.Heads != t.Heads || n.Columns != t.HeadDim ||
		!t.Joins(n.Heads*n.Columns, n.XStride) {
		c.fail("a norm of %d heads of %d columns and a rotation of %d of %d, they must be the same bf16 heads with "+
			"neighbours as pairs, in whole pieces of 8 columns", n.Heads, n.Columns, t.Heads, t.HeadDim)
	}
	blocks := (int64(n.Rows)*int64(n.Heads) + longRows - 1) / longRows
	if blocks > maxGrid {
		c.fail("%d rows of %d heads, at most %d heads in all", n.Rows, n.Heads, int64(maxGrid)*longRows)
	}
	return runGrid(k, s, &c, Dim{X: uint32(blocks)}, a)
}

// QuantiseTurned does what Turn and then QuantiseRows do.
func (k *Kernels) QuantiseTurned(s *Stream, a *QuantiseTurnedArgs) error {
	c := checks{kernel: "quantise_turned"}
	q, t := &a.Quantise, &a.Rotate
	t.check(&c)
	if q.X != t.X || q.Rows != t.Rows || !t.Joins(q.Columns, q.XStride) {
		c.fail("%d rows of %d columns and a rotation of %d heads of %d, they must be the same bf16 rows with "+
			"neighbours as pairs, in whole pieces of 8 columns", q.Rows, q.Columns, t.Heads, t.HeadDim)
	}
	blocks := q.check(&c)
	return runGrid(k, s, &c, Dim{X: uint32(blocks)}, a)
}

// SumStreams is the most streams that HyperPostSum takes.
const SumStreams = 4

// HyperPostSum does what NormQuantise without a norm and then HyperPost do.
func (k *Kernels) HyperPostSum(s *Stream, a *HyperSumArgs) error {
	c := checks{kernel: "hyper_post_sum"}
	p, n := &a.Post, &a.Sum
	p.check(&c)
	n.check(&c)
	c.memory("streams", p.X, 16)
	c.multiple("stream stride", p.XStride, 8, int64(p.Hidden))
	if n.Results == 0 || n.Sum != p.Sub || n.SumStride != p.SubStride || n.Weight != 0 || n.Rows != p.Rows ||
		n.Columns != p.Hidden || p.Streams > SumStreams {
		c.fail("%d rows of %d columns for %d rows of %d streams of %d, supported are sums of experts' results without "+
			"a norm that are the output of a sublayer, and at most %d streams", n.Rows, n.Columns, p.Rows, p.Streams,
			p.Hidden, SumStreams)
	}
	return runGrid(k, s, &c, Dim{X: uint32(max(p.Rows, 0)), Y: rowBlocks(p.Hidden, postColumns)}, a)
}
