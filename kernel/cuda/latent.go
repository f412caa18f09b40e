package cuda

import (
	"math"

	"sparrow/layout"
)

// Attention over every key of paged sequences uses the kernels of sparse attention, with page tables instead of lists
// of slots (SPARROW_EVERY_KEY in their sources). Streams[0].Indices are the tables, with pages of 64 tokens, and
// Streams[0].Width is the number of keys that a table can hold. Streams[1] has no keys; its Lens are the table numbers
// of the rows.

// latentKernels has the kernel of each layout.
var latentKernels = map[layout.Kind]sparseRows{
	layout.BF16Row1152: {"sparrow_latent_bf16", layout.BF16RowBytes, layout.RowDim, 1, 4, combineF32, nil, true},
	layout.FP8Row656: {"sparrow_latent_block", layout.BlockRowBytes, layout.RowDim, 1, 2, combineF16,
		[]string{"sparrow_latent_block_duo", "sparrow_latent_block_quad", "sparrow_latent_block_oct"}, false},
	layout.FP8Row576: {"sparrow_latent_raw", layout.RawRowBytes, layout.RowDim, 1, 2, combineF16,
		[]string{"sparrow_latent_raw_duo"}, false},
}

// LatentWaves is the maximum number of units of work per multiprocessor in a launch that divides rows into segments. It
// is the size of UnitList (storage.cuh) in shared memory.
const LatentWaves = 32

// LatentSegments returns the maximum number of segments of a row of up to most keys, and the number of 64-key blocks of
// a segment, if rows are divided into segments of the given number of keys; 0 keys means that rows are not divided.
// Segments may be an eighth longer if that saves a segment: 8193 keys in segments of 1024 keys are eight segments. A
// row has the smallest possible number of segments, of about equal length, independently of other rows. If rows are
// divided, the result is at least two, so that a short row has the same bits alone and in a batch with long rows.
func LatentSegments(most, keys int32) (segments, blocks int32) {
	all := max((most+sparseKeys-1)/sparseKeys, 1)
	if keys == 0 {
		return 1, all
	}
	blocks = keys * 9 / 8 / sparseKeys
	return max((all+blocks-1)/blocks, 2), blocks
}

// Tables describes the sequences that rows attend to. tables is i32 [sequences, stride], with `pages` page numbers in
// each row; rows is the number of the sequence of each row, i32 [rows, rowStride]; lens is the number of keys of each
// row, i32 [rows, lenStride].
func (p PoolView) Tables(tables Ptr, stride int64, pages int32, rows Ptr, rowStride int64, lens Ptr,
	lenStride int64) ([2]SelectionView, error) {
	if p.PageTokens != sparseKeys {
		return [2]SelectionView{}, argumentError("attention over whole sequences: pages have %d tokens, want "+
			"%d", p.PageTokens, sparseKeys)
	}
	return [2]SelectionView{{Base: p.Base, PageBytes: p.PageBytes, Indices: tables, Lens: lens, IndexStride: stride,
		LenStride: lenStride, Slots: p.Slots, Width: int32(min(int64(pages)*sparseKeys, math.MaxInt32/sparseKeys*
			sparseKeys)), PageShift: 6, PageMask: sparseKeys - 1}, {Lens: rows, LenStride: rowStride}}, nil
}

// LatentAttend computes attention over every key of paged sequences, for pools of a layout. If rows are divided into
// segments, it also launches the kernel that combines them.
func LatentAttend(k *Kernels, s *Stream, kind layout.Kind, a *SparseAttendArgs) error {
	rows := latentKernels[kind]
	if rows.kernel == "" {
		return argumentError("latent attention: layout %v has no CUDA kernel; want %v, %v or %v", kind,
			layout.BF16Row1152, layout.FP8Row656, layout.FP8Row576)
	}
	c := checks{kernel: rows.kernel}
	v := a.Streams[0]
	c.memory("pool", v.Base, 16)
	c.memory("tables", v.Indices, 4)
	c.memory("lens", v.Lens, 4)
	c.memory("rows", a.Streams[1].Lens, 4)
	c.positive("slots", v.Slots)
	c.positive("keys", v.Width)
	c.multiple("page bytes", v.PageBytes, 16, sparseKeys*rows.rowBytes)
	c.multiple("table stride", v.IndexStride, 1, int64(v.Width/sparseKeys))
	if a.Streams[1].Width != 0 {
		c.fail("there is a second stream of %d keys, want one stream", a.Streams[1].Width)
	}
	if v.PageMask != sparseKeys-1 {
		c.fail("pages have %d tokens, want %d", int64(v.PageMask)+1, sparseKeys)
	}
	if kind == layout.FP8Row656 && a.Max != 0 {
		c.fail("the largest score is requested for rows of %d bytes, which is not supported: leave Max "+
			"zero", rows.rowBytes)
	}
	n, most := SparseUnits(a.Rows, a.Heads, a.Segments), int64(LatentWaves)*int64(k.device.props.SMs)
	if a.Segments > 1 && n > most {
		c.fail("%d rows in up to %d segments of %d heads are %d units, want at most %d: launch fewer rows, or cut "+
			"them after more keys", a.Rows, a.Segments, a.Heads, n, most)
	}
	return attendUnits(k, s, rows, a, &c, (v.Width+sparseKeys-1)/sparseKeys)
}
