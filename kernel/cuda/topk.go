package cuda

// TopKArgs are the arguments of the top-k kernels.
type TopKArgs struct {
	Scores    Ptr // f32 [Rows, Stride], multiple of 16
	Lengths   Ptr // i32 [Rows]: number of candidates of a row
	Starts    Ptr // i32 [Rows]: column of position 0, or zero for column 0
	Out       Ptr // i32 [Rows, K]: selected positions, ascending, transformed, then -1
	Counts    Ptr // i32 [Rows]: entries that are not -1, or zero
	PageTable Ptr // i32 [requests, TableStride], for TopKPaged
	Offsets   Ptr // i32 [Rows], for TopKRagged
	Kept      Ptr // f32 [TopKScratch]: scratch for long rows that are selected in parts, as is Via; multiple of 16
	// i32 [TopKScratch]; zero, like Kept, if rows are not selected in parts.
	Via            Ptr
	Stride         int64 // floats between rows of scores, a multiple of 4
	TableStride    int64 // entries between rows of PageTable
	Rows           int32
	K              int32 // 1 to 2048
	Transform      int32 // TopKTransform
	RowsPerRequest int32 // rows that share a row of PageTable, at least 1
	PageShift      int32 // log2 of the tokens in a page
	Parts          int32 // set by SelectTopK
	Part           int32 // set by SelectTopK
	Columns        int32 // maximum number of candidates of a row; 0 means Stride
	Marked         int32 // set by SelectTopK
	Reserved       int32
}

// TopKTransform is the kind of value that is written for a selected position.
type TopKTransform int32

// Values of TopKTransform.
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

// MaxTopK is the maximum number of selected scores of a row.
const MaxTopK = 2048

// SelectTopK selects exactly the K largest scores of every row, in ascending order of position; on a tie the lower
// position is selected, and NaN and -inf are never selected.
func SelectTopK(k *Kernels, s *Stream, a *TopKArgs) error {
	c := checks{kernel: "top-k"}
	c.memory("scores", a.Scores, 16)
	c.memory("lengths", a.Lengths, 4)
	c.memory("out", a.Out, 4)
	c.multiple("stride", a.Stride, 4, 0)
	c.count("rows", a.Rows)
	c.count("columns", a.Columns)
	if (a.Kept == 0) != (a.Via == 0) || !a.Kept.aligned(16) || !a.Via.aligned(16) {
		c.fail("kept at %#x and via at %#x must be multiples of 16, or both zero", uint64(a.Kept), uint64(a.Via))
	}
	if a.K < 1 || a.K > MaxTopK {
		c.fail("top-k is %d, want 1 to %d", a.K, MaxTopK)
	}
	switch TopKTransform(a.Transform) {
	case TopKPosition:
	case TopKPaged:
		c.memory("page table", a.PageTable, 4)
		c.positive("rows per request", a.RowsPerRequest)
		if a.PageShift < 0 || a.PageShift > 30 {
			c.fail("the page shift is %d, want 0 to 30", a.PageShift)
		}
	case TopKRagged:
		c.memory("offsets", a.Offsets, 4)
	default:
		c.fail("transform %d is unknown", a.Transform)
	}
	if c.err != nil {
		return c.err
	}
	columns := int64(a.Columns)
	if columns == 0 {
		columns = a.Stride
	}
	one := *a
	one.Kept, one.Via, one.Parts, one.Part = 0, 0, 1, 0
	sms := int64(k.device.props.SMs)
	blocks := topKBlocks(columns, a.Starts != 0)
	if k.device.portable {
		return runPersistent(k, s, "portable_topk", a.Rows, portableTopKWaves, &one)
	}
	switch parts := topKParts(int64(a.Rows), columns, int64(a.K), sms); {
	case a.Rows == 0:
		return nil
	case int64(a.Rows) <= sms && blocks <= spreadBlocks && int64(a.Rows)*blocks <= spreadWaves*sms:
		return spread(k, s, a.Rows, blocks, &one)
	case parts > 1 && a.Kept != 0 && a.Via != 0:
		return selectInParts(k, s, a, parts, columns)
	case padded(columns, a.Starts != 0) <= shortScores:
		return runPersistent(k, s, "sparrow_topk_short", a.Rows, 1, &one)
	case columns <= sweptColumns:
		return sweep(k, s, "sparrow_topk_swept", 3, one)
	case int64(a.Rows) > sms && columns <= sweptLongColumns:
		return sweep(k, s, "sparrow_topk_swept_long", 2, one)
	case int64(a.Rows) > sms:
		// Three small blocks run on each SM, so that one block reads a row while other blocks select.
		return runPersistent(k, s, "sparrow_topk_t256", a.Rows, 3, &one)
	default:
		return runPersistent(k, s, "sparrow_topk_t512", a.Rows, 1, &one)
	}
}

