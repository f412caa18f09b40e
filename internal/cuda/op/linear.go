package op

import (
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// This file has linear attention with a gate for each channel, and operations for pools of index keys. Rows of a
// sequence are computed in order, so results do not depend on the division of the sequence into passes, nor on other
// sequences.

// sequences returns the kernels' description of sequences. The numbers of slots and snapshots follow from the rows of
// the tensors, and held-back rows are divided equally among the slots.
func sequences(d *Device, r *require, s kernel.Sequences, state, kept, held kernel.Tensor,
	rows int) cuda.SequencesView {
	for _, t := range []struct {
		name string
		kernel.Tensor
	}{{"rows", s.Rows}, {"spans", s.Spans}, {"snapshots", s.Snapshots}, {"state", state}, {"kept", kept},
		{"held", held}} {
		if t.Given() {
			r.packed(t.name, t.Tensor)
		}
	}
	r.aligned("state", state, 16)
	r.aligned("kept", kept, 16)
	v := cuda.SequencesView{Rows: at(s.Rows), Spans: at(s.Spans), Snapshots: at(s.Snapshots), Faults: d.faults.Ptr(),
		Count: r.count("rows", s.Rows.Rows), Sequences: r.count("sequences", s.Spans.Rows),
		Slots: r.count("slots", state.Rows/rows), Kept: r.count("snapshots", kept.Rows/rows)}
	if held.Given() && v.Slots > 0 {
		v.Held = r.count("held rows", held.Rows/int(v.Slots))
	}
	return v
}

// convolve computes causal convolutions over the rows of each sequence. A row, slot or snapshot outside its tensor
// raises a fault.
func convolve(d *Device, a kernel.ConvArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "convolve"}
	r.dtype("x", a.X, kernel.BF16)
	r.dtype("out", a.Out, kernel.BF16)
	r.aligned("x", a.X, 8)
	r.aligned("out", a.Out, 8)
	r.packed("weight", a.Weight)
	r.aligned("weight", a.Weight, 16)
	if a.X.Cols%4 != 0 {
		r.fail("there are %d channels, this backend supports multiples of 4", a.X.Cols)
	}
	args := cuda.ConvolveArgs{Of: sequences(d, &r, a.Sequences, a.State, a.Kept, a.Held, kernel.ConvRows), X: at(a.X),
		Out: at(a.Out), Weight: at(a.Weight), State: at(a.State), Kept: at(a.Kept), XStride: stride(a.X),
		OutStride: stride(a.Out), Columns: r.count("channels", a.X.Cols)}
	if a.Held.Given() {
		r.aligned("held", a.Held, 16)
		args.Held = at(a.Held)
	}
	if r.err != nil || a.X.Rows == 0 || a.X.Cols == 0 {
		return r.err
	}
	return cuda.Convolve(d.kernels, d.stream, &args)
}

// delta computes the gated delta rule row by row, or in chunks of 16 positions. A chunk that is not whole is computed
// row by row. A row, slot or snapshot outside its tensor raises a fault, and so does a snapshot inside a whole chunk.
func delta(d *Device, a kernel.DeltaArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "delta rule"}
	if a.Chunk != 0 && a.Chunk != cuda.DeltaGroup {
		r.fail("chunks have %d rows, this backend supports %d, and 0, row by row", a.Chunk, cuda.DeltaGroup)
	}
	for _, t := range []struct {
		name string
		kernel.Tensor
	}{{"q", a.Q}, {"k", a.K}, {"v", a.V}, {"out", a.Out}} {
		r.dtype(t.name, t.Tensor, kernel.BF16)
		r.aligned(t.name, t.Tensor, 8)
	}
	r.aligned("gate", a.Gate, 16)
	r.aligned("bias", a.Bias, 16)
	args := cuda.DeltaArgs{Of: sequences(d, &r, a.Sequences, a.State, a.Kept, a.Held, a.Heads*kernel.DeltaDim),
		Q: at(a.Q), K: at(a.K), V: at(a.V), Gate: at(a.Gate), Beta: at(a.Beta), ALog: at(a.ALog), Bias: at(a.Bias),
		Out: at(a.Out), State: at(a.State), Kept: at(a.Kept), QStride: stride(a.Q), KStride: stride(a.K),
		VStride: stride(a.V), GateStride: stride(a.Gate), BetaStride: stride(a.Beta), OutStride: stride(a.Out),
		Heads: r.count("heads", a.Heads), Bound: a.Bound}
	if a.Held.Given() {
		args.Held = at(a.Held)
	}
	if a.Chunk != 0 {
		r.packed("first", a.First)
		args.First = at(a.First)
	}
	if r.err != nil || a.Q.Rows == 0 {
		return r.err
	}
	return cuda.Delta(d.kernels, d.stream, &args)
}

