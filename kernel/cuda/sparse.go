package cuda

import (
	"math"
	"math/bits"

	"sparrow/layout"
)

// SelectionView describes the rows of one paged pool that query rows attend to.
type SelectionView struct {
	Base        Ptr   // first byte of page 0, multiple of 16
	PageBytes   int64 // bytes between pages, multiple of 16
	Indices     Ptr   // i32 [rows, IndexStride]: slots; below zero: masked; from Slots on: masked, and sets a fault bit
	Lens        Ptr   // i32 [rows, LenStride]: number of leading entries that are read, clamped to [0, Width]
	IndexStride int64
	LenStride   int64
	Slots       int32 // rows of the pool
	Width       int32 // entries of a row of Indices; 0: the stream is empty
	PageShift   int32 // slot s is in page s >> PageShift
	PageMask    int32 // slot s is row s & PageMask of its page
	Scales      int64 // V4 entries: offset in bytes of the scales in a page; V4.1: bytes of a row
}

// SparseAttendArgs are the arguments of sparse attention and of the kernel that combines segments.
type SparseAttendArgs struct {
	Streams       [2]SelectionView // read in order, with one softmax; only V4 and V4.1 have a second stream
	Q             Ptr              // bf16 [Rows, QStride]: Heads of 576 values; 512 for V4 and without a rotated part
	Out           Ptr              // bf16 [Rows, OutStride]: Heads of 512 values; multiple of 16
	LSE           Ptr              // f32 [Rows, LSEStride], natural logarithm, without the sink; or zero
	Max           Ptr              // f32 [Rows, MaxStride], largest scaled score; or zero
	Sinks         Ptr              // f32 [Heads]; or zero
	Partial       Ptr              // partial results, SparseScratch bytes, if Segments > 1
	Stats         Ptr              // f32 [Rows, Segments, Heads, 4] if Segments > 1
	Faults        Ptr              // one u32 of fault bits (FaultSlot), or zero
	QStride       int64            // elements between rows; the following strides are also in elements
	OutStride     int64
	LSEStride     int64
	MaxStride     int64
	Rows          int32
	Heads         int32
	Segments      int32   // maximum segments of a row; 1: the result is written directly
	SegmentBlocks int32   // blocks of 64 keys in one segment
	ScoreScale    float32 // scale of q . row, times log2(e)
	ValueScale    float32 // factor of the result; 1 except for FP8Row576, whose scale is not in its rows
}

// MappedAttendArgs are the arguments of the kernels that move queries and outputs by the copy engine.
type MappedAttendArgs struct {
	QueryMap  TensorMap // over Q
	OutputMap TensorMap // over Out
	Attend    SparseAttendArgs
	Reserved  [7]uint64
}

const (
	sparseKeys  = 64  // keys of a block
	sparseHeads = 64  // heads of a unit of work
	valueDim    = 512 // values of a result head

	// mappedPoolBytes is the maximum size in bytes of a pool for the kernels that take MappedAttendArgs: they address
	// it with 32 bits in units of 16 bytes.
	mappedPoolBytes = 16 << 32
)

// Limits with which decode divides a row into segments for different SMs. The segments depend only on the width of the
// lists and on arguments that are equal for all rows. So a row's result is bitwise equal alone and in any batch. With
// segments of 512 keys, 16 rows of 2048 keys and 128 heads occupy 128 SMs, and each segment writes and reads a partial
// result of 64 KB per 64 heads. V4's rows of 128 + 512 keys are not divided: partial results would take as much time as
// they save.
const (
	V4SplitKeys       = 512 // keys of a segment of V4 entries
	decodeMaxSegments = 16  // wider rows have longer segments instead of more
	decodeWholeBlocks = 10  // maximum 64-key blocks of a row that is not divided
)

// SparseSegments returns the number of segments of rows with up to width keys (both streams together, each rounded up
// to 64), and the number of 64-key blocks of a segment. Segments have about the given number of keys; 0 means that rows
// are not divided.
func SparseSegments(width, keys int32) (segments, blocks int32) {
	all := max((width+sparseKeys-1)/sparseKeys, 1)
	if keys == 0 || all <= decodeWholeBlocks {
		return 1, all
	}
	blocks = max(keys/sparseKeys, (all+decodeMaxSegments-1)/decodeMaxSegments)
	return (all + blocks - 1) / blocks, blocks
}

