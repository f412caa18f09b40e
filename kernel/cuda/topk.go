package cuda

// TopKArgs are the arguments of the top-k kernels.
type TopKArgs struct {
	Scores         Ptr   // f32 [Rows, Stride], multiple of 16
	Lengths        Ptr   // i32 [Rows]: candidates of a row
	Starts         Ptr   // i32 [Rows]: column of position 0, or zero for column 0
	Out            Ptr   // i32 [Rows, K]: selected positions, ascending, transformed, then -1
	Counts         Ptr   // i32 [Rows]: entries that are not -1, or zero
	PageTable      Ptr   // i32 [requests, TableStride], for TopKPaged
	Offsets        Ptr   // i32 [Rows], for TopKRagged
	Stride         int64 // floats between rows of scores, a multiple of 4
	TableStride    int64 // entries between rows of PageTable
	Rows           int32
	K              int32 // 1 to 2048
	Transform      int32 // TopKTransform
	RowsPerRequest int32 // rows that share a row of PageTable, at least 1
	PageShift      int32 // log2 of the tokens in a page
	Reserved       int32
}

// TopKTransform says what is written for a selected position.
type TopKTransform int32

// The transforms.
const (
	TopKPosition TopKTransform = iota // the position itself
	TopKPaged                         // the physical slot, through the page table
	TopKRagged                        // the position plus the row's offset
)

func (t TopKTransform) String() string {
	switch t {
	case TopKPosition:
		return "position"
	case TopKPaged:
		return "paged"
	case TopKRagged:
		return "ragged"
	}
	return "unknown"
}

// MaxTopK is the largest selection of a row.
const MaxTopK = 2048

// SelectTopK picks the K largest scores of every row: exactly, in ascending order of position, the lowest position winning ties; NaN and
// -inf are never picked.
func (k *Kernels) SelectTopK(s *Stream, a *TopKArgs) error {
	c := checks{kernel: "top-k"}
	c.memory("scores", a.Scores, 16)
	c.memory("lengths", a.Lengths, 4)
	c.memory("out", a.Out, 4)
	c.multiple("stride", a.Stride, 4, 0)
	c.count("rows", a.Rows)
	if a.K < 1 || a.K > MaxTopK {
		c.fail("top-k of %d, supported are 1 to %d", a.K, MaxTopK)
	}
	switch TopKTransform(a.Transform) {
	case TopKPosition:
	case TopKPaged:
		c.memory("page table", a.PageTable, 4)
		c.positive("rows per request", a.RowsPerRequest)
		if a.PageShift < 0 || a.PageShift > 30 {
			c.fail("page shift %d, must be 0 to 30", a.PageShift)
		}
	case TopKRagged:
		c.memory("offsets", a.Offsets, 4)
	default:
		c.fail("transform %d is not known", a.Transform)
	}
	if c.err != nil {
		return c.err
	}
	if int(a.Rows) > k.device.props.SMs {
		// Three small blocks on each SM: one row streams while others are being cut.
		return runPersistent(k, s, "sparrow_topk_t256", a.Rows, 3, a)
	}
	return runPersistent(k, s, "sparrow_topk_t512", a.Rows, 1, a)
}
