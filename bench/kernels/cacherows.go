package kernels

import (
	"fmt"
	"math"

	"sparrow/kernel"
	"sparrow/kernel/host"
	"sparrow/layout"
)

func cacheCases() []Case {
	var out []Case
	for _, k := range []layout.Kind{layout.BF16Row1152, layout.FP8Row656, layout.FP8Row576} {
		out = append(out,
			Case{Name: "store rows " + k.String(), Shape: "512 tokens", Make: func(r *Rig) *Op {
				return storeRows(r, k)
			}},
			Case{Name: "gather rows " + k.String(), Shape: "2048 of 128k", Make: func(r *Rig) *Op {
				return gatherRows(r, k)
			}})
	}
	return append(out, Case{Name: "convert pages", Shape: "64 pages of fp8-576 to fp8-656", Make: convert})
}

// storeRows writes latent rows. The rows are compared as numbers; they may differ by one step of the layout.
func storeRows(r *Rig, k layout.Kind) *Op {
	const tokens = 512
	kv, pool := r.normal(tokens, layout.RowDim, 1), r.mainPool(k, tokens)
	a := kernel.StoreArgs{KV: kv, Norm: r.normal(1, layout.LatentDim, 1), Eps: 1e-6, Angles: r.angles(tokens),
		Slots: r.ints(tokens, 1, r.order(tokens)), Pool: pool}
	return &Op{
		Run:    func(d kernel.Device) error { return d.StoreRows(a) },
		Poison: poison(pool.Mem),
		Check: func(ref kernel.Device) error {
			b := a
			b.Pool.Mem = r.empty(kernel.U8, pool.Mem.Rows, pool.Mem.Cols)
			if err := ref.StoreRows(b); err != nil {
				return err
			}
			return sameRows(pool, b.Pool, tokens)
		},
		Bytes: float64(kv.Extent()), Memory: host.Bytes(kv),
	}
}

// sameRows decodes two pools and compares: 1/8 is the coarsest step between neighbouring e4m3 numbers.
func sameRows(got, want kernel.Pool, tokens int) error {
	l, err := layout.MainOf(got.Layout)
	if err != nil {
		return err
	}
	g, w := make([]float32, layout.RowDim), make([]float32, layout.RowDim)
	for s := range tokens {
		page := s / got.PageTokens
		l.Decode(g, host.Bytes(got.Mem.Slice(page, page+1)), s%got.PageTokens)
		l.Decode(w, host.Bytes(want.Mem.Slice(page, page+1)), s%got.PageTokens)
		for i := range w {
			if d := math.Abs(float64(g[i] - w[i])); !(d <= 0.01+math.Abs(float64(w[i]))/8) {
				return fmt.Errorf("token %d, column %d is %v, the reference gives %v", s, i, g[i], w[i])
			}
		}
	}
	return nil
}

func gatherRows(r *Rig, k layout.Kind) *Op {
	pool := r.mainPool(k, sparseTokens)
	out, slots := r.empty(kernel.F32, topK, layout.RowDim), r.ints(topK, 1, r.order(sparseTokens))
	return &Op{
		Run: func(d kernel.Device) error {
			return d.GatherRows(kernel.GatherArgs{Out: out, Slots: slots, Pool: pool})
		},
		Poison: poison(out),
		Check: sampled(out, 1e-6, func(d kernel.Device, row int, to kernel.Tensor) error {
			return d.GatherRows(kernel.GatherArgs{Out: to, Slots: slots.Slice(row, row+1), Pool: pool})
		}),
		Bytes: topK * float64(pool.Mem.Cols/pool.PageTokens), Memory: host.Bytes(pool.Mem),
	}
}

func convert(r *Rig) *Op {
	const n = 64
	in := r.mainPool(layout.FP8Row576, 4*n*64)
	out := kernel.Pool{Mem: r.empty(kernel.U8, n, layout.FP8Block{}.PageBytes(64)), Layout: layout.FP8Row656,
		PageTokens: 64}
	pages := r.ints(n, 1, r.order(4*n))
	return &Op{
		Run: func(d kernel.Device) error {
			return d.ConvertPages(kernel.ConvertArgs{Out: out, In: in, Pages: pages})
		},
		Poison: poison(out.Mem),
		Check: func(ref kernel.Device) error {
			want := out
			want.Mem = r.empty(kernel.U8, n, out.Mem.Cols)
			if err := ref.ConvertPages(kernel.ConvertArgs{Out: want, In: in, Pages: pages}); err != nil {
				return err
			}
			return near(out.Mem, want.Mem, 0)
		},
		Bytes: float64(n * in.Mem.Cols), Memory: host.Bytes(in.Mem),
	}
}
