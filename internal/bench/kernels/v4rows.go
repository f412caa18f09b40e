package kernels

import (
	"sparrow/internal/device/host"
	"sparrow/kernel"
	"sparrow/layout"
)

func storeKeys(r *Rig) *Op {
	keys, pool := r.normal(rowTokens, layout.IndexDim, 1), r.indexPool(layout.IndexPage132, rowTokens)
	a := kernel.KeyStoreArgs{Keys: keys, Norm: r.normal(1, layout.IndexDim, 1), Eps: 1e-6, Angles: r.angles(rowTokens),
		Hadamard: true, Slots: r.ints(rowTokens, 1, r.order(rowTokens)), Pool: pool}
	return repeated(r, a, "Pool", sameCodes).reads(keys)
}

func unpack(r *Rig) *Op {
	const entries = 32 << 10
	pool := r.entryPool(entries)
	op := rowwise(r, kernel.UnpackArgs{Out: r.empty(kernel.F32, topK, layout.V4Dim),
		Slots: r.ints(topK, 1, r.order(entries)), Pool: pool}, outs{"Out": 1e-6})
	op.Bytes, op.Memory = topK*layout.V4EntryBytes, host.Bytes(pool.Mem)
	return op
}

func combine(r *Rig) *Op {
	const window, extra = 128, 512
	a := kernel.CombineArgs{
		Out: r.empty(kernel.I32, rowTokens, window+extra), Lens: r.empty(kernel.I32, rowTokens, 1),
		Window: r.ints(rowTokens, window, r.order(1<<14)), WindowLens: r.constant(rowTokens, window),
		WindowBase: r.constant(rowTokens, 5), Extra: r.ints(rowTokens, extra, r.order(1<<14)),
		ExtraLens: r.constant(rowTokens, extra), ExtraBase: r.constant(rowTokens, 1<<15),
	}
	op := rowwise(r, a, outs{"Out": 0, "Lens": 0}).reads(a.Extra)
	op.Bytes += float64(a.Window.Extent())
	return op
}

func put(r *Rig) *Op {
	x := r.normal(rowTokens, rowHidden, 1)
	return repeated(r, kernel.PutArgs{Out: r.empty(kernel.F32, rowTokens, rowHidden), X: x,
		Rows: r.ints(rowTokens, 1, r.order(rowTokens))}, "Out", equal).reads(x)
}

func hyperHead(r *Rig) *Op {
	const n, tokens = hyperStreams, 64
	x := r.normal(tokens, n*rowHidden, 1)
	return rowwise(r, kernel.HyperHeadArgs{Out: r.empty(kernel.F32, tokens, rowHidden), X: x,
		Mix: r.normal(tokens, n, 1), Base: r.normal(1, n, 1), Scale: r.normal(1, 1, 1), Streams: n, NormEps: 1e-6,
		Eps: 1e-6}, outs{"Out": 1e-4}).reads(x)
}

const rootExperts, rootTopK = 256, 6

func routeRoot(r *Rig) *Op {
	logits := r.normal(rowTokens, rootExperts, 1)
	return rowwise(r, kernel.RootRouteArgs{IDs: r.empty(kernel.I32, rowTokens, rootTopK),
		Weights: r.empty(kernel.F32, rowTokens, rootTopK), Logits: logits, Bias: r.normal(1, rootExperts, 0.1),
		Scale: 1.5}, routed).reads(logits)
}

func routeHash(r *Rig) *Op {
	const vocabulary = 32 << 10
	logits := r.normal(rowTokens, rootExperts, 1)
	table := r.ints(vocabulary, rootTopK, func(i int) int32 {
		return int32((i/rootTopK*7 + i%rootTopK*41) % rootExperts)
	})
	return rowwise(r, kernel.HashRouteArgs{IDs: r.empty(kernel.I32, rowTokens, rootTopK),
		Weights: r.empty(kernel.F32, rowTokens, rootTopK), Logits: logits, Table: table,
		Tokens: r.ints(rowTokens, 1, r.order(vocabulary)), Scale: 1.5}, routed).reads(logits)
}
