package kernels

import (
	"fmt"

	"sparrow/internal/device/host"
	"sparrow/kernel"
	"sparrow/layout"
)

// sparseTokens is the number of tokens in the KV cache of sparse attention. In every layout it is larger than a core's
// CPU caches.
const sparseTokens = 128 << 10

func attendCases() []Case {
	var out []Case
	for _, rows := range []int{1, 64} {
		for _, k := range []layout.Kind{layout.BF16Row1152, layout.FP8Row656, layout.FP8Row576} {
			out = append(out, Case{Name: "sparse " + k.String(), Shape: sparseShape(rows),
				Group: fmt.Sprintf("sparse %d", rows), Make: func(r *Rig) *Op { return sparse(r, k, rows) }})
		}
	}
	for _, x := range []latentCase{{layout.BF16Row1152, 1, 20}, {layout.FP8Row656, 1, 20}, {layout.BF16Row1152, 8, 20},
		{layout.BF16Row1152, 1, 128}} {
		out = append(out, Case{Name: "latent " + x.kind.String(), Shape: x.String(),
			Group: "latent", Make: func(r *Rig) *Op { return latentAttend(r, x) }})
	}
	for _, rows := range []int{64, 512, 2048} {
		out = append(out, Case{Name: "dense", Shape: fmt.Sprintf("%d rows, causal, 16 heads", rows),
			Make: func(r *Rig) *Op { return dense(r, rows) }})
	}
	return out
}

func sparseShape(rows int) string {
	return fmt.Sprintf("%d rows of 16 heads, %d keys of 128k", rows, topK)
}

// sparse returns an operation that attends to random slots. Runs rotate over several selections, so that rows are read
// from memory, not from a CPU cache.
func sparse(r *Rig, k layout.Kind, rows int) *Op {
	const heads, choices = 16, 16
	pool := r.mainPool(k, sparseTokens)
	var indices turns
	for range choices {
		// As in real selections, the slots are ascending: one slot from each range of 64.
		indices.sets = append(indices.sets, r.ints(rows, topK, func(i int) int32 {
			return int32(i%topK*(sparseTokens/topK) + r.rng.IntN(sparseTokens/topK))
		}))
	}
	op := rowwiseAfter(r, kernel.SparseArgs{Out: r.empty(kernel.F32, rows, heads*layout.LatentDim),
		Q: r.normal(rows, heads*layout.RowDim, 0.2), Pool: pool, Lens: r.constant(rows, topK), Heads: heads,
		Scale: 0.1},
		outs{"Out": 2e-3}, func(_ kernel.Device, a *kernel.SparseArgs, row int) error {
			a.Indices = indices.of(row)
			return nil
		})
	op.FLOPs = 2 * float64(rows) * heads * topK * (layout.RowDim + layout.LatentDim)
	op.Bytes, op.Memory = float64(rows)*topK*float64(pool.Mem.Cols/pool.PageTokens), host.Bytes(pool.Mem)
	return op
}

// latentTokens is the length of the sequence over which latent attention reads every key.
const latentTokens = 8 << 10

// latentCase describes rows of one sequence: a decode, the verification of drafts, or the last chunk of a prompt.
type latentCase struct {
	kind        layout.Kind
	rows, heads int
}

func (x latentCase) String() string {
	return fmt.Sprintf("%d rows of %d heads, all of %dk keys", x.rows, x.heads, latentTokens>>10)
}

// latentAttend returns an operation that attends to every key of a sequence. Runs rotate over several sequences, so
// that rows are read from memory.
func latentAttend(r *Rig, x latentCase) *Op {
	const page, sequences = 64, 4
	pool := r.mainPool(x.kind, sequences*latentTokens)
	var at turns
	for s := range sequences {
		at.sets = append(at.sets, r.constant(x.rows, s))
	}
	table := r.ints(sequences, latentTokens/page, func(i int) int32 { return int32(i) })
	op := rowwiseAfter(r, kernel.LatentArgs{Out: r.empty(kernel.F32, x.rows, x.heads*layout.LatentDim),
		Q: r.normal(x.rows, x.heads*layout.RowDim, 0.2), Pool: pool, Table: table,
		Lens: r.ints(x.rows, 1, func(i int) int32 { return int32(latentTokens - x.rows + i + 1) }), Heads: x.heads,
		Scale: 0.1},
		outs{"Out": 2e-3}, func(_ kernel.Device, a *kernel.LatentArgs, row int) error {
			a.TableRow = at.of(row)
			return nil
		}, "Table")
	op.FLOPs = 2 * float64(x.rows*x.heads) * latentTokens * (layout.RowDim + layout.LatentDim)
	op.Bytes, op.Memory = latentTokens*float64(pool.Mem.Cols/pool.PageTokens), host.Bytes(pool.Mem)
	return op
}

// dense returns an operation that attends to all keys of a prompt without a cached prefix.
func dense(r *Rig, rows int) *Op {
	d := miniDims
	kv, rope := r.normal(rows, d.KVB(), 1), r.normal(rows, d.Rope, 1)
	op := rowwiseAfter(r, kernel.DenseArgs{Out: r.empty(kernel.F32, rows, d.Heads*d.V),
		Q: r.normal(rows, d.Heads*d.QK(), 0.3), KV: kv, Rope: rope, Start: r.constant(rows, 0),
		Lens: r.ints(rows, 1, func(i int) int32 { return int32(i + 1) }), Dims: d, Scale: 0.1}, outs{"Out": 2e-3}, nil,
		"KV", "Rope").reads(kv)
	op.FLOPs = 2 * float64(d.Heads) * float64(rows*(rows+1)/2) * float64(d.QK()+d.V)
	op.Bytes += float64(rope.Extent())
	return op
}
