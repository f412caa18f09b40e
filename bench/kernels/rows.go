package kernels

import (
	"errors"
	"slices"

	"sparrow/kernel"
	"sparrow/kernel/host"
	"sparrow/sample"
)

// The loops around products, over the rows of one prefill chunk of v32-mini.
const rowTokens, rowHidden = 512, 1024

func rowCases() []Case {
	return []Case{
		{Name: "norm", Shape: "512x1024", Make: norm},
		{Name: "gate", Shape: "512x2048", Make: gate},
		{Name: "rotate", Shape: "512 tokens, 16 heads of 192", Make: rotate},
		{Name: "embed bf16", Shape: "512 of 32k rows of 1024", Make: embed},
		{Name: "take", Shape: "64 of 512 rows of 1024", Make: take},
		{Name: "copy", Shape: "512x1024", Make: copyRows},
		{Name: "candidates", Shape: "best of 16 rows of 129280", Make: candidates},
		{Name: "sample", Shape: "top_p 0.95 of 16 rows of 129280", Make: sampleRows},
		{Name: "accept", Shape: "one draft of 128 sequences, 8 words of each", Make: accept},
		{Name: "route", Shape: "512 tokens, 8 of 256 experts", Make: route},
		{Name: "angles", Shape: "512 tokens", Make: angles},
	}
}

func norm(r *Rig) *Op {
	x, out, w := r.normal(rowTokens, rowHidden, 1), r.empty(kernel.F32, rowTokens, rowHidden), r.normal(1, rowHidden, 1)
	return rowwise(out, 1e-5, func(d kernel.Device, from, to int, out kernel.Tensor) error {
		return kernel.Do(d, kernel.NormArgs{Out: out, X: x.Slice(from, to), Weight: w, Eps: 1e-6})
	}).reads(x)
}

func gate(r *Rig) *Op {
	const n = 2048
	a, b, out := r.normal(rowTokens, n, 1), r.normal(rowTokens, n, 1), r.empty(kernel.F32, rowTokens, n)
	op := rowwise(out, 1e-5, func(d kernel.Device, from, to int, out kernel.Tensor) error {
		return kernel.Do(d, kernel.GateArgs{Out: out, Gate: a.Slice(from, to), Up: b.Slice(from, to)})
	}).reads(a)
	op.Bytes += float64(b.Extent())
	return op
}

// rotate works in place, so every run begins with a copy.
func rotate(r *Rig) *Op {
	d := miniDims
	src, x, a := r.normal(rowTokens, d.Heads*d.QK(), 1), r.empty(kernel.F32, rowTokens, d.Heads*d.QK()),
		r.angles(rowTokens)
	return rowwise(x, 1e-5, func(dev kernel.Device, from, to int, x kernel.Tensor) error {
		copy(host.F32(x), host.F32(src.Slice(from, to)))
		return kernel.Do(dev, kernel.RotateArgs{X: x, Angles: a.Slice(from, to), Heads: d.Heads, HeadDim: d.QK(),
			Offset: d.Nope, Pairing: kernel.Interleaved})
	}).reads(src)
}

func embed(r *Rig) *Op {
	const vocabulary = 32 << 10
	w := r.weight(kernel.BF16, vocabulary, rowHidden)
	table := matrix(w, kernel.LookedUp)
	ids, out := r.ints(rowTokens, 1, r.order(vocabulary)), r.empty(kernel.F32, rowTokens, rowHidden)
	op := rowwise(out, 0, func(d kernel.Device, from, to int, out kernel.Tensor) error {
		return table.with(d, func(m kernel.Matrix) error {
			return kernel.Do(d, kernel.EmbedArgs{Out: out, Table: m, IDs: ids.Slice(from, to)})
		})
	})
	op.Bytes, op.Memory = 2*rowTokens*rowHidden, host.Bytes(w.Data)
	return op
}

func take(r *Rig) *Op {
	const n = 64
	x, out := r.normal(rowTokens, rowHidden, 1), r.empty(kernel.F32, n, rowHidden)
	rows := r.ints(n, 1, r.order(rowTokens))
	op := rowwise(out, 0, func(d kernel.Device, from, to int, out kernel.Tensor) error {
		return d.Take(kernel.TakeArgs{Out: out, X: x, Rows: rows.Slice(from, to)})
	})
	op.Bytes, op.Memory = float64(out.Extent()), host.Bytes(x)
	return op
}

func copyRows(r *Rig) *Op {
	x, out := r.normal(rowTokens, rowHidden, 1), r.empty(kernel.F32, rowTokens, rowHidden)
	op := rowwise(out, 0, func(d kernel.Device, from, to int, out kernel.Tensor) error {
		return d.Copy(kernel.CopyArgs{Out: out, X: x.Slice(from, to)})
	}).reads(x)
	op.Bytes *= 2
	return op
}

