package cuda

// QuantiseRowsArgs are the arguments of the kernel that quantises rows for FP8 products.
type QuantiseRowsArgs struct {
	X           Ptr   // bf16 [Rows, Columns]; multiple of 16
	Codes       Ptr   // e4m3 [Rows, Columns]; multiple of 16
	Scales      Ptr   // f32 [ceil(Columns/128), ScaleStride]: scale of 128 columns of each row
	XStride     int64 // elements between rows
	CodeStride  int64
	ScaleStride int64
	Rows        int32
	Columns     int32 // multiple of 16
	Exact       int32 // 1: scales are any f32, 0: powers of two
	Reserved    int32
}

// NormQuantiseArgs are the arguments of the kernel that adds, normalises and quantises rows.
type NormQuantiseArgs struct {
	X           Ptr     // bf16 [Rows, Columns]; all addresses are multiples of 16
	Delta       Ptr     // bf16 [Rows, Columns], added to X first; or zero
	Results     Ptr     // bf16 [Rows, Top, Columns]: results of experts, whose weighted sum is added next; or zero
	IDs         Ptr     // i32 [Rows, Top], with Results: results of numbers outside the experts are skipped
	Shares      Ptr     // f32 [Rows, Top], with Results: the weights of the sum
	Sum         Ptr     // bf16 [Rows, Columns]: the sum that is normalised, may be X or Delta; or zero
	Weight      Ptr     // f32 or bf16 [Columns]; or zero for no norm
	Out         Ptr     // bf16 [Rows, Columns]: the norm of the sum; or zero
	Codes       Ptr     // e4m3 [Rows, Columns]: quantised norm; or zero
	Scales      Ptr     // f32 [ceil(Columns/128), ScaleStride], with Codes
	Epsilon     float64 // added to the mean of squares
	XStride     int64   // elements between rows
	DeltaStride int64
	SumStride   int64
	OutStride   int64
	CodeStride  int64
	ScaleStride int64
	IDStride    int64
	ShareStride int64
	Rows        int32
	Columns     int32 // multiple of 16, at most MaxNormColumns
	WeightBF16  int32 // 1: Weight is bf16
	Exact       int32 // 1: scales are any f32, 0: powers of two
	Top         int32 // at most MaxTop
	Experts     int32
}

// MaxNormColumns is the maximum number of columns of a row in NormQuantise, whose blocks have the row in registers.
const MaxNormColumns = 16384

const (
	warpColumns = 256 // columns that a warp quantises
	normThreads = 512
	normColumns = 8 * normThreads // maximum columns with eight columns for each thread
	longColumns = 2 * normColumns
)

func (c *checks) codes(codes, scales Ptr, codeStride, scaleStride int64, rows, columns, exact int32) {
	c.memory("codes", codes, 16)
	c.memory("scales", scales, 4)
	c.multiple("code stride", codeStride, 16, int64(columns))
	c.multiple("scale stride", scaleStride, 1, int64(rows))
	c.flag("exact", exact)
}

// QuantiseRows quantises rows to e4m3 with a scale for each 128 columns, in the layout of inputs of FP8 products.
func QuantiseRows(k *Kernels, s *Stream, a *QuantiseRowsArgs) error {
	c := checks{kernel: "quantise_rows"}
	blocks := a.check(&c)
	return runGrid(k, s, &c, Dim{X: blocks}, a)
}

// unitsOfMany is the number of units of 256 columns that a warp loads at once, if there are more blocks than the GPU
// can run at a time.
const (
	unitsOfMany = 4
	manyBlocks  = 4096
)

