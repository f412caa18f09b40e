package kernels

import (
	"errors"
	"slices"

	"sparrow/internal/device/host"
	"sparrow/kernel"
	"sparrow/sample"
)

// Row operations are measured with the rows of one prefill chunk of v32-mini.
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
		{Name: "tally", Shape: "512 tokens, 8 of 256 experts", Make: tally},
		{Name: "angles", Shape: "512 tokens", Make: angles},
	}
}

func norm(r *Rig) *Op {
	x := r.normal(rowTokens, rowHidden, 1)
	return rowwise(r, kernel.NormArgs{Out: r.empty(kernel.F32, rowTokens, rowHidden), X: x,
		Weight: r.normal(1, rowHidden, 1), Eps: 1e-6}, outs{"Out": 1e-5}).reads(x)
}

func gate(r *Rig) *Op {
	const n = 2048
	a, b := r.normal(rowTokens, n, 1), r.normal(rowTokens, n, 1)
	op := rowwise(r, kernel.GateArgs{Out: r.empty(kernel.F32, rowTokens, n), Gate: a, Up: b},
		outs{"Out": 1e-5}).reads(a)
	op.Bytes += float64(b.Extent())
	return op
}

func rotate(r *Rig) *Op {
	d := miniDims
	return inPlace(r, d.Heads*d.QK(), kernel.RotateArgs{Angles: r.angles(rowTokens), Heads: d.Heads, HeadDim: d.QK(),
		Offset: d.Nope, Pairing: kernel.Interleaved})
}

// inPlace returns an operation that overwrites columns of X, so every run copies X first.
func inPlace[A kernel.Op](r *Rig, columns int, a A) *Op {
	src := r.normal(rowTokens, columns, 1)
	*tensor(&a, "X") = r.empty(kernel.F32, rowTokens, columns)
	return rowwiseAfter(r, a, outs{"X": 1e-5}, func(_ kernel.Device, a *A, row int) error {
		x, from := *tensor(a, "X"), max(row, 0)
		copy(host.F32(x), host.F32(src.Slice(from, from+x.Rows)))
		return nil
	}).reads(src)
}

func embed(r *Rig) *Op {
	const vocabulary = 32 << 10
	w := r.weight(kernel.BF16, vocabulary, rowHidden)
	table := matrix(w, kernel.LookedUp)
	op := rowwiseAfter(r, kernel.EmbedArgs{Out: r.empty(kernel.F32, rowTokens, rowHidden),
		IDs: r.ints(rowTokens, 1, r.order(vocabulary))}, outs{"Out": 0},
		func(d kernel.Device, a *kernel.EmbedArgs, _ int) (err error) {
			a.Table, err = table.of(d)
			return err
		})
	op.Bytes, op.Memory = 2*rowTokens*rowHidden, host.Bytes(w.Data)
	return op
}

func take(r *Rig) *Op {
	const n = 64
	x, out := r.normal(rowTokens, rowHidden, 1), r.empty(kernel.F32, n, rowHidden)
	op := rowwise(r, kernel.TakeArgs{Out: out, X: x, Rows: r.ints(n, 1, r.order(rowTokens))}, outs{"Out": 0})
	op.Bytes, op.Memory = float64(out.Extent()), host.Bytes(x)
	return op
}

func copyRows(r *Rig) *Op {
	x := r.normal(rowTokens, rowHidden, 1)
	op := rowwise(r, kernel.CopyArgs{Out: r.empty(kernel.F32, rowTokens, rowHidden), X: x}, outs{"Out": 0}).reads(x)
	op.Bytes *= 2
	return op
}

