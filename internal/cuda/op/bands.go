package op

import (
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// heldBands delays the products of a group of matrices that multiply adjacent columns of one tensor into adjacent
// columns of another, such as the output projections of groups of heads. When the last product of the group is called,
// all run in one launch.
type heldBands struct {
	group  *joined
	x, out kernel.Tensor // input and output of the first product
	count  int
	turn   cuda.RotateArgs // rotation of all input columns before the products; X is zero if there is none
}

// banded reports whether a product may be delayed in heldBands: its matrix is in a group whose matrices have one shape
// and whole blocks of scales.
func banded(out, x kernel.Tensor, w *matrix) bool {
	if w.group == nil || w.factors != 0 || x.Rows == 0 || x.DType != kernel.BF16 || x.Off%16 != 0 || stride(x)%8 != 0 ||
		out.DType != kernel.BF16 && out.DType != kernel.F32 || !direct(out, w) || w.in%blockSide != 0 {
		return false
	}
	for _, m := range w.group.members {
		if m.out != w.out || m.out%blockSide != 0 {
			return false
		}
	}
	return true
}

// band delays a matrix product, or launches it with the earlier products of its group if it is the last one.
func band(d *Device, a *kernel.MultiplyArgs, w *matrix) error {
	h := &d.held
	if h.kind == holdBands {
		b := &h.bands
		if b.group == w.group && b.group.members[b.count] == w && follows(a.X, b.x, b.count*w.in) &&
			follows(a.Out, b.out, b.count*w.out) {
			if b.count++; b.count == len(b.group.members) {
				return d.settle()
			}
			return nil
		}
	}
	var turn cuda.RotateArgs
	if t := &h.turn; h.kind == holdTurn && w.kind == cuda.ProductFP8 && w.group.members[0] == w &&
		!h.copied && t.Locate.Rows == 0 && at(h.turned) == at(a.X) && h.turned.Rows == a.X.Rows &&
		(a.X.Rows == 1 || t.Rotate.XStride == stride(a.X)) &&
		t.Rotate.Joins(int32(len(w.group.members)*w.in), t.Rotate.XStride) && !overlap(a.X, a.Out) {
		turn, h.kind = t.Rotate, holdNothing
	}
	if err := d.settle(); err != nil {
		return err
	}
	if w.group.members[0] != w || overlap(a.X, a.Out) {
		return multiplyAll(d, "multiply", a.X, []kernel.Projection{{Out: a.Out, W: a.W}}, false)
	}
	h.kind, h.bands = holdBands, heldBands{group: w.group, x: a.X, out: a.Out, count: 1, turn: turn}
	return nil
}

// follows reports whether t is as wide as first and begins the given number of columns after first, in the same rows.
func follows(t, first kernel.Tensor, columns int) bool {
	first.Off += int64(columns) * int64(first.DType.Size())
	return t.Buf == first.Buf && t.Off == first.Off && t.DType == first.DType && t.Rows == first.Rows &&
		t.Cols == first.Cols && (t.Rows == 1 || stride(t) == stride(first))
}

// releaseBands launches the delayed matrix products: a complete group in one launch, and the products of an incomplete
// group separately, with bitwise equal results.
func releaseBands(d *Device) error {
	b := d.held.bands
	d.held.bands = heldBands{}
	in, out := b.x.Cols, b.out.Cols
	if b.count < len(b.group.members) {
		if b.turn.X != 0 {
			if err := cuda.Turn(d.kernels, d.stream, &cuda.TurnArgs{Rotate: b.turn}); err != nil {
				return err
			}
		}
		for i := range b.count {
			x, to := b.x, b.out
			x.Off += int64(i*in) * int64(x.DType.Size())
			to.Off += int64(i*out) * int64(to.DType.Size())
			err := multiplyAll(d, "multiply", x, []kernel.Projection{{Out: to, W: b.group.members[i]}}, false)
			if err != nil {
				return err
			}
		}
		return nil
	}
	x := b.x
	x.Cols = in * b.count
	r, w := require{op: "multiply by bands"}, &b.group.whole
	p := rowProducts{dev: d, x: x, rows: r.count("rows", x.Rows), k: r.count("columns", x.Cols)}
	y := cuda.Product{Type: w.kind, Weight: w.data, WeightScales: w.scales, WeightStride: int64(in),
		WeightBatch: int64(in) * int64(out), Input: at(x), InputStride: stride(x), InputBatch: int64(in),
		Out: at(b.out), OutStride: stride(b.out), OutBatch: int64(out), OutF32: b.out.DType == kernel.F32, Rows: p.rows,
		Columns: r.count("columns", out), K: r.count("columns", in), Batch: r.count("matrices", b.count),
		Whole: r.count("columns", w.out)}
	if r.err != nil {
		return r.err
	}
	if w.kind != cuda.ProductFP8 {
		return multiplyOne(d, &y)
	}
	codes, scales := aligned256(int64(x.Rows)*int64(x.Cols)), p.scaleBytes()
	return d.temporary(codes+scales+y.SumBytes(d.gpu), func(scratch cuda.Ptr) error {
		p.codes, p.scales = scratch, scratch.Add(codes)
		if y.SumBytes(d.gpu) > 0 {
			y.Sums = scratch.Add(codes + scales)
		}
		quantise := p.quantise
		if b.turn.X != 0 {
			quantise = func(exact bool) error {
				return cuda.QuantiseTurned(d.kernels, d.stream, &cuda.QuantiseTurnedArgs{Quantise: p.codesOf(exact),
					Rotate: b.turn})
			}
		}
		if err := quantise(w.exact); err != nil {
			return err
		}
		y.Input, y.InputStride, y.InputScales, y.ScaleStride = p.codes, int64(p.k), p.scales, p.scaleStride()
		return multiplyOne(d, &y)
	})
}