// check checks the arguments and returns the number of blocks. Many rows are quantised by another kernel, with bitwise
// equal results.
func (a *QuantiseRowsArgs) check(c *checks) uint32 {
	c.count("rows", a.Rows)
	c.multiple("columns", int64(a.Columns), 16, 16)
	c.memory("x", a.X, 16)
	c.multiple("x stride", a.XStride, 8, int64(a.Columns))
	c.codes(a.Codes, a.Scales, a.CodeStride, a.ScaleStride, a.Rows, a.Columns, a.Exact)
	units := int64(a.Rows) * int64((a.Columns+warpColumns-1)/warpColumns)
	if units > maxGrid {
		c.fail("%d rows of %d columns are too many for one launch; launch fewer rows", a.Rows, a.Columns)
	}
	blocks := (units + longRows - 1) / longRows
	if blocks >= manyBlocks {
		c.kernel += "_many"
		blocks = (units + unitsOfMany*longRows - 1) / (unitsOfMany * longRows)
	}
	return uint32(blocks)
}

// maxGrid is the maximum number of blocks of a launch.
const maxGrid = 1<<31 - 1

// maxGridY is the maximum size of the second dimension of a grid.
const maxGridY = 1<<16 - 1

// NormQuantise adds Delta and the weighted Results of experts to X, normalises the sum and quantises the norm. Each
// step rounds to bf16, so the results are bitwise equal to those of separate launches.
func NormQuantise(k *Kernels, s *Stream, a *NormQuantiseArgs) error {
	c := checks{kernel: "norm_quantise"}
	if a.Results != 0 {
		c.kernel = "combine_norm"
	}
	a.check(&c)
	if c.err != nil || a.Rows == 0 {
		return c.err
	}
	switch {
	case a.Columns > longColumns:
		c.kernel += "_wide"
	case a.Columns > normColumns:
		c.kernel += "_long"
	}
	fn, err := k.Function(c.kernel)
	if err != nil {
		return err
	}
	return Run(s, fn, Launch{Grid: Dim{X: uint32(a.Rows)}, Block: Dim{X: normThreads}, Overlap: s.overlap}, a)
}

func (a *NormQuantiseArgs) check(c *checks) {
	c.count("rows", a.Rows)
	c.multiple("columns", int64(a.Columns), 16, 16)
	if a.Columns > MaxNormColumns {
		c.fail("there are %d columns, want at most %d; use RMSNorm and QuantiseRows", a.Columns, MaxNormColumns)
	}
	c.memory("x", a.X, 16)
	c.multiple("x stride", a.XStride, 8, int64(a.Columns))
	c.flag("bf16 weight", a.WeightBF16)
	for _, m := range []struct {
		name   string
		at     Ptr
		stride int64
	}{{"delta", a.Delta, a.DeltaStride}, {"sum", a.Sum, a.SumStride}, {"out", a.Out, a.OutStride}} {
		if m.at != 0 {
			c.memory(m.name, m.at, 16)
			c.multiple(m.name+" stride", m.stride, 8, int64(a.Columns))
		}
	}
	if a.Codes != 0 {
		c.codes(a.Codes, a.Scales, a.CodeStride, a.ScaleStride, a.Rows, a.Columns, a.Exact)
	}
	switch {
	case a.Weight != 0:
		c.memory("weight", a.Weight, 16)
		if a.Out == 0 && a.Codes == 0 {
			c.fail("neither out nor codes are given; give at least one of them")
		}
	case a.Out != 0 || a.Codes != 0:
		c.memory("weight", a.Weight, 16) // this returns an error that names the missing argument
	case a.Sum == 0:
		c.fail("neither a weight nor a sum is given; give at least one of them")
	}
	if a.Results != 0 {
		c.memory("results", a.Results, 16)
		c.memory("ids", a.IDs, 4)
		c.memory("shares", a.Shares, 4)
		c.multiple("id stride", a.IDStride, 1, int64(a.Top))
		c.multiple("share stride", a.ShareStride, 1, int64(a.Top))
		c.positive("experts", a.Experts)
		if a.Top < 1 || a.Top > MaxTop {
			c.fail("a row has %d choices, want 1 to %d", a.Top, MaxTop)
		}
	}
}
