package cuda

// DrawArgs are the arguments of the kernel that fills memory with random values.
type DrawArgs struct {
	Out     Ptr   // [Rows, Columns] of Type
	Stride  int64 // elements between rows, even
	Rows    int64
	Columns int64 // even
	// First is the index of the first value and FromStride the number of values between rows, both even. They are set
	// so that a part of a matrix gets the same values as in the whole matrix.
	First, FromStride int64
	Seed              uint64
	Mean              float32
	// Step is the factor of the sum of four random bytes, which has mean 510 and standard deviation 147.8.
	Step     float32
	Type     ElementType // f32, bf16 or e4m3
	Reserved int32
}

// DrawValues fills memory with random values that are close to a normal distribution. A value depends only on the seed
// and on its position in the matrix.
func DrawValues(k *Kernels, s *Stream, a *DrawArgs) error {
	c := checks{kernel: "draw_values"}
	if a.Type == ElementF16 || a.Type < ElementF32 || a.Type > ElementE4M3 {
		c.fail("the element type is %d, want f32, bf16 or e4m3", a.Type)
	}
	c.memory("out", a.Out, 2*a.Type.bytes())
	c.multiple("columns", a.Columns, 2, 2)
	c.multiple("stride", a.Stride, 2, a.Columns)
	c.multiple("first", a.First, 2, 0)
	c.multiple("from stride", a.FromStride, 2, a.Columns)
	words := a.Rows * (a.Columns / 2)
	if a.Rows < 0 || words > maxGrid*portableThreads {
		c.fail("there are %d rows of %d columns, want at most %d values", a.Rows, a.Columns,
			int64(2*maxGrid*portableThreads))
	}
	return runGrid(k, s, &c, Dim{X: uint32((words + portableThreads - 1) / portableThreads)}, a)
}

// WidenArgs are the arguments of the kernel that converts a stored matrix to bf16.
type WidenArgs struct {
	From         Ptr   // [Rows, Columns] of Type, without gaps between rows
	Scales       Ptr   // f32 [ceil(Rows/BlockRows), ScaleStride]; zero: no scales
	Out          Ptr   // bf16 [Rows, Columns], or zero
	Turned       Ptr   // bf16 [Columns, TurnedStride]: the transposed matrix, or zero
	TurnedStride int64 // at least Rows
	Rows         int32
	Columns      int32
	ScaleStride  int32
	BlockRows    int32
	BlockColumns int32
	Type         ElementType // f32, bf16, f16 or e4m3
}

// widenTile is the side of a block's tile in widen.cuh.
const widenTile = 32

// WidenWeight writes a matrix as bf16 with its block scales applied: untransposed, transposed, or both.
func WidenWeight(k *Kernels, s *Stream, a *WidenArgs) error {
	c := checks{kernel: "widen_weight"}
	c.positive("rows", a.Rows)
	c.positive("columns", a.Columns)
	if a.Type < ElementF32 || a.Type > ElementE4M3 {
		c.fail("the element type is %d, want f32, bf16, f16 or e4m3", a.Type)
	}
	c.memory("from", a.From, a.Type.bytes())
	if a.Out == 0 && a.Turned == 0 {
		c.fail("no output is given; want at least one")
	}
	if a.Turned != 0 {
		c.multiple("turned stride", a.TurnedStride, 1, int64(a.Rows))
	}
	if a.Scales != 0 {
		c.memory("scales", a.Scales, 4)
		c.positive("block rows", a.BlockRows)
		c.positive("block columns", a.BlockColumns)
		if c.err == nil && a.ScaleStride < (a.Columns-1)/a.BlockColumns+1 {
			c.fail("the scale stride is %d, too small for %d columns in blocks of "+
				"%d", a.ScaleStride, a.Columns, a.BlockColumns)
		}
	}
	tiles := func(n int32) uint32 { return (uint32(n) + widenTile - 1) / widenTile }
	if tiles(a.Rows) > maxGridY {
		c.fail("the matrix has %d rows, want at most %d", a.Rows, maxGridY*widenTile)
	}
	return runGrid(k, s, &c, Dim{X: tiles(a.Columns), Y: tiles(a.Rows)}, a)
}

// MergeArgs are the arguments of the kernel that merges small blocks of e4m3 codes into blocks of 128 x 128.
type MergeArgs struct {
	Codes        Ptr // e4m3 [Rows, Columns], rescaled in place
	Scales       Ptr // f32 [ceil(Rows/BlockRows), ScaleStride]: powers of two
	To           Ptr // f32 [ceil(Rows/128), ceil(Columns/128)]: the largest scale of each block
	Rows         int32
	Columns      int32
	ScaleStride  int32
	BlockRows    int32
	BlockColumns int32
	Reserved     int32
}

// mergeSide is the number of rows, and of columns, of a merged block.
const mergeSide = 128

// MergeBlocks rescales the codes of a matrix to the largest scale of each 128 x 128.
func MergeBlocks(k *Kernels, s *Stream, a *MergeArgs) error {
	c := checks{kernel: "merge_blocks"}
	c.positive("rows", a.Rows)
	c.multiple("columns", int64(a.Columns), 4, 4)
	c.memory("codes", a.Codes, 4)
	c.memory("scales", a.Scales, 4)
	c.memory("to", a.To, 4)
	c.positive("block rows", a.BlockRows)
	c.multiple("block columns", int64(a.BlockColumns), 4, 4)
	if c.err == nil && (mergeSide%a.BlockRows != 0 || mergeSide%a.BlockColumns != 0) {
		c.fail("blocks of %d x %d do not divide %d x %d", a.BlockRows, a.BlockColumns, mergeSide, mergeSide)
	}
	if c.err == nil && a.ScaleStride < ceilDiv(a.Columns, a.BlockColumns) {
		c.fail("the scale stride is %d, too small for %d columns in blocks of %d", a.ScaleStride, a.Columns,
			a.BlockColumns)
	}
	if ceilDiv(a.Rows, mergeSide) > maxGridY {
		c.fail("the matrix has %d rows, want at most %d", a.Rows, maxGridY*mergeSide)
	}
	return runGrid(k, s, &c, Dim{X: uint32(ceilDiv(a.Columns, mergeSide)), Y: uint32(ceilDiv(a.Rows, mergeSide))}, a)
}
