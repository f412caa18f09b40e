package kernels

import (
	"fmt"
	"math"

	"sparrow/internal/device/host"
	"sparrow/kernel"
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

// storeRows returns an operation that writes latent rows. The check allows a difference of one rounding step of the
// layout.
func storeRows(r *Rig, k layout.Kind) *Op {
	const tokens = 512
	kv, pool := r.normal(tokens, layout.RowDim, 1), r.mainPool(k, tokens)
	a := kernel.StoreArgs{KV: kv, Norm: r.normal(1, layout.LatentDim, 1), Eps: 1e-6, Angles: r.angles(tokens),
		Slots: r.ints(tokens, 1, r.order(tokens)), Pool: pool}
	return repeated(r, a, "Pool", func(got, want kernel.Tensor) error {
		return sameRows(pool, got, want, tokens)
	}).reads(kv)
}

// sameRows decodes the pages of two pools and checks that values differ by at most 1/8, the largest relative step
// between adjacent e4m3 numbers.
func sameRows(like kernel.Pool, got, want kernel.Tensor, tokens int) error {
	l, err := layout.MainOf(like.Layout)
	if err != nil {
		return err
	}
	g, w := make([]float32, layout.RowDim), make([]float32, layout.RowDim)
	for s := range tokens {
		page, slot := s/like.PageTokens, s%like.PageTokens
		l.Decode(g, host.Bytes(got.Slice(page, page+1)), slot)
		l.Decode(w, host.Bytes(want.Slice(page, page+1)), slot)
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
	op := rowwise(r, kernel.GatherArgs{Out: r.empty(kernel.F32, topK, layout.RowDim),
		Slots: r.ints(topK, 1, r.order(sparseTokens)), Pool: pool}, outs{"Out": 1e-6})
	op.Bytes, op.Memory = topK*float64(pool.Mem.Cols/pool.PageTokens), host.Bytes(pool.Mem)
	return op
}

func convert(r *Rig) *Op {
	const n = 64
	in := r.mainPool(layout.FP8Row576, 4*n*64)
	out := kernel.Pool{Mem: r.empty(kernel.U8, n, layout.FP8Block{}.PageBytes(64)), Layout: layout.FP8Row656,
		PageTokens: 64}
	op := repeated(r, kernel.ConvertArgs{Out: out, In: in, Pages: r.ints(n, 1, r.order(4*n))}, "Out", equal)
	op.Bytes, op.Memory = float64(n*in.Mem.Cols), host.Bytes(in.Mem)
	return op
}
