package op

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// element is the kernels' name of a float type.
func (r *require) element(name string, t kernel.Tensor) cuda.ElementType {
	switch t.DType {
	case kernel.F32:
		return cuda.ElementF32
	case kernel.BF16:
		return cuda.ElementBF16
	case kernel.F16:
		return cuda.ElementF16
	}
	r.fail("%s of type %v, this backend takes f32, bf16 and f16", name, t.DType)
	return 0
}

// Embed looks up embeddings. A token outside the table raises a fault.
func (d *Device) Embed(a kernel.EmbedArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	table, ok := a.Table.(*matrix)
	if !ok {
		return fmt.Errorf("%w: embed: the table was prepared by another device", kernel.ErrArgument)
	}
	return d.pick("embed", a.Out, table.Data, a.IDs)
}

// Take picks rows. A row outside the tensor raises a fault.
func (d *Device) Take(a kernel.TakeArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	return d.pick("take", a.Out, a.X, a.Rows)
}

func (d *Device) pick(op string, out, table, ids kernel.Tensor) error {
	r := require{op: op}
	args := cuda.PickArgs{
		Table: at(table), IDs: at(ids), Out: at(out), Faults: d.faults.Ptr(), TableStride: stride(table),
		IDStride: stride(ids), OutStride: stride(out), Rows: r.count("rows", out.Rows),
		Columns: r.count("columns", out.Cols), TableRows: r.count("table rows", table.Rows),
		TableType: r.element("table", table), OutType: r.element("out", out),
	}
	if r.err != nil || out.Rows == 0 || out.Cols == 0 {
		return r.err
	}
	return d.kernels.PickRows(d.stream, &args)
}

// Copy copies a tensor. Views with strides move as rows of 2- or 4-byte elements.
func (d *Device) Copy(a kernel.CopyArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	rows, cols, size := a.X.Rows, a.X.Cols, a.X.DType.Size()
	if rows == 0 || cols == 0 {
		return nil
	}
	if stride(a.X) == int64(cols) && stride(a.Out) == int64(cols) {
		return d.stream.CopyOnDevice(at(a.Out), at(a.X), int64(rows)*int64(cols)*int64(size))
	}
	r := require{op: "copy"}
	if size == 1 {
		r.fail("rows of %v with gaps, this backend copies those of 2- and 4-byte elements", a.X.DType)
	}
	ids, err := d.counting(rows)
	if err != nil {
		return err
	}
	kind := cuda.ElementF32
	if size == 2 {
		kind = cuda.ElementBF16
	}
	n := r.count("rows", rows)
	args := cuda.PickArgs{
		Table: at(a.X), IDs: ids, Out: at(a.Out), TableStride: stride(a.X), IDStride: 1, OutStride: stride(a.Out),
		Rows: n, Columns: r.count("columns", cols), TableRows: n, TableType: kind, OutType: kind,
	}
	if r.err != nil {
		return r.err
	}
	return d.kernels.PickRows(d.stream, &args)
}

// Candidates finds the best logits of every row and its log-sum-exp.
func (d *Device) Candidates(a kernel.CandidateArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	r := require{op: "candidates"}
	if a.Logits.Cols > cuda.MaxCandidateColumns || a.Logits.Rows > cuda.MaxCandidateRows {
		r.fail("%d rows of %d logits, this backend takes %d of %d", a.Logits.Rows, a.Logits.Cols,
			cuda.MaxCandidateRows, cuda.MaxCandidateColumns)
	}
	r.packed("log sum", a.LogSum)
	args := cuda.CandidatesArgs{
		Logits: at(a.Logits), IDs: at(a.IDs), Values: at(a.Values), LogSum: at(a.LogSum), Stride: stride(a.Logits),
		IDStride: stride(a.IDs), ValueStride: stride(a.Values), Rows: r.count("rows", a.Logits.Rows),
		Columns: r.count("logits", a.Logits.Cols), Best: r.count("candidates", a.Values.Cols),
	}
	if r.err != nil || a.Logits.Rows == 0 {
		return r.err
	}
	return d.temporary(cuda.CandidatesScratch(args.Rows, args.Columns, args.Best), func(p cuda.Ptr) error {
		args.Keys = p
		return d.kernels.FindCandidates(d.stream, &args)
	})
}

