package kernels

import (
	"sparrow/kernel"
	"sparrow/kernel/host"
	"sparrow/layout"
)

func v4Cases() []Case {
	return []Case{
		{Name: "dual v4-584", Shape: "8 rows of 64 heads, 128 + 512 entries", Make: dual},
		{Name: "flat bf16", Shape: "64 rows of 64 heads, 640 entries", Make: flat},
		{Name: "hyper pre", Shape: "512 tokens, 4 streams of 1024", Make: hyperPre},
		{Name: "hyper post", Shape: "512 tokens, 4 streams of 1024", Make: hyperPost},
		{Name: "head norm", Shape: "512 tokens, 64 heads of 512", Make: headNorm},
		{Name: "compress", Shape: "512 tokens, ratio 4, 512 channels", Make: compress},
		{Name: "store entries v4-584", Shape: "512 tokens", Make: storeEntries},
		{Name: "store keys", Shape: "512 entries", Make: storeKeys},
		{Name: "unpack v4-584", Shape: "2048 of 32k entries", Make: unpack},
		{Name: "combine", Shape: "512 rows of 128 + 512", Make: combine},
		{Name: "put", Shape: "512 rows of 1024", Make: put},
		{Name: "hyper head", Shape: "64 tokens, 4 streams of 1024", Make: hyperHead},
		{Name: "route root", Shape: "512 tokens, 6 of 256 experts", Make: routeRoot},
		{Name: "route hash", Shape: "512 tokens, 6 of 256 experts", Make: routeHash},
	}
}

// entryPool is a cache of random V4 entries.
func (r *Rig) entryPool(entries int) kernel.Pool {
	const page = 64
	l, err := layout.V4Of(layout.V4Row584)
	if err != nil {
		r.keep(err)
		return kernel.Pool{}
	}
	return r.pool(layout.V4Row584, (entries+page-1)/page, page, l.PageBytes(page), func(b []byte, slot int) {
		l.Encode(b, page, slot, r.values(layout.V4Dim))
	})
}

func dual(r *Rig) *Op {
	const rows, heads, window, extra = 8, 64, 128, 512
	stream := func(entries, n int) kernel.Stream {
		return kernel.Stream{Pool: r.entryPool(entries), Indices: r.ints(rows, n, r.order(entries)),
			Lens: r.constant(rows, n)}
	}
	w, x := stream(8<<10, window), stream(32<<10, extra)
	q, out, sinks := r.normal(rows, heads*layout.V4Dim, 0.2), r.empty(kernel.F32, rows, heads*layout.V4Dim),
		r.normal(1, heads, 1)
	cut := func(s kernel.Stream, from, to int) kernel.Stream {
		s.Indices, s.Lens = s.Indices.Slice(from, to), s.Lens.Slice(from, to)
		return s
	}
	op := rowwise(out, 2e-3, func(d kernel.Device, from, to int, out kernel.Tensor) error {
		return kernel.Do(d, kernel.DualArgs{Out: out, Q: q.Slice(from, to), Window: cut(w, from, to),
			Extra: cut(x, from, to), Sinks: sinks, Heads: heads, Scale: 0.04})
	})
	op.FLOPs = 4 * rows * heads * (window + extra) * layout.V4Dim
	op.Bytes, op.Memory = rows*(window+extra)*layout.V4EntryBytes, host.Bytes(x.Pool.Mem)
	return op
}

func flat(r *Rig) *Op {
	const rows, heads, width, entries = 64, 64, 640, 4096
	kv := r.weight(kernel.BF16, entries, layout.V4Dim).Data
	q, out, sinks := r.normal(rows, heads*layout.V4Dim, 0.2), r.empty(kernel.F32, rows, heads*layout.V4Dim),
		r.normal(1, heads, 1)
	at, lens := r.ints(rows, width, r.order(entries)), r.constant(rows, width)
	op := rowwise(out, 2e-3, func(d kernel.Device, from, to int, out kernel.Tensor) error {
		return kernel.Do(d, kernel.FlatArgs{Out: out, Q: q.Slice(from, to), KV: kv, Indices: at.Slice(from, to),
			Lens: lens.Slice(from, to), Sinks: sinks, Heads: heads, Scale: 0.04})
	})
	op.FLOPs = 4 * rows * heads * width * layout.V4Dim
	op.Bytes, op.Memory = rows*width*2*layout.V4Dim, host.Bytes(kv)
	return op
}

const hyperStreams = 4

