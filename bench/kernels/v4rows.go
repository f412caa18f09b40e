package kernels

import (
	"sparrow/kernel"
	"sparrow/kernel/host"
	"sparrow/layout"
)

// The smaller operations of V4.

func storeKeys(r *Rig) *Op {
	keys, pool := r.normal(rowTokens, layout.IndexDim, 1), r.indexPool(rowTokens)
	a := kernel.KeyStoreArgs{Keys: keys, Norm: r.normal(1, layout.IndexDim, 1), Eps: 1e-6, Angles: r.angles(rowTokens),
		Hadamard: true, Slots: r.ints(rowTokens, 1, r.order(rowTokens)), Pool: pool}
	return repeated(r, pool.Mem, func(d kernel.Device, mem kernel.Tensor) error {
		a.Pool.Mem = mem
		return kernel.Do(d, a)
	}, sameCodes).reads(keys)
}

func unpack(r *Rig) *Op {
	const entries = 32 << 10
	pool, out, slots := r.entryPool(entries), r.empty(kernel.F32, topK, layout.V4Dim), r.ints(topK, 1, r.order(entries))
	op := rowwise(out, 1e-6, func(d kernel.Device, from, to int, out kernel.Tensor) error {
		return kernel.Do(d, kernel.UnpackArgs{Out: out, Slots: slots.Slice(from, to), Pool: pool})
	})
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
	return &Op{
		Run:    func(d kernel.Device) error { return kernel.Do(d, a) },
		Poison: poison(a.Out, a.Lens),
		Check: sampled(a.Out, 0, func(d kernel.Device, row int, to kernel.Tensor) error {
			b := a
			b.Out, b.Lens = to, r.empty(kernel.I32, 1, 1)
			for _, t := range []*kernel.Tensor{&b.Window, &b.WindowLens, &b.WindowBase, &b.Extra, &b.ExtraLens,
				&b.ExtraBase} {
				*t = t.Slice(row, row+1)
			}
			return kernel.Do(d, b)
		}),
		Bytes: float64(a.Window.Extent() + a.Extra.Extent()), Memory: host.Bytes(a.Extra),
	}
}

func put(r *Rig) *Op {
	x, out, rows := r.normal(rowTokens, rowHidden, 1), r.empty(kernel.F32, rowTokens, rowHidden),
		r.ints(rowTokens, 1, r.order(rowTokens))
	return repeated(r, out, func(d kernel.Device, out kernel.Tensor) error {
		return d.Put(kernel.PutArgs{Out: out, X: x, Rows: rows})
	}, equal).reads(x)
}

func hyperHead(r *Rig) *Op {
	const n, tokens = hyperStreams, 64
	x, mix, base, scale := r.normal(tokens, n*rowHidden, 1), r.normal(tokens, n, 1), r.normal(1, n, 1),
		r.normal(1, 1, 1)
	out := r.empty(kernel.F32, tokens, rowHidden)
	return rowwise(out, 1e-4, func(d kernel.Device, from, to int, out kernel.Tensor) error {
		return kernel.Do(d, kernel.HyperHeadArgs{Out: out, X: x.Slice(from, to), Mix: mix.Slice(from, to), Base: base,
			Scale: scale, Streams: n, NormEps: 1e-6, Eps: 1e-6})
	}).reads(x)
}

const rootExperts, rootTopK = 256, 6

func routeRoot(r *Rig) *Op {
	logits, bias := r.normal(rowTokens, rootExperts, 1), r.normal(1, rootExperts, 0.1)
	return routed(r, logits, rootTopK, func(d kernel.Device, from, to int, ids, weights kernel.Tensor) error {
		return kernel.Do(d, kernel.RootRouteArgs{IDs: ids, Weights: weights, Logits: logits.Slice(from, to), Bias: bias,
			Scale: 1.5})
	})
}

func routeHash(r *Rig) *Op {
	const vocabulary = 32 << 10
	logits, tokens := r.normal(rowTokens, rootExperts, 1), r.ints(rowTokens, 1, r.order(vocabulary))
	table := r.ints(vocabulary, rootTopK, func(i int) int32 {
		return int32((i/rootTopK*7 + i%rootTopK*41) % rootExperts)
	})
	return routed(r, logits, rootTopK, func(d kernel.Device, from, to int, ids, weights kernel.Tensor) error {
		return kernel.Do(d, kernel.HashRouteArgs{IDs: ids, Weights: weights, Logits: logits.Slice(from, to),
			Table: table, Tokens: tokens.Slice(from, to), Scale: 1.5})
	})
}
