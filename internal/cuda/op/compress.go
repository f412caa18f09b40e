package op

import (
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// compress computes compressed entries from groups of tokens. It is delayed, to run as a part of a later launch. A
// source outside its tensor raises a fault.
func compress(d *Device, a kernel.CompressArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	r := require{op: "compress"}
	r.dtype("out", a.Out, kernel.BF16)
	args := cuda.CompressArgs{Values: at(a.Values), Gates: at(a.Gates), State: at(a.State), APE: at(a.APE),
		Sources: at(a.Sources), Out: at(a.Out), Faults: d.faults.Ptr(), ValueStride: stride(a.Values),
		GateStride: stride(a.Gates), StateStride: stride(a.State), APEStride: stride(a.APE),
		SourceStride: stride(a.Sources), OutStride: stride(a.Out), Entries: r.count("entries", a.Sources.Rows),
		Columns: r.count("columns", a.Out.Cols), Ratio: r.count("ratio", a.Ratio), Halves: int32(a.Halves()),
		Rows: r.count("rows", a.Values.Rows), StateRows: r.count("state rows", a.State.Rows)}
	if r.err != nil || args.Entries == 0 || args.Columns == 0 {
		return r.err
	}
	p := &d.held.parts
	err := addPart(d, p.args.Groups.Entries > 0 && p.args.Keys.Entries > 0,
		[]kernel.Tensor{a.Values, a.Gates, a.State, a.APE, a.Sources}, []kernel.Tensor{a.Out})
	switch {
	case err != nil:
		return err
	case p.args.Groups.Entries == 0:
		p.args.Groups = args
	default:
		p.args.Keys = args
	}
	return nil
}

// Put copies rows to given positions. It is delayed, to run as a part of a later launch. A position beyond the output
// raises a fault.
func (d *Device) Put(a kernel.PutArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	given := a
	if a.X.DType == kernel.I32 { // rows of equal types are copied bit by bit
		a.X.DType, a.Out.DType = kernel.F32, kernel.F32
	}
	r := require{op: "put"}
	args := cuda.PutArgs{X: at(a.X), Places: at(a.Rows), Out: at(a.Out), Faults: d.faults.Ptr(), XStride: stride(a.X),
		PlaceStride: stride(a.Rows), OutStride: stride(a.Out), Rows: r.count("rows", a.X.Rows),
		Columns: r.count("columns", a.X.Cols), OutRows: r.count("rows of the output", a.Out.Rows),
		XType: r.element("x", a.X), OutType: r.element("out", a.Out)}
	if r.err != nil || args.Rows == 0 || args.Columns == 0 {
		return r.err
	}
	p := &d.held.parts
	n := &p.counts[0]
	if err := addPart(d, *n == mostAlike, []kernel.Tensor{given.X, given.Rows},
		[]kernel.Tensor{given.Out}); err != nil {
		return err
	}
	all := &p.args.Puts
	*[mostAlike]*cuda.PutArgs{&all.First, &all.Second, &all.Third, &all.Fourth}[*n] = args
	*n++
	return nil
}