func hyperPre(r *Rig) *Op {
	const n = hyperStreams
	x, mix := r.normal(rowTokens, n*rowHidden, 1), r.normal(rowTokens, 2*n+n*n, 1)
	base, scale := r.normal(1, 2*n+n*n, 1), r.normal(1, 3, 1)
	out, post, comb := r.empty(kernel.F32, rowTokens, rowHidden), r.empty(kernel.F32, rowTokens, n),
		r.empty(kernel.F32, rowTokens, n*n)
	args := func(from, to int, out, post, comb kernel.Tensor) kernel.HyperPreArgs {
		return kernel.HyperPreArgs{Out: out, Post: post, Comb: comb, X: x.Slice(from, to), Mix: mix.Slice(from, to),
			Base: base, Scale: scale, Streams: n, Rounds: 20, NormEps: 1e-6, Eps: 1e-6}
	}
	op := &Op{
		Run:    func(d kernel.Device) error { return kernel.Do(d, args(0, rowTokens, out, post, comb)) },
		Poison: poison(out, post, comb),
		Check: all(
			sampled(out, 1e-4, func(d kernel.Device, row int, to kernel.Tensor) error {
				return kernel.Do(d, args(row, row+1, to, r.empty(kernel.F32, 1, n), r.empty(kernel.F32, 1, n*n)))
			}),
			sampled(comb, 1e-4, func(d kernel.Device, row int, to kernel.Tensor) error {
				return kernel.Do(d, args(row, row+1, r.empty(kernel.F32, 1, rowHidden), r.empty(kernel.F32, 1, n), to))
			})),
	}
	return op.reads(x)
}

// hyperPost rewrites its streams, so every run begins with a copy.
func hyperPost(r *Rig) *Op {
	const n = hyperStreams
	src, x := r.normal(rowTokens, n*rowHidden, 1), r.empty(kernel.F32, rowTokens, n*rowHidden)
	sub, post, comb := r.normal(rowTokens, rowHidden, 1), r.normal(rowTokens, n, 1), r.normal(rowTokens, n*n, 1)
	return rowwise(x, 1e-5, func(d kernel.Device, from, to int, x kernel.Tensor) error {
		copy(host.F32(x), host.F32(src.Slice(from, to)))
		return kernel.Do(d, kernel.HyperPostArgs{X: x, Sub: sub.Slice(from, to), Post: post.Slice(from, to),
			Comb: comb.Slice(from, to), Streams: n})
	}).reads(src)
}

// headNorm works in place, so every run begins with a copy.
func headNorm(r *Rig) *Op {
	const heads = 64
	src, x := r.normal(rowTokens, heads*layout.V4Dim, 1), r.empty(kernel.F32, rowTokens, heads*layout.V4Dim)
	return rowwise(x, 1e-5, func(d kernel.Device, from, to int, x kernel.Tensor) error {
		copy(host.F32(x), host.F32(src.Slice(from, to)))
		return kernel.Do(d, kernel.HeadNormArgs{X: x, Heads: heads, Eps: 1e-6})
	}).reads(src)
}

func compress(r *Rig) *Op {
	const ratio, dim, entries = 4, 512, rowTokens / 4
	f := func(rows, cols int) kernel.Tensor { return r.normal(rows, cols, 1) }
	a := kernel.CompressArgs{Values: f(rowTokens+ratio, 2*dim),
		Gates: f(rowTokens+ratio, 2*dim), State: f(1, 4*dim), APE: f(ratio, 2*dim),
		Sources: r.ints(entries, 2*ratio, func(i int) int32 { return int32(i/(2*ratio)*ratio + i%(2*ratio)) }),
		Ratio:   ratio, Overlap: true}
	out := r.empty(kernel.F32, entries, dim)
	op := rowwise(out, 1e-4, func(d kernel.Device, from, to int, out kernel.Tensor) error {
		b := a
		b.Out, b.Sources = out, a.Sources.Slice(from, to)
		return kernel.Do(d, b)
	}).reads(a.Values)
	op.Bytes += float64(a.Gates.Extent())
	return op
}

// storeEntries writes entries; the reference writes its own pool, and both are read back by the reference.
func storeEntries(r *Rig) *Op {
	rows, pool := r.normal(rowTokens, layout.V4Dim, 1), r.entryPool(rowTokens)
	slots := r.ints(rowTokens, 1, r.order(rowTokens))
	a := kernel.EntryStoreArgs{Rows: rows, Norm: r.normal(1, layout.V4Dim, 1), Eps: 1e-6, Angles: r.angles(rowTokens),
		Slots: slots, Pool: pool}
	op := &Op{
		Run:    func(d kernel.Device) error { return kernel.Do(d, a) },
		Poison: poison(pool.Mem),
		Check: func(ref kernel.Device) error {
			b := a
			b.Pool.Mem = r.empty(kernel.U8, pool.Mem.Rows, pool.Mem.Cols)
			got, want := r.empty(kernel.F32, rowTokens, layout.V4Dim), r.empty(kernel.F32, rowTokens, layout.V4Dim)
			for _, err := range []error{kernel.Do(ref, b),
				kernel.Do(ref, kernel.UnpackArgs{Out: got, Slots: slots, Pool: pool}),
				kernel.Do(ref, kernel.UnpackArgs{Out: want, Slots: slots, Pool: b.Pool})} {
				if err != nil {
					return err
				}
			}
			// Values may differ by one rounding step of e4m3.
			return near(got.As(1, rowTokens*layout.V4Dim), want.As(1, rowTokens*layout.V4Dim), 1.0/16)
		},
	}
	return op.reads(rows)
}
