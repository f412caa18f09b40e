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
	Limit      float32     // 0: no clamps
}

// gateColumns is how many columns of a row one block computes.
const gateColumns = 8 * portableThreads

// GateRows computes silu(gate) * up.
func (k *Kernels) GateRows(s *Stream, a *GateArgs) error {
	c := checks{kernel: "gate_rows"}
	c.positive("columns", a.Columns)
	c.element("gate", a.Gate, a.GateType, ElementBF16, a.GateStride, a.Columns)
	c.element("up", a.Up, a.UpType, ElementBF16, a.UpStride, a.Columns)
	c.element("out", a.Out, a.OutType, ElementBF16, a.OutStride, a.Columns)
	c.count("rows", a.Rows)
	c.limit(a.Limit)
	return runGrid(k, s, &c, Dim{X: uint32(a.Rows), Y: (uint32(a.Columns) + gateColumns - 1) / gateColumns}, a)
}

// limit checks a clamp of activations.
func (c *checks) limit(v float32) {
	if !(v >= 0) {
		c.fail("limit %v must be positive, or 0 for none", v)
	}
}
