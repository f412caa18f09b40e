package op

import (
	"errors"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// element returns the number that kernels use for a float type.
func (r *require) element(name string, t kernel.Tensor) cuda.ElementType {
	switch t.DType {
	case kernel.F32:
		return cuda.ElementF32
	case kernel.BF16:
		return cuda.ElementBF16
	case kernel.F16:
		return cuda.ElementF16
	}
	r.fail("%s has type %v, this backend supports f32, bf16 and f16", name, t.DType)
	return 0
}

// embed looks up embeddings; tokens that another rank has become zeros. A token outside the table raises a fault. On a
// single rank the operation is delayed, to run as a part of a later launch.
func embed(d *Device, a kernel.EmbedArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	w, err := own("embed", a.Table)
	if err != nil {
		return err
	}
	r := require{op: "embed"}
	args := cuda.PickArgs{Table: w.data, TableStride: int64(w.in), TableRows: r.count("table rows", w.out),
		TableType: cuda.ElementBF16}
	if a.Part == (kernel.Part{}) || a.IDs.Rows == 0 {
		if args = picked(d, &r, args, a.Out, a.IDs); r.err != nil || a.Out.Rows == 0 || a.Out.Cols == 0 {
			return r.err
		}
		p, n := &d.held.parts.args.Picks, &d.held.parts.counts[1]
		if err := addPart(d, *n == mostAlike, []kernel.Tensor{a.IDs}, []kernel.Tensor{a.Out}); err != nil {
			return err
		}
		*[mostAlike]*cuda.PickArgs{&p.First, &p.Second, &p.Third, &p.Fourth}[*n] = args
		*n++
		return nil
	}
	if err := d.settle(); err != nil {
		return err
	}
	ids, scratch, err := localExperts(d, &r, a.IDs, a.Part, args.TableRows, cuda.FaultRow)
	if err != nil {
		return err
	}
	args.Optional = 1 // rows of other ranks become zeros
	return errors.Join(pickRows(d, &r, args, a.Out, ids), d.scratch.Put(scratch))
}

// Take copies chosen rows. A row outside the tensor raises a fault.
func (d *Device) Take(a kernel.TakeArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	if a.X.DType == kernel.I32 { // rows of equal types are copied bit by bit
		a.X.DType, a.Out.DType = kernel.F32, kernel.F32
	}
	r := require{op: "take"}
	return pickRows(d, &r, cuda.PickArgs{Table: at(a.X), TableStride: stride(a.X),
		TableRows: r.count("table rows", a.X.Rows), TableType: r.element("x", a.X)}, a.Out, a.Rows)
}

// picked adds the output and the row numbers to the arguments of a copy of rows.
func picked(d *Device, r *require, args cuda.PickArgs, out, ids kernel.Tensor) cuda.PickArgs {
	args.IDs, args.Out, args.Faults, args.IDStride, args.OutStride = at(ids), at(out), d.faults.Ptr(), stride(ids),
		stride(out)
	args.Rows, args.Columns, args.OutType = r.count("rows", out.Rows), r.count("columns", out.Cols),
		r.element("out", out)
	return args
}

func pickRows(d *Device, r *require, args cuda.PickArgs, out, ids kernel.Tensor) error {
	args = picked(d, r, args, out, ids)
	if r.err != nil || out.Rows == 0 || out.Cols == 0 {
		return r.err
	}
	return cuda.PickRows(d.kernels, d.stream, &args)
}

// angles computes the cosines and sines of every row's rotation. It is delayed, to run as a part of a later launch.
func angles(d *Device, a kernel.AngleArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	r := require{op: "angles"}
	args := cuda.AnglesArgs{Positions: at(a.Positions), Frequency: at(a.InvFreq), Out: at(a.Out),
		PositionStride: stride(a.Positions), OutStride: stride(a.Out),
		Rows: r.count("rows", a.Out.Rows), Count: r.count("frequencies", a.InvFreq.Cols), Scale: a.Scale}
	if r.err != nil || a.Out.Rows == 0 || a.InvFreq.Cols == 0 {
		return r.err
	}
	p, n := &d.held.parts.args.Angles, &d.held.parts.counts[2]
	if err := addPart(d, *n == mostAlike, []kernel.Tensor{a.Positions, a.InvFreq}, []kernel.Tensor{a.Out}); err != nil {
		return err
	}
	*[mostAlike]*cuda.AnglesArgs{&p.First, &p.Second, &p.Third, &p.Fourth}[*n] = args
	*n++
	return nil
}

// rotateRows applies RoPE in place. If the norm of the heads is delayed, norm and rotation become a delayed part.
// Otherwise the rotation alone is delayed, because it can be fused with Absorb, which copies the rotated columns, and
// with the quantisation of rows for products in heldBands.
func rotateRows(d *Device, a kernel.RotateArgs) error {
	h := &d.held
	normalised := h.kind == holdHeads && h.turned == a.X && int(h.heads.Heads) == a.Heads &&
		int(h.heads.Columns) == a.HeadDim
	if !normalised {
		if err := d.settle(); err != nil {
			return err
		}
	}
	if err := a.Check(); err != nil {
		return err
	}
	r := require{op: "rotate"}
	args := cuda.RotateArgs{X: at(a.X), Angles: at(a.Angles), XStride: stride(a.X), AngleStride: stride(a.Angles),
		Rows:  r.count("rows", a.X.Rows),
		Heads: r.count("heads", a.Heads), HeadDim: r.count("columns of a head", a.HeadDim),
		Offset: r.count("columns before the rotated ones", a.Offset),
		Rope:   r.count("rotated columns", a.Angles.Cols), XType: r.element("x", a.X),
		Interleaved: flag(a.Pairing == kernel.Interleaved), Inverse: flag(a.Inverse)}
	if r.err != nil || a.X.Rows == 0 || a.Heads == 0 || a.Angles.Cols == 0 {
		return errors.Join(r.err, d.settle())
	}
	if normalised && args.Joins(int32(a.Heads*a.HeadDim), stride(a.X)) {
		h.kind = holdNothing
		err := addPart(d, h.parts.args.Heads.Norm.Rows > 0, []kernel.Tensor{a.X, a.Angles}, []kernel.Tensor{a.X})
		if err == nil {
			h.parts.args.Heads = cuda.HeadTurnArgs{Norm: h.heads, Rotate: args}
		}
		return err
	}
	if err := d.settle(); err != nil {
		return err
	}
	h.kind, h.turn, h.turned, h.copied = holdTurn, cuda.TurnArgs{Rotate: args}, a.X, false
	return nil
}

// gateRows launches the kernel of silu(Gate) * Up.
func gateRows(d *Device, a *kernel.GateArgs) error {
	r := require{op: "gate"}
	args := cuda.GateArgs{Gate: at(a.Gate), Up: at(a.Up), Out: at(a.Out), GateStride: stride(a.Gate),
		UpStride: stride(a.Up), OutStride: stride(a.Out),
		Rows: r.count("rows", a.Gate.Rows), Columns: r.count("columns", a.Gate.Cols),
		GateType: r.element("gate", a.Gate), UpType: r.element("up", a.Up),
		OutType: r.element("out", a.Out), Limit: a.Limit}
	if r.err != nil || a.Gate.Rows == 0 || a.Gate.Cols == 0 {
		return r.err
	}
	return cuda.GateRows(d.kernels, d.stream, &args)
}