// sampleRows returns an operation that samples one token for each row of a decode batch, with the vocabulary of V3.2.
func sampleRows(r *Rig) *Op {
	const rows, vocabulary = 16, 129280
	var words [rows * sample.DrawWords]int32
	for i := range rows {
		d := sample.Draw{Inverse: 1, TopP: 0.95, Random: uint64(i) * 0x9E3779B97F4A7C15}
		d.Put(words[i*sample.DrawWords:])
	}
	logits := r.normal(rows, vocabulary, 1)
	var best [rows]int32
	for i := range best {
		row := host.RowF32(logits, i)
		best[i] = int32(slices.Index(row, slices.Max(row)))
	}
	return rowwiseAfter(r, kernel.SampleArgs{IDs: r.empty(kernel.I32, rows, 1), Logits: logits,
		Draws: r.ints(rows, sample.DrawWords, func(i int) int32 { return words[i] })}, outs{"IDs": 0},
		func(_ kernel.Device, a *kernel.SampleArgs, row int) error {
			copy(host.I32(a.IDs), best[max(row, 0):])
			return nil
		}).reads(logits)
}

// accept returns an operation that compares each sequence's draft with the target's token, and writes the inputs of the
// next pass accordingly. Half of the drafts are accepted.
func accept(r *Rig) *Op {
	const sequences, words = 128, 8
	tokens := r.ints(2*sequences, 1, func(i int) int32 { return int32(i) })
	drafts := r.ints(sequences, 3, func(i int) int32 { // [sequences, 3]: first token, then the range of draft tokens
		s := i / 3
		if first := 2 * s; i%3 == 0 || s%2 == 0 {
			return int32(first)
		}
		return -1
	})
	table := r.ints(words*sequences, 4, func(i int) int32 { // position, sequence, words if 0 or 1 drafts are accepted
		at := i / 4
		return [4]int32{int32(at), int32(at / words), int32(at), int32(-at)}[i%4]
	})
	same := func(got, want kernel.Tensor) error {
		if !slices.Equal(host.I32(got), host.I32(want)) {
			return errors.New("the input words of the next pass differ from the reference")
		}
		return nil
	}
	return repeated(r, kernel.AcceptArgs{Out: r.empty(kernel.I32, 1, words*sequences), Tokens: tokens, Drafts: drafts,
		Words: table}, "Out", same).reads(table)
}

// candidates returns an operation that finds the largest logits of each row of a decode batch, with the vocabulary of
// V3.2.
func candidates(r *Rig) *Op {
	const rows, vocabulary = 16, 129280
	logits := r.normal(rows, vocabulary, 1)
	return rowwise(r, kernel.CandidateArgs{Values: r.empty(kernel.F32, rows, 1), IDs: r.empty(kernel.I32, rows, 1),
		LogSum: r.empty(kernel.F32, rows, 1), Logits: logits},
		outs{"Values": 0, "IDs": 0, "LogSum": 1e-5}).reads(logits)
}

// routed maps the outputs of expert routing to their tolerances.
var routed = outs{"IDs": 0, "Weights": 1e-5}

func route(r *Rig) *Op {
	const experts, topk = 256, 8
	logits := r.normal(rowTokens, experts, 1)
	return rowwise(r, kernel.RouteArgs{IDs: r.empty(kernel.I32, rowTokens, topk),
		Weights: r.empty(kernel.F32, rowTokens, topk), Logits: logits, Bias: r.normal(1, experts, 0.1), Groups: 8,
		KeepGroups: 4, Normalize: true, Scale: 2.5}, routed).reads(logits)
}

// tally returns an operation that counts chosen experts. It adds to its output, which is cleared before the check.
func tally(r *Rig) *Op {
	const experts, topk = 256, 8
	counts, ids := r.empty(kernel.I32, 1, experts), r.ints(rowTokens, topk, r.order(experts))
	op := repeated(r, kernel.TallyArgs{Counts: counts, IDs: ids, Seen: r.constant(rowTokens, 1)}, "Counts", equal)
	op.Poison = func() { clear(host.I32(counts)) }
	return op.reads(ids)
}

func angles(r *Rig) *Op {
	return rowwise(r, kernel.AngleArgs{Out: r.empty(kernel.F32, rowTokens, 64),
		Positions: r.ints(rowTokens, 1, r.order(1<<17)), InvFreq: r.normal(1, 32, 0.1), Scale: 1}, outs{"Out": 1e-4})
}