// SparseSegmentsWithin is SparseSegments for V4 rows of up to width keys, where most is the maximum width in any
// launch. Segments are as long as those of rows of most keys, and there are at least two if those rows are divided. So
// the result of a row does not depend on the width of other rows' lists.
func SparseSegmentsWithin(width, most int32) (segments, blocks int32) {
	all := max((width+sparseKeys-1)/sparseKeys, 1)
	segments, blocks = SparseSegments(most, V4SplitKeys)
	if segments == 1 {
		return 1, all
	}
	return max((all+blocks-1)/blocks, 2), blocks
}

// SparseScratch returns the bytes of Partial and of Stats for the segments of rows of a layout (kind 0: gathered V4
// rows). One segment needs no memory.
func SparseScratch(kind layout.Kind, rows, heads, segments int32) (partial, stats int64) {
	if segments <= 1 {
		return 0, 0
	}
	n := int64(rows) * int64(segments)
	return n * headGroups(heads) * sparseHeads * valueDim * sparseKernels[kind].partBytes, n * int64(heads) * 4 * 4
}

// headGroups returns the number of groups of 64 heads of a row; each group is a unit of work.
func headGroups(heads int32) int64 { return (int64(heads) + sparseHeads - 1) / sparseHeads }

// SparseUnits returns the number of units of work of a launch: 64 heads of a row over one segment of its keys.
func SparseUnits(rows, heads, segments int32) int64 {
	return int64(rows) * int64(segments) * headGroups(heads)
}

// Select describes rows of the pool that are selected by slot: indices is i32 [rows, indexStride] with width entries
// per row, and lens is i32 [rows, lenStride].
func (p PoolView) Select(indices Ptr, indexStride int64, width int32, lens Ptr, lenStride int64) (SelectionView,
	error) {
	v := SelectionView{Base: p.Base, PageBytes: p.PageBytes, Indices: indices, Lens: lens, IndexStride: indexStride,
		LenStride: lenStride, Slots: p.Slots, Width: width}
	switch {
	case p.Slots <= p.PageTokens: // a single page need not have a power of two of tokens
		v.PageShift, v.PageMask = 31, math.MaxInt32
	case p.PageTokens > 0 && p.PageTokens&(p.PageTokens-1) == 0:
		v.PageShift, v.PageMask = int32(bits.TrailingZeros32(uint32(p.PageTokens))), p.PageTokens-1
	default:
		return v, argumentError("sparse attention: pages have %d rows, want a power of two, or a pool of one page",
			p.PageTokens)
	}
	v.Scales = int64(p.PageTokens) * V4DataBytes
	return v, nil
}

// selection checks one stream over rows of rowBytes bytes.
func (c *checks) selection(name string, v SelectionView, rowBytes int64) {
	c.memory(name+" pool", v.Base, 16)
	c.memory(name+" indices", v.Indices, 4)
	c.memory(name+" lens", v.Lens, 4)
	c.positive(name+" slots", v.Slots)
	c.positive(name+" width", v.Width)
	c.multiple(name+" page bytes", v.PageBytes, 16, (min(int64(v.PageMask), int64(v.Slots)-1)+1)*rowBytes)
	c.multiple(name+" index stride", v.IndexStride, 1, int64(v.Width))
	c.multiple(name+" len stride", v.LenStride, 1, 1)
}

// sparseRows holds the kernels for rows of one layout and the sizes that their launches use.
type sparseRows struct {
	kernel   string
	rowBytes int64
	queryDim int64
	streams  int
	// Partial results are f16, or f32 for bf16 rows, which have a wider range.
	partBytes int64
	combine   string
	// few are the kernels that divide each unit of work among two, four and eight thread blocks, with bitwise equal
	// results. They support rows of one stream that are divided into segments, and all rows of two streams.
	few    []string
	mapped bool // the kernel takes MappedAttendArgs
}

const combineF16, combineF32 = "sparrow_sparse_combine_f16", "sparrow_sparse_combine_f32"

