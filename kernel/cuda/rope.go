package cuda

// AnglesArgs are the arguments of the kernel that computes cosines and sines of rotation angles.
type AnglesArgs struct {
	Positions      Ptr   // i32 [Rows]
	Frequency      Ptr   // f32 [Count]: angle per position
	Out            Ptr   // f32 [Rows, 2*Count]: cosines, then sines
	PositionStride int64 // entries between rows
	OutStride      int64 // elements between rows
	Rows           int32
	Count          int32
	Scale          float32
	Reserved       int32
}

// RotateArgs are the rotations that Turn applies in place.
type RotateArgs struct {
	X           Ptr   // [Rows, Heads, HeadDim] of XType
	Angles      Ptr   // f32 [Rows, Rope]; zero: no rotation
	Copy        Ptr   // [Rows, Heads, CopyDim] of XType: also receives the rotated columns; or zero
	XStride     int64 // elements between rows
	AngleStride int64 // elements between rows
	CopyStride  int64 // elements between rows
	Rows        int32
	Heads       int32
	HeadDim     int32
	Offset      int32       // first rotated column of a head
	Rope        int32       // rotated columns, even
	XType       ElementType // f32 or bf16
	Interleaved int32       // 1: pairs (2i, 2i+1); 0: (i, i+Rope/2)
	Inverse     int32       // 1: rotate by the negative angles
	CopyDim     int32
	CopyOffset  int32 // first column of a head of Copy that is written
}

// pairsPerBlock is the number of pairs of a row that one block rotates.
const pairsPerBlock = 4 * portableThreads

// ComputeAngles computes cosines and sines of position times frequency.
func ComputeAngles(k *Kernels, s *Stream, a *AnglesArgs) error {
	c := checks{kernel: "compute_angles"}
	a.check(&c)
	return runGrid(k, s, &c, Dim{X: a.blocks()}, a)
}

// blocks returns the number of blocks for the rows.
func (a *AnglesArgs) blocks() uint32 {
	return uint32((int64(a.Rows)*int64(a.Count) + portableThreads - 1) / portableThreads)
}

func (a *AnglesArgs) check(c *checks) {
	c.memory("positions", a.Positions, 4)
	c.memory("frequency", a.Frequency, 4)
	c.memory("out", a.Out, 4)
	c.positive("count", a.Count)
	c.multiple("position stride", a.PositionStride, 1, 1)
	c.multiple("out stride", a.OutStride, 1, 2*int64(a.Count))
	c.count("rows", a.Rows)
}

func (a *RotateArgs) check(c *checks) {
	c.positive("heads", a.Heads)
	c.positive("head size", a.HeadDim)
	c.count("offset", a.Offset)
	if a.Rope <= 0 || a.Rope%2 != 0 || a.Offset+a.Rope > a.HeadDim {
		c.fail("columns %d to %d of heads of %d are to be rotated, want an even number inside the head", a.Offset,
			a.Offset+a.Rope, a.HeadDim)
	}
	c.element("x", a.X, a.XType, ElementBF16, a.XStride, a.Heads*a.HeadDim)
	if a.Angles != 0 || a.Copy == 0 {
		c.memory("angles", a.Angles, 4)
		c.multiple("angle stride", a.AngleStride, 1, int64(a.Rope))
	}
	if a.Copy != 0 {
		c.count("offset of the copy", a.CopyOffset)
		if a.CopyOffset+a.Rope > a.CopyDim {
			c.fail("columns %d to %d are outside the heads of %d columns of the "+
				"copy", a.CopyOffset, a.CopyOffset+a.Rope, a.CopyDim)
		}
		c.element("copy", a.Copy, a.XType, ElementBF16, a.CopyStride, a.Heads*a.CopyDim)
	}
	c.flag("interleaved", a.Interleaved)
	c.flag("inverse", a.Inverse)
	c.count("rows", a.Rows)
}

// blocks returns the number of blocks for a row.
func (a *RotateArgs) blocks() uint32 {
	return (uint32(a.Heads)*uint32(a.Rope/2) + pairsPerBlock - 1) / pairsPerBlock
}
