package op

import (
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// Copy copies a tensor.
func (d *Device) Copy(a kernel.CopyArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	if a.X.Rows == 0 || a.X.Cols == 0 {
		return nil
	}
	size := a.X.DType.Size()
	if stride(a.X) == int64(a.X.Cols) && (a.Out.Rows == 1 || a.Out.Stride == a.Out.Cols) {
		return d.stream.CopyOnDevice(at(a.Out), at(a.X), a.X.Extent())
	}
	r := require{op: "copy"}
	args := cuda.MoveArgs{X: at(a.X), Out: at(a.Out), XStride: stride(a.X), OutStride: int64(a.Out.Stride),
		Rows: int64(a.X.Rows), Columns: r.count("columns", a.X.Cols)}
	switch size {
	case 4: // any type of four bytes
	case 2:
		args.XType, args.OutType = cuda.ElementBF16, cuda.ElementBF16
	default:
		r.fail("rows of %v are not contiguous; this backend copies such rows only with elements of 2 or 4 "+
			"bytes", a.X.DType)
	}
	if r.err != nil {
		return r.err
	}
	return cuda.MoveRows(d.kernels, d.stream, &args)
}

// candidates finds the largest logits of every row and computes each row's log-sum-exp.
func candidates(d *Device, a kernel.CandidateArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "candidates"}
	r.packed("log sum", a.LogSum)
	if a.Logits.Cols > cuda.MaxCandidateColumns {
		r.fail("the vocabulary has %d tokens, this backend supports up to %d", a.Logits.Cols, cuda.MaxCandidateColumns)
	}
	args := cuda.CandidatesArgs{Logits: at(a.Logits), IDs: at(a.IDs), Values: at(a.Values), LogSum: at(a.LogSum),
		Stride: stride(a.Logits), IDStride: stride(a.IDs),
		ValueStride: stride(a.Values), Rows: r.count("rows", a.Logits.Rows),
		Columns: r.count("columns", a.Logits.Cols), Best: r.count("candidates", a.Values.Cols)}
	if r.err != nil || a.Logits.Rows == 0 {
		return r.err
	}
	return d.temporary(cuda.CandidatesScratch(args.Rows, args.Columns, args.Best), func(p cuda.Ptr) error {
		args.Keys = p
		return cuda.FindCandidates(d.kernels, d.stream, &args)
	})
}

// sample samples a token from every row of logits.
func sample(d *Device, a kernel.SampleArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "sample"}
	if a.Logits.Cols > cuda.MaxSampleColumns {
		r.fail("the vocabulary has %d tokens, this backend supports up to %d", a.Logits.Cols, cuda.MaxSampleColumns)
	}
	args := cuda.SampleArgs{Logits: at(a.Logits), Draws: at(a.Draws), Best: at(a.IDs), IDs: at(a.IDs),
		Stride: stride(a.Logits), IDStride: stride(a.IDs), Rows: r.count("rows", a.Logits.Rows),
		Columns: r.count("columns", a.Logits.Cols)}
	if r.err != nil || a.Logits.Rows == 0 {
		return r.err
	}
	return cuda.SampleRows(d.kernels, d.stream, &args)
}

// Accept compares drafts with the tokens that the target chose. A position, a sequence or a token out of range raises
// a fault.
func (d *Device) Accept(a kernel.AcceptArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "accept"}
	args := cuda.AcceptArgs{Tokens: at(a.Tokens), Drafts: at(a.Drafts), Words: at(a.Words), Out: at(a.Out),
		Faults: d.faults.Ptr(), TokenStride: stride(a.Tokens), Rows: r.count("words", a.Words.Rows),
		Columns: r.count("places", a.Out.Cols), TokenCount: r.count("tokens", a.Tokens.Rows),
		Sequences: r.count("sequences", a.Drafts.Rows), Most: r.count("drafts", a.Words.Cols-3)}
	if r.err != nil || a.Words.Rows == 0 {
		return r.err
	}
	return cuda.AcceptDrafts(d.kernels, d.stream, &args)
}
