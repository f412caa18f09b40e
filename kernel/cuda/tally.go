package cuda

// TallyArgs are the arguments of the kernel that counts choices of experts.
type TallyArgs struct {
	Counts     Ptr   // u32 [Experts]: incremented for each choice
	IDs        Ptr   // i32 [Rows, Top]
	Seen       Ptr   // i32 [Rows]: tokens that a row may attend to; rows with 0 are padding
	Faults     Ptr   // one u32 of fault bits, or zero
	IDStride   int64 // elements between rows; the following strides are also in elements
	SeenStride int64
	Rows       int32
	Top        int32
	Experts    int32
}

// TallyChoices counts choices of experts. An id outside the experts raises FaultExpert.
func TallyChoices(k *Kernels, s *Stream, a *TallyArgs) error {
	c := checks{kernel: "tally_choices"}
	c.count("rows", a.Rows)
	c.positive("choices of a row", a.Top)
	c.positive("experts", a.Experts)
	c.memory("counts", a.Counts, 4)
	c.memory("ids", a.IDs, 4)
	c.memory("seen", a.Seen, 4)
	c.multiple("id stride", a.IDStride, 1, int64(a.Top))
	c.multiple("seen stride", a.SeenStride, 1, 1)
	n := int64(a.Rows) * int64(a.Top)
	if n > maxGrid*portableThreads {
		c.fail("there are %d choices, want at most %d", n, int64(maxGrid*portableThreads))
	}
	if c.err != nil || n == 0 {
		return c.err
	}
	return runGrid(k, s, &c, Dim{X: uint32((n + portableThreads - 1) / portableThreads)}, a)
}