// Angles computes the rotation of every row.
func (d *Device) Angles(a kernel.AngleArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	r := require{op: "angles"}
	args := cuda.AnglesArgs{
		Positions: at(a.Positions), Frequency: at(a.InvFreq), Out: at(a.Out), PositionStride: stride(a.Positions),
		OutStride: stride(a.Out), Rows: r.count("rows", a.Out.Rows), Count: r.count("frequencies", a.InvFreq.Cols),
		Scale: a.Scale,
	}
	if r.err != nil || a.Out.Rows == 0 || a.InvFreq.Cols == 0 {
		return r.err
	}
	return d.kernels.ComputeAngles(d.stream, &args)
}

// Rotate applies RoPE in place.
func (d *Device) Rotate(a kernel.RotateArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	r := require{op: "rotate"}
	args := cuda.RotateArgs{
		X: at(a.X), Angles: at(a.Angles), XStride: stride(a.X), AngleStride: stride(a.Angles),
		Rows: r.count("rows", a.X.Rows), Heads: r.count("heads", a.Heads),
		HeadDim: r.count("columns of a head", a.HeadDim), Offset: r.count("columns before the rotated ones", a.Offset),
		Rope: r.count("rotated columns", a.Angles.Cols), XType: r.element("x", a.X),
	}
	if a.Pairing == kernel.Interleaved {
		args.Interleaved = 1
	}
	if a.Inverse {
		args.Inverse = 1
	}
	if r.err != nil || a.X.Rows == 0 || a.Heads == 0 || a.Angles.Cols == 0 {
		return r.err
	}
	return d.kernels.RotateHeads(d.stream, &args)
}

// Gate applies silu(gate) * up.
func (d *Device) Gate(a kernel.GateArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	r := require{op: "gate"}
	args := cuda.GateArgs{
		Gate: at(a.Gate), Up: at(a.Up), Out: at(a.Out), GateStride: stride(a.Gate), UpStride: stride(a.Up),
		OutStride: stride(a.Out), Rows: r.count("rows", a.Gate.Rows), Columns: r.count("columns", a.Gate.Cols),
		GateType: r.element("gate", a.Gate), UpType: r.element("up", a.Up), OutType: r.element("out", a.Out),
		Limit: a.Limit,
	}
	if r.err != nil || a.Gate.Rows == 0 || a.Gate.Cols == 0 {
		return r.err
	}
	return d.kernels.GateRows(d.stream, &args)
}

// Route chooses experts.
func (d *Device) Route(a kernel.RouteArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	r := require{op: "route"}
	if a.Logits.Cols > cuda.MaxRouted || a.Groups > cuda.MaxGroups || a.IDs.Cols > cuda.MaxTop {
		r.fail("top %d of %d experts in %d groups, this backend takes up to %d of %d in %d", a.IDs.Cols, a.Logits.Cols,
			a.Groups, cuda.MaxTop, cuda.MaxRouted, cuda.MaxGroups)
	}
	args := cuda.RouteArgs{
		Logits: at(a.Logits), Bias: at(a.Bias), IDs: at(a.IDs), Weights: at(a.Weights), LogitStride: stride(a.Logits),
		IDStride: stride(a.IDs), WeightStride: stride(a.Weights), Rows: r.count("rows", a.Logits.Rows),
		Experts: r.count("experts", a.Logits.Cols), Top: r.count("choices", a.IDs.Cols),
		Groups: r.count("groups", a.Groups), KeepGroups: r.count("kept groups", a.KeepGroups), Scale: a.Scale,
	}
	if a.Normalize {
		args.Normalize = 1
	}
	if r.err != nil || a.Logits.Rows == 0 || a.IDs.Cols == 0 {
		return r.err
	}
	return d.kernels.RouteExperts(d.stream, &args)
}
