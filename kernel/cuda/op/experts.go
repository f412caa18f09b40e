package op

import (
	"errors"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// packedExperts are the experts of a layer in the order in which the kernels read them.
type packedExperts struct {
	shape  cuda.ExpertShape
	memory *cuda.Buffer
	at     cuda.PackedExperts
}

// expertKey names a layer's experts by their first matrix.
type expertKey struct {
	buf kernel.Buffer
	off int64
}

// Experts runs the chosen experts. Their weights are packed on the first call, or before by PackExperts: the packed copy stays until the device is
// closed or DropExperts is called, and from then on the matrices themselves are not read.
func (d *Device) Experts(a kernel.ExpertArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	r := require{op: "experts"}
	r.dtype("x", a.X, kernel.BF16)
	r.dtype("out", a.Out, kernel.BF16)
	r.aligned("x", a.X, 16)
	r.aligned("out", a.Out, 16)
	if r.err != nil || a.X.Rows == 0 || a.IDs.Cols == 0 {
		return r.err
	}
	p, err := d.expertsOf(a.Gate, a.Up, a.Down)
	if err != nil {
		return err
	}
	x := cuda.Experts{Shape: p.shape, Packed: p.at, X: at(a.X), Out: at(a.Out), IDs: at(a.IDs), Weights: at(a.Weights), Faults: d.faults.Ptr(), XStride: stride(a.X),
		OutStride: stride(a.Out), IDStride: stride(a.IDs), WeightStride: stride(a.Weights), Rows: r.count("rows", a.X.Rows), Top: r.count("choices", a.IDs.Cols),
		Limit: a.Limit, Scales: num.ScalePow2}
	if r.err != nil {
		return r.err
	}
	return d.temporary(p.shape.ScratchBytes(x.Rows, x.Top), func(scratch cuda.Ptr) error {
		x.Scratch = scratch
		args, err := x.Encode()
		if err != nil {
			return err
		}
		return d.kernels.RunExperts(d.stream, p.shape, &args)
	})
}

// PackExperts packs a layer's experts ahead of the first call of Experts with the same matrices, which may then be freed.
func (d *Device) PackExperts(gate, up, down []kernel.Weight) error {
	_, err := d.expertsOf(gate, up, down)
	return err
}

// DropExperts frees the packed copy of a layer's experts. It waits for work that uses it.
func (d *Device) DropExperts(gate []kernel.Weight) error {
	key := expertKey{gate[0].Data.Buf, gate[0].Data.Off}
	p := d.experts[key]
	if p == nil {
		return nil
	}
	delete(d.experts, key)
	return p.memory.Free()
}

// expertsOf finds or makes the packed copy.
func (d *Device) expertsOf(gate, up, down []kernel.Weight) (*packedExperts, error) {
	key := expertKey{gate[0].Data.Buf, gate[0].Data.Off}
	if p := d.experts[key]; p != nil {
		return p, nil
	}
	r := require{op: "experts"}
	kind := gate[0].Data.DType
	if kind != kernel.E4M3 && kind != kernel.BF16 {
		r.fail("weights of type %v, this backend takes e4m3 and bf16", kind)
	}
	shape := cuda.ExpertShape{Experts: r.count("experts", len(gate)), Hidden: r.count("columns", gate[0].In()), Inner: r.count("inner columns", gate[0].Out()), BF16: kind == kernel.BF16}
	if len(gate) > cuda.MaxExperts || shape.Hidden%16 != 0 || shape.Inner%16 != 0 {
		r.fail("%d experts of %d x %d, this backend takes up to %d of multiples of 16", len(gate), shape.Inner, shape.Hidden, cuda.MaxExperts)
	}
	for e := range gate {
		for _, w := range []kernel.Weight{gate[e], up[e], down[e]} {
			r.dtype("a weight", w.Data, kind)
			r.aligned("a weight", w.Data, 16)
			if kind == kernel.E4M3 && (w.BlockRows != 128 || w.BlockCols != 128) {
				r.fail("weights with scales for %d x %d, this backend takes 128 x 128", w.BlockRows, w.BlockCols)
			}
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	gateUp, gateUpScales, downs, downScales := shape.PackedBytes()
	n := int64(shape.Experts)
	memory, err := d.gpu.Alloc(n*(gateUp+downs+gateUpScales+downScales) + 16)
	if err != nil {
		return nil, err
	}
	base := memory.Ptr()
	p := &packedExperts{shape: shape, memory: memory, at: cuda.PackedExperts{GateUp: base, Down: base.Add(n * gateUp), GateUpScales: base.Add(n * (gateUp + downs)),
		DownScales: base.Add(n * (gateUp + downs + gateUpScales))}}
	for e := range gate {
		if err := d.kernels.PackExpert(d.stream, shape, int32(e), matrix(gate[e]), matrix(up[e]), matrix(down[e]), p.at); err != nil {
			return nil, errors.Join(err, memory.Free())
		}
	}
	if d.experts == nil {
		d.experts = map[expertKey]*packedExperts{}
	}
	d.experts[key] = p
	return p, nil
}

// matrix is a weight as kernels see it.
func matrix(w kernel.Weight) cuda.Matrix {
	m := cuda.Matrix{Data: at(w.Data), Stride: stride(w.Data)}
	if w.Scale.Given() {
		m.Scales, m.ScaleStride = at(w.Scale), stride(w.Scale)
	}
	return m
}