// sampleRows draws a token for each of a batch of decodes over the vocabulary of V3.2.
func sampleRows(r *Rig) *Op {
	const rows, vocabulary = 16, 129280
	var words [rows * sample.DrawWords]int32
	for i := range rows {
		d := sample.Draw{Inverse: 1, TopP: 0.95, Random: uint64(i) * 0x9E3779B97F4A7C15}
		d.Put(words[i*sample.DrawWords:])
	}
	logits := r.normal(rows, vocabulary, 1)
	draws := r.ints(rows, sample.DrawWords, func(i int) int32 { return words[i] })
	var best [rows]int32
	for i := range best {
		row := host.RowF32(logits, i)
		best[i] = int32(slices.Index(row, slices.Max(row)))
	}
	return rowwise(r.empty(kernel.I32, rows, 1), 0, func(d kernel.Device, from, to int, out kernel.Tensor) error {
		copy(host.I32(out), best[from:to])
		return kernel.Do(d, kernel.SampleArgs{IDs: out, Logits: logits.Slice(from, to), Draws: draws.Slice(from, to)})
	}).reads(logits)
}

// accept compares a draft of each sequence with what the target chose, half of them right, and writes the words of the
// next pass that depend on it.
func accept(r *Rig) *Op {
	const sequences, words = 128, 8
	tokens := r.ints(2*sequences, 1, func(i int) int32 { return int32(i) })
	drafts := r.ints(sequences, 3, func(i int) int32 { // first, then the least and the greatest token of the draft
		s := i / 3
		if first := 2 * s; i%3 == 0 || s%2 == 0 {
			return int32(first)
		}
		return -1
	})
	table := r.ints(words*sequences, 4, func(i int) int32 { // place, sequence, words for 0 and 1 right drafts
		at := i / 4
		return [4]int32{int32(at), int32(at / words), int32(at), int32(-at)}[i%4]
	})
	same := func(got, want kernel.Tensor) error {
		if !slices.Equal(host.I32(got), host.I32(want)) {
			return errors.New("words of the next pass differ from the reference's")
		}
		return nil
	}
	return repeated(r, r.empty(kernel.I32, 1, words*sequences), func(d kernel.Device, out kernel.Tensor) error {
		return d.Accept(kernel.AcceptArgs{Out: out, Tokens: tokens, Drafts: drafts, Words: table})
	}, same).reads(table)
}

// candidates finds the best token of a batch of decodes over the vocabulary of V3.2.
func candidates(r *Rig) *Op {
	const rows, vocabulary = 16, 129280
	logits, ids := r.normal(rows, vocabulary, 1), r.empty(kernel.I32, rows, 1)
	values, sums := r.empty(kernel.F32, rows, 1), r.empty(kernel.F32, rows, 1)
	run := func(d kernel.Device, from, to int, values, ids, sums kernel.Tensor) error {
		return kernel.Do(d, kernel.CandidateArgs{Values: values, IDs: ids, LogSum: sums,
			Logits: logits.Slice(from, to)})
	}
	op := &Op{
		Run:    func(d kernel.Device) error { return run(d, 0, rows, values, ids, sums) },
		Poison: poison(values, ids, sums),
		Check: all(sampled(values, 0, func(d kernel.Device, row int, to kernel.Tensor) error {
			return run(d, row, row+1, to, r.empty(kernel.I32, 1, 1), r.empty(kernel.F32, 1, 1))
		}), sampled(ids, 0, func(d kernel.Device, row int, to kernel.Tensor) error {
			return run(d, row, row+1, r.empty(kernel.F32, 1, 1), to, r.empty(kernel.F32, 1, 1))
		}), sampled(sums, 1e-5, func(d kernel.Device, row int, to kernel.Tensor) error {
			return run(d, row, row+1, r.empty(kernel.F32, 1, 1), r.empty(kernel.I32, 1, 1), to)
		})),
	}
	return op.reads(logits)
}

func route(r *Rig) *Op {
	const experts, topk = 256, 8
	logits, bias := r.normal(rowTokens, experts, 1), r.normal(1, experts, 0.1)
	return routed(r, logits, topk, func(d kernel.Device, from, to int, ids, weights kernel.Tensor) error {
		return kernel.Do(d, kernel.RouteArgs{IDs: ids, Weights: weights, Logits: logits.Slice(from, to), Bias: bias,
			Groups: 8, KeepGroups: 4, Normalize: true, Scale: 2.5})
	})
}

// routed is a choice of topk experts by logits: run chooses for rows from to to.
func routed(r *Rig, logits kernel.Tensor, topk int,
	run func(d kernel.Device, from, to int, ids, weights kernel.Tensor) error) *Op {
	ids, weights := r.empty(kernel.I32, rowTokens, topk), r.empty(kernel.F32, rowTokens, topk)
	op := &Op{
		Run:    func(d kernel.Device) error { return run(d, 0, rowTokens, ids, weights) },
		Poison: poison(ids, weights),
		Check: all(
			sampled(ids, 0, func(d kernel.Device, row int, to kernel.Tensor) error {
				return run(d, row, row+1, to, r.empty(kernel.F32, 1, topk))
			}),
			sampled(weights, 1e-5, func(d kernel.Device, row int, to kernel.Tensor) error {
				return run(d, row, row+1, r.empty(kernel.I32, 1, topk), to)
			})),
	}
	return op.reads(logits)
}

func angles(r *Rig) *Op {
	out, positions, freq := r.empty(kernel.F32, rowTokens, 64), r.ints(rowTokens, 1, r.order(1<<17)),
		r.normal(1, 32, 0.1)
	return rowwise(out, 1e-4, func(d kernel.Device, from, to int, out kernel.Tensor) error {
		return kernel.Do(d, kernel.AngleArgs{Out: out, Positions: positions.Slice(from, to), InvFreq: freq, Scale: 1})
	})
}
