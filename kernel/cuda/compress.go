package cuda

import "math"

// CompressArgs are the arguments of the kernel that computes compressed entries from groups of tokens.
type CompressArgs struct {
	Values       Ptr   // f32 [Rows, Halves*Columns]: raw rows of this pass
	Gates        Ptr   // f32 [Rows, Halves*Columns]: gates of the values
	State        Ptr   // f32 [StateRows, 2*Halves*Columns]: raw rows of earlier passes, values before gates
	APE          Ptr   // f32 [Ratio, Halves*Columns]: added to gates
	Sources      Ptr   // i32 [Entries, Halves*Ratio]: s >= 0 is row s, -1 is absent, s <= -2 is state row -2-s
	Out          Ptr   // bf16 [Entries, Columns]
	Faults       Ptr   // one u32 of fault bits, or zero
	ValueStride  int64 // elements between rows; the following strides are also in elements
	GateStride   int64
	StateStride  int64
	APEStride    int64
	SourceStride int64
	OutStride    int64
	Entries      int32
	Columns      int32
	Ratio        int32
	Halves       int32 // 2: slots below Ratio read the first half of their rows, other slots the second half
	Rows         int32
	StateRows    int32
}

// CompressGroups computes an entry for each group: for each channel the sum of values weighted by the softmax of
// their gates. A source out of range raises FaultRow.
func CompressGroups(k *Kernels, s *Stream, a *CompressArgs) error {
	c := checks{kernel: "compress_groups"}
	a.check(&c)
	return runGrid(k, s, &c, Dim{X: uint32(max(a.Entries, 0)), Y: a.parts()}, a)
}

// parts returns the number of blocks for an entry.
func (a *CompressArgs) parts() uint32 { return rowBlocks(a.Columns, portableThreads) }

func (a *CompressArgs) check(c *checks) {
	c.count("entries", a.Entries)
	c.count("rows", a.Rows)
	c.count("state rows", a.StateRows)
	c.positive("columns", a.Columns)
	c.positive("ratio", a.Ratio)
	if a.Halves != 1 && a.Halves != 2 {
		c.fail("halves is %d, want 1 or 2", a.Halves)
	}
	width := int64(a.Halves) * int64(a.Columns)
	for _, t := range [...]struct {
		name   string
		at     Ptr
		rows   int32
		stride int64
		least  int64
	}{{"values", a.Values, a.Rows, a.ValueStride, width}, {"gates", a.Gates, a.Rows, a.GateStride, width},
		{"state", a.State, a.StateRows, a.StateStride, 2 * width}, {"ape", a.APE, a.Ratio, a.APEStride, width},
		{"sources", a.Sources, a.Entries, a.SourceStride, int64(a.Halves) * int64(a.Ratio)},
		{"out", a.Out, 0, a.OutStride, int64(a.Columns)}} {
		if t.rows > 0 {
			c.memory(t.name, t.at, 4)
		}
		c.multiple(t.name+" stride", t.stride, 1, t.least)
	}
	c.memory("out", a.Out, 2)
	if n := int64(a.Halves) * int64(a.Ratio); n > math.MaxInt32 {
		c.fail("the entries have %d slots, want at most %d", n, math.MaxInt32)
	}
}
