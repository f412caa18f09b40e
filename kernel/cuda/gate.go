package cuda

// GateArgs are the arguments of the gated activation.
type GateArgs struct {
	Gate       Ptr   // [Rows, Columns] of GateType
	Up         Ptr   // [Rows, Columns] of UpType
	Out        Ptr   // [Rows, Columns] of OutType, may be Gate or Up
	GateStride int64 // elements between rows
	UpStride   int64 // elements between rows
	OutStride  int64 // elements between rows
	Rows       int32
	Columns    int32
	GateType   ElementType // f32 or bf16
	UpType     ElementType // f32 or bf16
	OutType    ElementType // f32 or bf16
	Limit      float32     // limit of gate and up, 0 for none
}

// gateColumns is the number of columns of a row that one block computes.
const gateColumns = 8 * portableThreads

// GateRows computes silu(Gate) * Up, with the clamps of Limit.
func GateRows(k *Kernels, s *Stream, a *GateArgs) error {
	c := checks{kernel: "gate_rows"}
	c.positive("columns", a.Columns)
	c.element("gate", a.Gate, a.GateType, ElementBF16, a.GateStride, a.Columns)
	c.element("up", a.Up, a.UpType, ElementBF16, a.UpStride, a.Columns)
	c.element("out", a.Out, a.OutType, ElementBF16, a.OutStride, a.Columns)
	c.count("rows", a.Rows)
	c.limit(a.Limit)
	return runGrid(k, s, &c, Dim{X: uint32(a.Rows), Y: (uint32(a.Columns) + gateColumns - 1) / gateColumns}, a)
}

// limit checks the limit v to which activations are clamped.
func (c *checks) limit(v float32) {
	if !(v >= 0) {
		c.fail("limit %v must be positive, or 0 for none", v)
	}
}

// GateQuantiseArgs are the arguments of the kernel that applies a gated activation and quantises it.
type GateQuantiseArgs struct {
	Gate        Ptr // bf16 [Rows, Columns]; all addresses are multiples of 16
	Up          Ptr // bf16 [Rows, Columns]
	Out         Ptr // bf16 [Rows, Columns], may be Gate or Up
	Codes       Ptr // e4m3 [Rows, Columns]: quantised Out
	Scales      Ptr // f32 [ceil(Columns/128), ScaleStride]
	GateStride  int64
	UpStride    int64
	OutStride   int64
	CodeStride  int64
	ScaleStride int64
	Rows        int32
	Columns     int32   // multiple of 16
	Exact       int32   // 1: scales are any f32, 0: powers of two
	Limit       float32 // limit of gate and up, 0 for none
}

// GateQuantise computes silu(Gate) * Up and quantises it for a matrix product. The results are bitwise equal to those
// of two separate launches.
func GateQuantise(k *Kernels, s *Stream, a *GateQuantiseArgs) error {
	c := checks{kernel: "gate_quantise"}
	c.count("rows", a.Rows)
	c.multiple("columns", int64(a.Columns), 16, 16)
	for _, m := range []struct {
		name   string
		at     Ptr
		stride int64
	}{{"gate", a.Gate, a.GateStride}, {"up", a.Up, a.UpStride}, {"out", a.Out, a.OutStride}} {
		c.memory(m.name, m.at, 16)
		c.multiple(m.name+" stride", m.stride, 8, int64(a.Columns))
	}
	c.codes(a.Codes, a.Scales, a.CodeStride, a.ScaleStride, a.Rows, a.Columns, a.Exact)
	c.limit(a.Limit)
	warps := int64(a.Rows) * int64((a.Columns+warpColumns-1)/warpColumns)
	return runGrid(k, s, &c, Dim{X: uint32((warps + longRows - 1) / longRows)}, a)
}