// sparseKernels are the kernels by layout. Kind 0 is gathered V4 rows, which are not a cache layout.
var sparseKernels = map[layout.Kind]sparseRows{
	layout.BF16Row1152: {"sparrow_sparse_bf16", layout.BF16RowBytes, layout.RowDim, 1, 4, combineF32, nil, true},
	layout.FP8Row656: {"sparrow_sparse_block", layout.BlockRowBytes, layout.RowDim, 1, 2, combineF16,
		[]string{"sparrow_sparse_block_duo"}, false},
	layout.FP8Row576: {"sparrow_sparse_raw", layout.RawRowBytes, layout.RowDim, 1, 2, combineF16,
		[]string{"sparrow_sparse_raw_duo"}, false},
	layout.V4Row584: {"sparrow_sparse_entry", V4DataBytes, V4Dim, 2, 2, combineF16, nil, false},
	layout.V41Row288: {"sparrow_sparse_shared", layout.V41EntryBytes, V4Dim, 2, 2, combineF16,
		[]string{"sparrow_sparse_shared_duo"}, false},
	layout.FP8Row528: {"sparrow_sparse_nope", layout.NopeRowBytes, layout.LatentDim, 1, 2, combineF16, nil, false},
	layout.BF16Row1024: {"sparrow_sparse_flat", layout.NopeBF16Bytes, layout.LatentDim, 1, 4, combineF32, nil,
		true},
	0: {"sparrow_sparse_flat", 2 * V4Dim, V4Dim, 1, 4, combineF32, nil, true},
}

// launch returns the kernel for a number of units of work and its number of thread blocks: one for each unit, or two,
// four or eight if there is a kernel for that number and all blocks can run at the same time.
func (r sparseRows) launch(units int64, segments int32, multiprocessors int) (kernel string, blocks int32) {
	kernel, blocks = r.kernel, int32(units)
	for _, few := range r.few {
		if units *= 2; (segments > 1 || r.streams == 2) && units <= int64(multiprocessors) {
			kernel, blocks = few, int32(units)
		}
	}
	return kernel, blocks
}

// SparseAttend computes attention over selected rows of a layout: rows of FP8 or bf16, or V4 entries of one or two
// streams. If rows are divided into segments, it also launches the kernel that combines them.
func SparseAttend(k *Kernels, s *Stream, kind layout.Kind, a *SparseAttendArgs) error {
	rows := sparseKernels[kind]
	if kind == 0 || rows.kernel == "" {
		return argumentError("sparse attention: layout %v has no CUDA kernel; want %v, %v, %v, %v, %v, %v or %v",
			kind, layout.BF16Row1152, layout.FP8Row656, layout.FP8Row576, layout.V4Row584, layout.BF16Row1024,
			layout.FP8Row528, layout.V41Row288)
	}
	return sparseAttend(k, s, rows, a)
}

// SparseAttendFlat computes V4 attention over rows of 512 bf16 values gathered for the batch.
func SparseAttendFlat(k *Kernels, s *Stream, a *SparseAttendArgs) error {
	return sparseAttend(k, s, sparseKernels[0], a)
}

// sparseUnits launches a kernel with the given number of thread blocks.
func sparseUnits(k *Kernels, s *Stream, rows sparseRows, kernel string, blocks int32, a *SparseAttendArgs) error {
	if !rows.mapped {
		return runPersistent(k, s, kernel, blocks, 1, a)
	}
	m, err := MappedAttendArgs{Attend: *a}, error(nil)
	if m.QueryMap, err = headsMap(k, a.Q, a, rows.queryDim, a.QStride); err != nil {
		return err
	}
	if m.OutputMap, err = headsMap(k, a.Out, a, valueDim, a.OutStride); err != nil {
		return err
	}
	return runPersistent(k, s, kernel, blocks, 1, &m)
}

// headsMap describes bf16 [Rows, Heads, dim] with stride elements between rows, in boxes of 64 columns of 64 heads.
func headsMap(k *Kernels, base Ptr, a *SparseAttendArgs, dim, stride int64) (TensorMap, error) {
	return k.device.encodeTensorMap(MapSpec{Type: MapBF16, Base: base,
		Dims:    []uint64{uint64(dim), uint64(a.Heads), uint64(a.Rows)},
		Strides: []uint64{uint64(dim) * 2, uint64(stride) * 2}, Box: []uint32{64, sparseHeads, 1},
		Swizzle: Swizzle128, L2: 3})
}

