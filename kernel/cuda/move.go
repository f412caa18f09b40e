package cuda

// MoveArgs are the arguments of the kernel that copies or adds rows.
type MoveArgs struct {
	X         Ptr   // [Rows, Columns] of XType
	Out       Ptr   // [Rows, Columns] of OutType
	XStride   int64 // elements between rows
	OutStride int64 // elements between rows
	Rows      int64
	Columns   int32
	XType     ElementType // f32 or bf16
	OutType   ElementType // f32 or bf16
	Add       int32       // 1: Out += X, 0: Out = X
}

// MoveRows copies rows, or adds them to other rows, rounded once to the type of the output. If the two types are equal,
// a copy is bitwise exact, so f32 can be used for any type of four bytes and bf16 for any type of two bytes.
func MoveRows(k *Kernels, s *Stream, a *MoveArgs) error {
	c := checks{kernel: "move_rows"}
	c.positive("columns", a.Columns)
	c.element("x", a.X, a.XType, ElementBF16, a.XStride, a.Columns)
	c.element("out", a.Out, a.OutType, ElementBF16, a.OutStride, a.Columns)
	c.flag("add", a.Add)
	if a.Rows < 0 || a.Rows*int64(a.Columns) > maxGrid*portableThreads {
		c.fail("there are %d rows of %d columns, want at most %d elements", a.Rows, a.Columns,
			int64(maxGrid*portableThreads))
	}
	if c.err != nil || a.Rows == 0 {
		return c.err
	}
	pieces := int64(a.Columns)
	if each := int64(16 / a.OutType.bytes()); a.XType == a.OutType && pieces%each == 0 && a.X.aligned(16) &&
		a.Out.aligned(16) &&
		a.XStride%each == 0 && a.OutStride%each == 0 { // same rule as in move.cuh
		pieces /= each
	}
	return runGrid(k, s, &c, Dim{X: uint32((a.Rows*pieces + portableThreads - 1) / portableThreads)}, a)
}
