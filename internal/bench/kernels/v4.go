package kernels

import (
	"sparrow/internal/device/host"
	"sparrow/kernel"
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

// entryPool returns a cache of random V4 entries.
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
	op := rowwise(r, kernel.DualArgs{Out: r.empty(kernel.F32, rows, heads*layout.V4Dim),
		Q: r.normal(rows, heads*layout.V4Dim, 0.2), Window: w, Extra: x, Sinks: r.normal(1, heads, 1), Heads: heads,
		Scale: 0.04}, outs{"Out": 2e-3})
	op.FLOPs = 4 * rows * heads * (window + extra) * layout.V4Dim
	op.Bytes, op.Memory = rows*(window+extra)*layout.V4EntryBytes, host.Bytes(x.Pool.Mem)
	return op
}

func flat(r *Rig) *Op {
	const rows, heads, width, entries = 64, 64, 640, 4096
	kv := r.weight(kernel.BF16, entries, layout.V4Dim).Data
	op := rowwise(r, kernel.FlatArgs{Out: r.empty(kernel.F32, rows, heads*layout.V4Dim),
		Q: r.normal(rows, heads*layout.V4Dim, 0.2), KV: kv, Indices: r.ints(rows, width, r.order(entries)),
		Lens: r.constant(rows, width), Sinks: r.normal(1, heads, 1), Heads: heads, Scale: 0.04}, outs{"Out": 2e-3})
	op.FLOPs = 4 * rows * heads * width * layout.V4Dim
	op.Bytes, op.Memory = rows*width*2*layout.V4Dim, host.Bytes(kv)
	return op
}

const hyperStreams = 4

func hyperPre(r *Rig) *Op {
	const n = hyperStreams
	x := r.normal(rowTokens, n*rowHidden, 1)
	return rowwise(r, kernel.HyperPreArgs{Out: r.empty(kernel.F32, rowTokens, rowHidden),
		Post: r.empty(kernel.F32, rowTokens, n), Comb: r.empty(kernel.F32, rowTokens, n*n), X: x,
		Mix: r.normal(rowTokens, 2*n+n*n, 1), Base: r.normal(1, 2*n+n*n, 1), Scale: r.normal(1, 3, 1), Streams: n,
		Rounds: 20, NormEps: 1e-6, Eps: 1e-6}, outs{"Out": 1e-4, "Post": 1e-4, "Comb": 1e-4}).reads(x)
}

func hyperPost(r *Rig) *Op {
	const n = hyperStreams
	return inPlace(r, n*rowHidden, kernel.HyperPostArgs{Sub: r.normal(rowTokens, rowHidden, 1),
		Post: r.normal(rowTokens, n, 1), Comb: r.normal(rowTokens, n*n, 1), Streams: n})
}

func headNorm(r *Rig) *Op {
	const heads = 64
	return inPlace(r, heads*layout.V4Dim, kernel.HeadNormArgs{Heads: heads, Eps: 1e-6})
}

func compress(r *Rig) *Op {
	const ratio, dim, entries = 4, 512, rowTokens / 4
	f := func(rows, cols int) kernel.Tensor { return r.normal(rows, cols, 1) }
	a := kernel.CompressArgs{Out: r.empty(kernel.F32, entries, dim), Values: f(rowTokens+ratio, 2*dim),
		Gates: f(rowTokens+ratio, 2*dim), State: f(1, 4*dim), APE: f(ratio, 2*dim),
		Sources: r.ints(entries, 2*ratio, func(i int) int32 { return int32(i/(2*ratio)*ratio + i%(2*ratio)) }),
		Ratio:   ratio, Overlap: true}
	op := rowwise(r, a, outs{"Out": 1e-4}).reads(a.Values)
	op.Bytes += float64(a.Gates.Extent())
	return op
}

// storeEntries returns an operation that writes V4 entries. The check decodes and compares its pool and that of the
// reference.
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
