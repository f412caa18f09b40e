package kernels

import (
	"sparrow/kernel"
)

// linearHeads is the number of heads of a linear layer of GLM-5.3-Flash.
const linearHeads = 64

func linearCases() []Case {
	return []Case{
		{Name: "convolve", Shape: "64 sequences of 1 row, 8192 channels", Make: convolve},
		{Name: "delta rule", Shape: "8 sequences of 1 row, 64 heads", Make: delta},
		{Name: "gated norm", Shape: "512 tokens, 64 heads of 128", Make: gatedNorm},
		{Name: "mean of streams", Shape: "512 tokens, 4 streams of 1024", Make: meanStreams},
		{Name: "layer norm", Shape: "512 tokens of 1024", Make: layerNorm},
		{Name: "spread pools", Shape: "64 rows, 512 pools of 4 tokens", Make: spread},
	}
}

// decodes returns n sequences with one row each. The rows are the first of their sequences, so that a run does not
// depend on earlier runs; states are read and written as for later rows.
func (r *Rig) decodes(n int) kernel.Sequences {
	return kernel.Sequences{Rows: r.ints(n, 1, func(i int) int32 { return int32(i) }),
		Spans: r.ints(n, kernel.SpanWords, func(i int) int32 {
			s := int32(i / kernel.SpanWords)
			return [kernel.SpanWords]int32{s, 1, s, 1, 0, 0}[i%kernel.SpanWords]
		}),
		Snapshots: r.constant(n, -1)}
}

func convolve(r *Rig) *Op {
	const rows, channels = 64, linearHeads * kernel.DeltaDim
	x := r.normal(rows, channels, 1)
	return repeated(r, kernel.ConvArgs{Out: r.empty(kernel.F32, rows, channels), X: x,
		Weight: r.normal(channels, kernel.ConvRows+1, 1), State: r.normal(rows*kernel.ConvRows, channels, 1),
		Kept: r.empty(kernel.F32, kernel.ConvRows, channels), Sequences: r.decodes(rows)}, "Out", within(1e-5)).reads(x)
}

func delta(r *Rig) *Op {
	const rows, width = 8, linearHeads * kernel.DeltaDim
	state := r.normal(rows*width, kernel.DeltaDim, 0.1)
	op := repeated(r, kernel.DeltaArgs{Out: r.empty(kernel.F32, rows, width), Q: r.normal(rows, width, 1),
		K: r.normal(rows, width, 1), V: r.normal(rows, width, 1), Gate: r.normal(rows, width, 1),
		Beta: r.normal(rows, linearHeads, 1), ALog: r.normal(1, linearHeads, 1), Bias: r.normal(1, width, 1),
		State: state, Kept: r.empty(kernel.F32, width, kernel.DeltaDim), Sequences: r.decodes(rows),
		Heads: linearHeads, Bound: -5}, "Out", within(1e-4))
	op.Bytes = 2 * float64(state.Extent()) // each state is read and written
	return op
}

func gatedNorm(r *Rig) *Op {
	const width = linearHeads * kernel.DeltaDim
	x := r.normal(rowTokens, width, 1)
	return rowwise(r, kernel.GatedNormArgs{Out: r.empty(kernel.F32, rowTokens, width), X: x,
		Gate: r.normal(rowTokens, width, 1), Weight: r.normal(1, kernel.DeltaDim, 1), Heads: linearHeads, Eps: 1e-6},
		outs{"Out": 1e-4}).reads(x)
}

func meanStreams(r *Rig) *Op {
	x := r.normal(rowTokens, hyperStreams*rowHidden, 1)
	return rowwise(r, kernel.MeanStreamsArgs{Out: r.empty(kernel.F32, rowTokens, rowHidden), X: x,
		Streams: hyperStreams}, outs{"Out": 1e-5}).reads(x)
}

func layerNorm(r *Rig) *Op {
	x := r.normal(rowTokens, rowHidden, 1)
	return rowwise(r, kernel.LayerNormArgs{Out: r.empty(kernel.F32, rowTokens, rowHidden), X: x,
		Weight: r.normal(1, rowHidden, 1), Bias: r.normal(1, rowHidden, 1), Eps: 1e-6}, outs{"Out": 1e-4}).reads(x)
}

func spread(r *Rig) *Op {
	const rows, chosen, pool, page, pages = 64, 512, 4, 64, 256
	pools := r.ints(rows, chosen, func(i int) int32 { return int32(i % chosen * (page * pages / pool / chosen)) })
	return rowwise(r, kernel.SpreadArgs{Out: r.empty(kernel.I32, rows, chosen*pool+pool-1),
		Lens: r.empty(kernel.I32, rows, 1), Pools: pools, Seen: r.constant(rows, page*pages-1),
		Table: r.ints(1, pages, r.order(pages)), TableRow: r.constant(rows, 0), PageTokens: page, Pool: pool},
		outs{"Out": 0, "Lens": 0}).reads(pools)
}
