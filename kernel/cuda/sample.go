package cuda

// SampleArgs are the arguments of the kernel that samples tokens from rows of logits.
type SampleArgs struct {
	Logits   Ptr   // f32 [Rows, Columns]
	Draws    Ptr   // i32 [Rows, 10]: words of a sample.Draw
	Best     Ptr   // i32 [Rows]: column with the largest logit of each row
	IDs      Ptr   // i32 [Rows]: receives the sampled token; may be Best
	Stride   int64 // elements between rows of logits
	IDStride int64 // elements between the entries of two rows in Best and IDs
	Rows     int32
	Columns  int32 // at most MaxSampleColumns
}

// MaxSampleColumns is the maximum vocabulary size of the kernel.
const MaxSampleColumns = 262144

// SampleRows samples a token from every row whose temperature is above 0, with the same results as package sample.
func SampleRows(k *Kernels, s *Stream, a *SampleArgs) error {
	c := checks{kernel: "sample_rows"}
	if a.Columns <= 0 || a.Columns > MaxSampleColumns {
		c.fail("logits have %d columns, want 1 to %d", a.Columns, MaxSampleColumns)
	}
	c.element("logits", a.Logits, ElementF32, ElementF32, a.Stride, a.Columns)
	c.memory("draws", a.Draws, 8)
	c.memory("best", a.Best, 4)
	c.memory("ids", a.IDs, 4)
	c.multiple("id stride", a.IDStride, 1, 1)
	c.count("rows", a.Rows)
	if c.err != nil || a.Rows == 0 {
		return c.err
	}
	fn, err := k.Function(c.kernel)
	if err != nil {
		return err
	}
	return Run(s, fn, Launch{Grid: Dim{X: uint32(a.Rows)}, Block: Dim{X: uint32(fn.attrs.MaxThreads)},
		Overlap: s.overlap}, a)
}
