package op

import (
	"math"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
	"sparrow/layout"
)

// launchWaves is the maximum number of units of work per multiprocessor in one launch if rows are divided into
// segments. Scratch memory holds the partial results of all units until they are combined, at least 64 KB per unit.
// More rows run in several launches, which does not change the results.
const launchWaves = cuda.LatentWaves

// rowsPerLaunch returns the maximum number of rows of one launch on a device, for rows with the given number of units
// of work.
func rowsPerLaunch(multiprocessors int, units int64) int32 {
	return int32(min(max(launchWaves*int64(multiprocessors)/units, 1), math.MaxInt32))
}

// sparseAttend computes attention over selected rows. If the arguments request it, rows are divided into segments for
// different SMs. With and without segments, the result of a row is bitwise equal alone and in any batch.
func sparseAttend(d *Device, a kernel.SparseArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "sparse attend"}
	r.layout(a.Pool, latents...)
	args := r.attention(a.Q, a.Out, a.LSE, a.Heads, a.Scale)
	if a.Max.Given() {
		args.Max, args.MaxStride = at(a.Max), int64(a.Max.Stride)
	}
	args.Streams[0] = r.selection(kernel.Stream{Pool: a.Pool, Indices: a.Indices, Lens: a.Lens})
	segments, blocks := cuda.SparseSegments(int32(a.Indices.Cols), r.count("keys of a segment", a.SplitKeys))
	return attendRows(d, &r, a.Pool.Layout, &args, segments, blocks, func(s *cuda.SparseAttendArgs) error {
		return cuda.SparseAttend(d.kernels, d.stream, a.Pool.Layout, s)
	})
}

// dualAttend computes V4 and V4.1 attention over window entries and compressed entries, in segments.
func dualAttend(d *Device, a kernel.DualArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "dual attend"}
	kind, window := layout.V4Row584, layout.V4Row584
	if a.Window.Pool.Layout == layout.V41Window528 {
		kind, window = layout.V41Row288, layout.V41Window528
	}
	r.layout(a.Window.Pool, window)
	args := r.attention(a.Q, a.Out, a.LSE, a.Heads, a.Scale)
	args.Sinks = at(a.Sinks)
	args.Streams[0] = r.selection(a.Window)
	if kind == layout.V41Row288 {
		args.Streams[0].Scales = layout.V41WindowBytes
	}
	width := roundUp(a.Window.Indices.Cols)
	most := width
	if a.Extra.Given() {
		args.Streams[1] = r.selection(a.Extra)
		switch extra := a.Extra.Pool.Layout; {
		case kind == layout.V41Row288 && extra == window: // rows of a draft block
			args.Streams[1].Scales = layout.V41WindowBytes
		case kind == layout.V41Row288:
			args.Streams[1].Scales = layout.V41EntryBytes
			fallthrough
		default:
			r.layout(a.Extra.Pool, kind)
		}
		width += roundUp(a.Extra.Indices.Cols)
		most += roundUp(max(a.MostExtra, a.Extra.Indices.Cols))
	}
	segments, blocks := cuda.SparseSegmentsWithin(int32(width), r.count("keys of a row", most))
	return attendRows(d, &r, kind, &args, segments, blocks, func(s *cuda.SparseAttendArgs) error {
		return cuda.SparseAttend(d.kernels, d.stream, kind, s)
	})
}

// flatAttend computes V4 attention over rows gathered for the batch. Rows are not divided into segments.
func flatAttend(d *Device, a kernel.FlatArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "flat attend"}
	r.dtype("kv", a.KV, kernel.BF16)
	r.packed("kv", a.KV)
	args := r.attention(a.Q, a.Out, a.LSE, a.Heads, a.Scale)
	args.Sinks = at(a.Sinks)
	rows := a.KV
	rows.DType, rows.Cols, rows.Stride, rows.Rows = kernel.U8, 2*layout.V4Dim*a.KV.Rows, 2*layout.V4Dim*a.KV.Rows, 1
	args.Streams[0] = r.selection(kernel.Stream{Pool: kernel.Pool{Mem: rows, PageTokens: a.KV.Rows}, Indices: a.Indices,
		Lens: a.Lens})
	return attendRows(d, &r, 0, &args, 1, int32(a.Indices.Cols+63)/64, func(s *cuda.SparseAttendArgs) error {
		return cuda.SparseAttendFlat(d.kernels, d.stream, s)
	})
}

