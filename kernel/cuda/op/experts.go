package op

import (
	"fmt"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// experts are the experts of a layer in device memory, packed in the order in which the kernels read them.
type experts struct {
	shape  cuda.ExpertShape
	packed cuda.PackedExperts
}

func (x *experts) Count() int  { return int(x.shape.Experts) }
func (x *experts) Hidden() int { return int(x.shape.Hidden) }
func (x *experts) Inner() int  { return int(x.shape.Inner) }

// Experts runs the chosen experts. Rows by e4m3 experts are quantised per 128 columns with scales that are powers of
// two, as checkpoints of scale format ue8m0 ask for.
func (d *Device) Experts(a kernel.ExpertArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	e, ok := a.Experts.(*experts)
	if !ok {
		return fmt.Errorf("%w: experts: they were prepared by another device", kernel.ErrArgument)
	}
	r := require{op: "experts"}
	r.dtype("x", a.X, kernel.BF16)
	r.dtype("out", a.Out, kernel.BF16)
	r.aligned("x", a.X, 16)
	r.aligned("out", a.Out, 16)
	x := cuda.Experts{
		Shape: e.shape, Packed: e.packed, X: at(a.X), Out: at(a.Out), IDs: at(a.IDs), Weights: at(a.Weights),
		Faults: d.faults.Ptr(), XStride: stride(a.X), OutStride: stride(a.Out), IDStride: stride(a.IDs),
		WeightStride: stride(a.Weights), Rows: r.count("rows", a.X.Rows), Top: r.count("choices", a.IDs.Cols),
		Limit: a.Limit, Scales: num.ScalePow2,
	}
	if r.err != nil || a.X.Rows == 0 || a.IDs.Cols == 0 {
		return r.err
	}
	return d.temporary(e.shape.ScratchBytes(x.Rows, x.Top), func(scratch cuda.Ptr) error {
		x.Scratch = scratch
		args, err := x.Encode()
		if err != nil {
			return err
		}
		return d.kernels.RunExperts(d.stream, e.shape, &args)
	})
}

// PrepareExperts uploads the matrices of experts and packs them. Only the packed copy stays on the device.
func (d *Device) PrepareExperts(w kernel.ExpertWeights) (_ kernel.Experts, err error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	shape, err := expertShape(&w)
	if err != nil {
		return nil, err
	}
	gateUp, gateUpScales, down, downScales := shape.PackedBytes()
	n := int64(shape.Experts)
	memory, err := d.Alloc(n*(gateUp+down+gateUpScales+downScales) + 16)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.Free(memory)
		}
	}()
	base := memory.(*Buffer).ptr
	x := &experts{shape: shape, packed: cuda.PackedExperts{
		GateUp: base, Down: base.Add(n * gateUp), GateUpScales: base.Add(n * (gateUp + down)),
		DownScales: base.Add(n * (gateUp + down + gateUpScales)),
	}}
	for e := range w.Gate {
		if err := d.packExpert(x, int32(e), w.Gate[e], w.Up[e], w.Down[e]); err != nil {
			return nil, fmt.Errorf("expert %d: %w", e, err)
		}
	}
	return x, nil
}

// packExpert uploads one expert's matrices to memory that is given back after they have been packed: freeing it waits.
func (d *Device) packExpert(x *experts, e int32, gate, up, down kernel.Weight) error {
	var to [3]cuda.Matrix
	for i, w := range []kernel.Weight{gate, up, down} {
		m, err := d.upload(w, kernel.Projected)
		if err != nil {
			return err
		}
		defer func() {
			d.Free(m.Data.Buf)
			if m.Scale.Given() {
				d.Free(m.Scale.Buf)
			}
		}()
		to[i] = cuda.Matrix{Data: at(m.Data), Stride: stride(m.Data)}
		if m.Scale.Given() {
			to[i].Scales, to[i].ScaleStride = at(m.Scale), stride(m.Scale)
		}
	}
	return d.kernels.PackExpert(d.stream, x.shape, e, to[0], to[1], to[2], x.packed)
}

// expertShape finds what no kernel takes.
func expertShape(w *kernel.ExpertWeights) (cuda.ExpertShape, error) {
	r := require{op: "prepare experts"}
	kind := w.Gate[0].Data.DType
	if kind != kernel.E4M3 && kind != kernel.BF16 {
		r.fail("weights of type %v, this backend takes e4m3 and bf16", kind)
	}
	shape := cuda.ExpertShape{
		Experts: r.count("experts", len(w.Gate)), Hidden: r.count("columns", w.Gate[0].In()),
		Inner: r.count("inner columns", w.Gate[0].Out()), BF16: kind == kernel.BF16,
	}
	if len(w.Gate) > cuda.MaxExperts || shape.Hidden%16 != 0 || shape.Inner%16 != 0 {
		r.fail("%d experts of %d x %d, this backend takes up to %d of multiples of 16", len(w.Gate), shape.Inner,
			shape.Hidden, cuda.MaxExperts)
	}
	for e := range w.Gate {
		for _, m := range []kernel.Weight{w.Gate[e], w.Up[e], w.Down[e]} {
			r.dtype("a weight", m.Data, kind)
			if kind == kernel.E4M3 && (m.BlockRows != 128 || m.BlockCols != 128) {
				r.fail("weights with scales for %d x %d, this backend takes 128 x 128", m.BlockRows, m.BlockCols)
			}
			if m.Data.Stride*kind.Size()%16 != 0 {
				r.fail("weights with %d bytes from row to row, this backend takes multiples of 16",
					m.Data.Stride*kind.Size())
			}
		}
	}
	return shape, r.err
}
