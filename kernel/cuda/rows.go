package cuda

// RMSNormArgs are the arguments of RMSNorm.
type RMSNormArgs struct {
	X          Ptr     // bf16 [Rows, Columns]
	Out        Ptr     // bf16 [Rows, Columns], may be X
	Weight     Ptr     // f32 or bf16 [Columns]
	Epsilon    float64 // added to the mean of squares
	XStride    int64   // elements between rows
	OutStride  int64   // elements between rows
	Rows       int32
	Columns    int32
	WeightBF16 int32 // 1: Weight is bf16
	Reserved   int32
}

// LocateArgs are the arguments of the kernel that converts positions to slots.
type LocateArgs struct {
	Positions      Ptr   // i32 [Rows, Columns]; negative: none
	Out            Ptr   // i32 [Rows, Columns], may be Positions
	Table          Ptr   // i32 [Tables, TableStride] pages, or zero
	TableRows      Ptr   // i32 [Rows]: row of the table
	Offsets        Ptr   // i32 [Rows]: added to a position when there is no table
	Faults         Ptr   // one u32 of fault bits, or zero
	PositionStride int64 // entries between rows
	OutStride      int64 // entries between rows
	TableStride    int64 // entries between rows
	Rows           int32
	Columns        int32
	PageTokens     int32
	TableColumns   int32 // pages of a row of the table; a position beyond these sets faultPosition and gives -1
	Tables         int32 // rows of the table
	Reserved       int32
}

// RMSNorm normalises rows, with sums in float64 and results rounded once to bf16.
func RMSNorm(k *Kernels, s *Stream, a *RMSNormArgs) error {
	c := checks{kernel: "rms_norm"}
	c.memory("x", a.X, 2)
	c.memory("out", a.Out, 2)
	c.memory("weight", a.Weight, 4>>a.WeightBF16)
	c.flag("bf16 weight", a.WeightBF16)
	c.positive("columns", a.Columns)
	c.multiple("x stride", a.XStride, 1, int64(a.Columns))
	c.multiple("out stride", a.OutStride, 1, int64(a.Columns))
	c.count("rows", a.Rows)
	if a.Columns > warpNormColumns {
		c.kernel = "rms_norm_long"
		return runRows(k, s, &c, a.Rows, 1, a)
	}
	return runRows(k, s, &c, a.Rows, longRows, a)
}

// warpNormColumns is the maximum row length that one warp normalises. The choice of the kernel depends only on the
// number of columns, because the two kernels add in different orders.
const warpNormColumns = 1024

// Locate converts positions to slots of a paged cache, or to rows of gathered keys.
func Locate(k *Kernels, s *Stream, a *LocateArgs) error {
	c := checks{kernel: "locate_positions"}
	a.check(&c)
	return runRows(k, s, &c, a.Rows, 1, a)
}

func (a *LocateArgs) check(c *checks) {
	c.memory("positions", a.Positions, 4)
	c.memory("out", a.Out, 4)
	if a.Table != 0 {
		c.memory("table", a.Table, 4)
		c.memory("table rows", a.TableRows, 4)
		c.positive("page tokens", a.PageTokens)
		c.count("table columns", a.TableColumns)
		c.multiple("table stride", a.TableStride, 1, int64(a.TableColumns))
	} else {
		c.memory("offsets", a.Offsets, 4)
	}
	c.count("columns", a.Columns)
	c.multiple("position stride", a.PositionStride, 1, int64(a.Columns))
	c.multiple("out stride", a.OutStride, 1, int64(a.Columns))
	c.count("rows", a.Rows)
}
