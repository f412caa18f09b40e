package op

import (
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// Compress turns groups of tokens into entries. A source outside its tensor raises a fault.
func (d *Device) Compress(a kernel.CompressArgs) error {
	if err := d.begin(&a); err != nil {
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
	return d.kernels.CompressGroups(d.stream, &args)
}

// heldPut is rows that are still to be copied to their places.
type heldPut struct {
	args cuda.PutArgs
	put  kernel.PutArgs
}

// mostPuts are the copies of rows of one launch.
const mostPuts = 4

// Put copies rows to chosen places. A place beyond the output raises a fault. It is held: copies that follow each other
// are one launch, where none writes what another reads or writes.
func (d *Device) Put(a kernel.PutArgs) error {
	joins := d.held.kind == holdPuts && len(d.held.puts) < mostPuts
	for _, h := range d.held.puts {
		joins = joins && !overlap(a.Out, h.put.Out) && !overlap(a.Out, h.put.X) && !overlap(a.Out, h.put.Rows) &&
			!overlap(a.X, h.put.Out) && !overlap(a.Rows, h.put.Out)
	}
	if !joins {
		if err := d.settle(); err != nil {
			return err
		}
	}
	if err := a.Check(); err != nil {
		return err
	}
	given := a
	if a.X.DType == kernel.I32 { // rows of one type keep their bits, whatever they are
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
	d.held.kind, d.held.puts = holdPuts, append(d.held.puts, heldPut{args, given})
	return nil
}

// releasePuts launches held copies of rows.
func (d *Device) releasePuts() error {
	list := d.held.puts
	d.held.puts = list[:0]
	if len(list) == 1 {
		return d.kernels.PutRows(d.stream, &list[0].args)
	}
	var a cuda.PutFourArgs
	for i, to := range []*cuda.PutArgs{&a.First, &a.Second, &a.Third, &a.Fourth} {
		if i < len(list) {
			*to = list[i].args
		}
	}
	return d.kernels.PutFour(d.stream, &a)
}