func sparseAttend(k *Kernels, s *Stream, rows sparseRows, a *SparseAttendArgs) error {
	c := checks{kernel: rows.kernel}
	c.selection("first", a.Streams[0], rows.rowBytes)
	blocks := (a.Streams[0].Width + sparseKeys - 1) / sparseKeys
	if second := a.Streams[1]; second.Width != 0 {
		if rows.streams < 2 {
			c.fail("there is a second stream of %d keys, want one stream for these rows", second.Width)
		}
		c.selection("second", second, rows.rowBytes)
		blocks += (second.Width + sparseKeys - 1) / sparseKeys
	}
	return attendUnits(k, s, rows, a, &c, blocks)
}

// attendUnits checks the arguments of attention and launches the kernel for rows with up to the given number of 64-key
// blocks.
func attendUnits(k *Kernels, s *Stream, rows sparseRows, a *SparseAttendArgs, c *checks, blocks int32) error {
	if pages := int64(a.Streams[0].Slots-1)>>a.Streams[0].PageShift + 1; rows.mapped &&
		pages > mappedPoolBytes/max(a.Streams[0].PageBytes, 1) {
		c.fail("the pool has %d pages of %d bytes, want at most %d bytes: use fewer pages",
			pages, a.Streams[0].PageBytes, int64(mappedPoolBytes))
	}
	c.memory("q", a.Q, 16)
	c.memory("out", a.Out, 16)
	c.count("rows", a.Rows)
	c.positive("heads", a.Heads)
	c.multiple("q stride", a.QStride, 8, int64(a.Heads)*rows.queryDim)
	c.multiple("out stride", a.OutStride, 8, int64(a.Heads)*valueDim)
	for _, v := range []struct {
		name   string
		at     Ptr
		stride int64
	}{{"lse", a.LSE, a.LSEStride}, {"max", a.Max, a.MaxStride}} {
		if v.at != 0 {
			c.memory(v.name, v.at, 4)
			c.multiple(v.name+" stride", v.stride, 1, int64(a.Heads))
		}
	}
	c.positive("segments", a.Segments)
	c.positive("segment blocks", a.SegmentBlocks)
	if int64(a.Segments)*int64(a.SegmentBlocks) < int64(blocks) {
		c.fail("%d segments of %d blocks do not hold rows of %d blocks", a.Segments, a.SegmentBlocks, blocks)
	}
	if a.Segments > 1 {
		c.memory("partial", a.Partial, 16)
		c.memory("stats", a.Stats, 16)
	}
	if !(a.ScoreScale > 0 && a.ScoreScale <= math.MaxFloat32) ||
		!(a.ValueScale > 0 && a.ValueScale <= math.MaxFloat32) {
		c.fail("score scale %g and value scale %g must be positive and finite", a.ScoreScale, a.ValueScale)
	}
	units := SparseUnits(a.Rows, a.Heads, a.Segments)
	if units > math.MaxInt32 {
		c.fail("%d rows in %d segments of %d heads are more than %d units of %d heads: launch fewer rows", a.Rows,
			a.Segments, a.Heads, math.MaxInt32, sparseHeads)
	}
	if c.err != nil || units == 0 {
		return c.err
	}
	if k.device.portable {
		return portableAttend(k, s, rows, a)
	}
	name, blocks := rows.launch(units, a.Segments, k.device.props.SMs)
	if err := sparseUnits(k, s, rows, name, blocks, a); err != nil || a.Segments == 1 {
		return err
	}
	fn, err := k.Function(rows.combine)
	if err != nil {
		return err
	}
	const blocksPerGroup = 16 // parts into which combine.cuh divides 64 heads
	return Run(s, fn, Launch{Grid: Dim{X: uint32(int64(a.Rows) * headGroups(a.Heads) * blocksPerGroup)},
		Block: Dim{X: uint32(fn.attrs.MaxThreads)}, Overlap: s.overlap}, a)
}