// gatedNorm normalises every head and multiplies it by the sigmoid of its gate.
func gatedNorm(d *Device, a kernel.GatedNormArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "gated norm"}
	r.dtype("x", a.X, kernel.BF16)
	r.dtype("gate", a.Gate, kernel.BF16)
	r.dtype("out", a.Out, kernel.BF16)
	args := cuda.GatedNormArgs{X: at(a.X), Gate: at(a.Gate), Weight: at(a.Weight), Out: at(a.Out),
		Epsilon: float64(a.Eps), XStride: stride(a.X), GateStride: stride(a.Gate), OutStride: stride(a.Out),
		Rows: r.count("rows", a.X.Rows), Heads: r.count("heads", a.Heads),
		Columns: r.count("columns of a head", a.X.Cols/a.Heads)}
	if r.err != nil || args.Rows == 0 || args.Columns == 0 {
		return r.err
	}
	return cuda.GatedNorm(d.kernels, d.stream, &args)
}

// layerNorm computes LayerNorm of every row.
func layerNorm(d *Device, a kernel.LayerNormArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "layer norm"}
	args := cuda.LayerNormArgs{X: at(a.X), Out: at(a.Out), Weight: at(a.Weight), Bias: at(a.Bias),
		Epsilon: float64(a.Eps), XStride: stride(a.X), OutStride: stride(a.Out), Rows: r.count("rows", a.X.Rows),
		Columns: r.count("columns", a.X.Cols), XType: r.element("x", a.X), OutType: r.element("out", a.Out)}
	if r.err != nil || args.Rows == 0 || args.Columns == 0 {
		return r.err
	}
	return cuda.LayerNorm(d.kernels, d.stream, &args)
}

// meanStreams computes the mean of residual streams.
func meanStreams(d *Device, a kernel.MeanStreamsArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "mean of streams"}
	r.dtype("x", a.X, kernel.BF16)
	r.dtype("out", a.Out, kernel.BF16)
	args := cuda.MeanStreamsArgs{X: at(a.X), Out: at(a.Out), XStride: stride(a.X), OutStride: stride(a.Out),
		Rows: r.count("rows", a.X.Rows), Hidden: r.count("columns", a.Out.Cols), Streams: r.count("streams", a.Streams)}
	if r.err != nil || args.Rows == 0 || args.Hidden == 0 {
		return r.err
	}
	return cuda.MeanStreams(d.kernels, d.stream, &args)
}

// spread converts pools to the slots of their tokens. A pool with tokens that the row may not attend to, or a token
// beyond the page table, raises a fault.
func spread(d *Device, a kernel.SpreadArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "spread pools"}
	r.packed("lens", a.Lens)
	r.packed("seen", a.Seen)
	args := cuda.SpreadPoolsArgs{Pools: at(a.Pools), Seen: at(a.Seen), Out: at(a.Out), Lengths: at(a.Lens),
		Faults: d.faults.Ptr(), PoolStride: stride(a.Pools), OutStride: stride(a.Out),
		Rows: r.count("rows", a.Pools.Rows), Columns: r.count("pools", a.Pools.Cols),
		Pool: r.count("tokens of a pool", a.Pool)}
	if a.Table.Given() {
		r.packed("table row", a.TableRow)
		args.Table, args.TableRows, args.TableStride = at(a.Table), at(a.TableRow), stride(a.Table)
		args.PageTokens, args.TableColumns, args.Tables = r.count("tokens of a page", a.PageTokens),
			r.count("pages", a.Table.Cols), r.count("tables", a.Table.Rows)
	} else {
		r.packed("offset", a.Offset)
		args.Offsets = at(a.Offset)
	}
	if r.err != nil || args.Rows == 0 {
		return r.err
	}
	return cuda.SpreadPools(d.kernels, d.stream, &args)
}