// shortScores is the maximum number of scores of a row in the kernel for many short rows.
const shortScores = 8192

// Maximum row lengths of the kernels for many rows, which are limited by their bitmaps, for any alignment of rows.
const (
	sweptColumns     = 24*2048 - 3
	sweptLongColumns = 96*2048 - 3
)

// In the kernel for few rows, a cluster of up to spreadBlocks blocks selects from a row, and each block from
// spreadScores of its scores. Two blocks run on an SM. With more than spreadWaves blocks per SM, the kernel in which
// one block reads a whole row is faster.
const (
	spreadBlocks = 8
	spreadScores = 16384
	spreadWaves  = 3
)

// topKBlocks returns the number of blocks among which the kernel for few rows divides a row.
func topKBlocks(columns int64, starts bool) int64 {
	return max((padded(columns, starts)+spreadScores-1)/spreadScores, 1)
}

// padded returns the number of scores that are copied for a row. Copies are 16 bytes wide, so for a row that is not
// aligned they include up to three scores of adjacent rows.
func padded(columns int64, starts bool) int64 {
	if starts {
		columns += 3
	}
	return columns
}

// spread selects from few rows, or parts of rows, with a cluster for each.
func spread(k *Kernels, s *Stream, rows int32, blocks int64, a *TopKArgs) error {
	fn, err := k.Function("sparrow_topk_spread")
	if err != nil {
		return err
	}
	return Run(s, fn, Launch{Grid: Dim{X: uint32(rows) * uint32(blocks)}, Cluster: Dim{X: uint32(blocks)},
		Block: Dim{X: uint32(fn.attrs.MaxThreads)}, Shared: fn.dynamic, Overlap: s.overlap}, a)
}

// sweep selects from many rows. The first kernel estimates a threshold and marks the rows for which the estimate fails;
// a second kernel, which needs no estimate, selects from these rows.
func sweep(k *Kernels, s *Stream, kernel string, perSM int32, a TopKArgs) error {
	if err := runPersistent(k, s, kernel, a.Rows, perSM, &a); err != nil {
		return err
	}
	a.Marked = 1
	return runPersistent(k, s, "sparrow_topk_t256", a.Rows, 3, &a)
}

// topKParts returns the number of parts of a row that are selected from separately, 1 for whole rows. It is the
// smallest number for which a part fits in a cluster. A second selection among the results of all parts follows.
func topKParts(rows, columns, k, sms int64) int64 {
	// The results of a part begin at a multiple of 16 bytes.
	if rows == 0 || columns <= spreadBlocks*spreadScores || k%4 != 0 {
		return 1
	}
	const part = (spreadBlocks*spreadScores - 3) &^ 63
	parts := (columns + part - 1) / part
	// If there are many more parts than clusters that run at the same time, the kernel in which one block reads a whole
	// row is faster.
	if parts*k > spreadBlocks*spreadScores || rows*parts*spreadBlocks > 8*sms {
		return 1
	}
	return parts
}

// TopKScratch returns the number of entries of Kept and Via for selecting from rows with the given number of columns on
// this device; 0 if rows are not divided.
func TopKScratch(k *Kernels, rows, columns, topK int32) int64 {
	parts := topKParts(int64(rows), int64(columns), int64(topK), int64(k.device.props.SMs))
	if parts == 1 || k.device.portable {
		return 0
	}
	return int64(rows) * parts * int64(topK)
}

// selectInParts selects the best scores of every part of every row, and then the best of these results.
func selectInParts(k *Kernels, s *Stream, a *TopKArgs, parts, columns int64) error {
	first, second := *a, *a
	first.Out, first.Via, first.Counts, first.Transform = a.Via, 0, 0, int32(TopKPosition)
	first.Parts, first.Part = int32(parts), int32(((columns+parts-1)/parts+63)&^63)
	if err := spread(k, s, a.Rows*int32(parts), topKBlocks(int64(first.Part), a.Starts != 0), &first); err != nil {
		return err
	}
	second.Scores, second.Kept, second.Starts, second.Stride = a.Kept, 0, 0, parts*int64(a.K)
	second.Parts, second.Part = int32(parts), 0
	return spread(k, s, a.Rows, topKBlocks(second.Stride, false), &second)
}