// latentAttend computes attention over every key of a sequence. If the arguments request it, rows are divided into
// segments for different SMs.
func latentAttend(d *Device, a kernel.LatentArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "latent attend"}
	r.layout(a.Pool, mains...)
	args := r.attention(a.Q, a.Out, kernel.Tensor{}, a.Heads, a.Scale)
	streams, err := r.pool(a.Pool).Tables(at(a.Table), int64(a.Table.Stride), r.count("pages", a.Table.Cols),
		at(a.TableRow), int64(a.TableRow.Stride), at(a.Lens), int64(a.Lens.Stride))
	if err != nil {
		r.fail("%v", err)
	}
	args.Streams = streams
	if a.Table.Rows == 1 { // the stride of a single row is not used
		args.Streams[0].IndexStride = int64(a.Table.Cols)
	}
	segments, blocks := cuda.LatentSegments(streams[0].Width, r.count("keys of a segment", a.SplitKeys))
	return attendRows(d, &r, a.Pool.Layout, &args, segments, blocks, func(s *cuda.SparseAttendArgs) error {
		return cuda.LatentAttend(d.kernels, d.stream, a.Pool.Layout, s)
	})
}

// roundUp rounds a number of keys up to a multiple of 64, the keys of a block.
func roundUp(keys int) int { return (keys + 63) / 64 * 64 }

// attention returns the arguments that are common to all kinds of sparse attention.
func (r *require) attention(q, out, lse kernel.Tensor, heads int, scale float32) cuda.SparseAttendArgs {
	r.dtype("q", q, kernel.BF16)
	r.dtype("out", out, kernel.BF16)
	r.aligned("q", q, 16)
	r.aligned("out", out, 16)
	a := cuda.SparseAttendArgs{
		Q: at(q), Out: at(out), QStride: int64(q.Stride), OutStride: int64(out.Stride), Rows: r.count("rows", q.Rows),
		Heads: r.count("heads", heads), ScoreScale: scale * math.Log2E, ValueScale: 1,
	}
	if q.Rows == 1 { // the stride of a single row is not used
		a.QStride, a.OutStride = int64(q.Cols), int64(out.Cols)
	}
	if lse.Given() {
		a.LSE, a.LSEStride = at(lse), int64(lse.Stride)
	}
	return a
}

// selection returns the kernels' description of a stream.
func (r *require) selection(s kernel.Stream) cuda.SelectionView {
	v, err := r.pool(s.Pool).Select(at(s.Indices), int64(s.Indices.Stride), r.count("indices", s.Indices.Cols),
		at(s.Lens), int64(s.Lens.Stride))
	if err != nil {
		r.fail("%v", err)
	}
	if s.Lens.Rows == 1 {
		v.LenStride = 1
	}
	if s.Indices.Rows == 1 {
		v.IndexStride = int64(s.Indices.Cols)
	}
	return v
}

// attendRows launches rows in groups whose partial results fit in the scratch memory.
func attendRows(d *Device, r *require, kind layout.Kind, a *cuda.SparseAttendArgs, segments, blocks int32,
	launch func(*cuda.SparseAttendArgs) error) error {
	if r.err != nil || a.Rows == 0 {
		return r.err
	}
	a.Faults, a.Segments, a.SegmentBlocks = d.faults.Ptr(), segments, blocks
	if segments == 1 {
		return launch(a)
	}
	partial, stats := cuda.SparseScratch(kind, 1, a.Heads, segments)
	group := rowsPerLaunch(d.gpu.Properties().SMs, cuda.SparseUnits(1, a.Heads, segments))
	return d.temporary(int64(min(group, a.Rows))*(partial+stats), func(p cuda.Ptr) error {
		for from := int32(0); from < a.Rows; from += group {
			part := rowsOf(*a, from, min(group, a.Rows-from))
			part.Partial, part.Stats = p, p.Add(int64(part.Rows)*partial)
			if err := launch(&part); err != nil {
				return err
			}
		}
		return nil
	})
}

// rowsOf returns the arguments for a range of rows. Index lists have a row for each row, so they start at row from;
// page tables have a row for each sequence and are not changed.
func rowsOf(a cuda.SparseAttendArgs, from, rows int32) cuda.SparseAttendArgs {
	n, tables := int64(from), a.Streams[1].Width == 0 && a.Streams[1].Lens != 0
	for i := range a.Streams {
		s := &a.Streams[i]
		if s.Lens != 0 {
			s.Lens = s.Lens.Add(4 * n * s.LenStride)
		}
		if s.Width > 0 && !tables {
			s.Indices = s.Indices.Add(4 * n * s.IndexStride)
		}
	}
	a.Q, a.Out = a.Q.Add(2*n*a.QStride), a.Out.Add(2*n*a.OutStride)
	if a.LSE != 0 {
		a.LSE = a.LSE.Add(4 * n * a.LSEStride)
	}
	if a.Max != 0 {
		a.Max = a.Max.Add(4 * n * a.MaxStride)
	}
	a.Rows = rows
	return a
}
