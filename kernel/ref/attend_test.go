package ref_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/kernel"
	"sparrow/layout"
)

// latentRows stores latent rows at consecutive slots of a float32 cache with pages of two tokens. Each row is given by
// value 0 and value 512 (rope).
func (b *bench) latentRows(v ...[2]float32) kernel.Pool {
	b.Helper()
	p := b.mainPool(layout.F32Row2304, (len(v)+1)/2, 2)
	for s, x := range v {
		row := make([]float32, layout.RowDim)
		row[0], row[512] = x[0], x[1]
		layout.F32{}.Encode(host.Page(p, s/2), s%2, row)
	}
	return p
}

// One head, q = (1 at value 0, 1 at value 512), scale 2. Slot 0 is (ln 2 / 2, 0): score ln 2. Slot 1 is (0, 0): score
// 0. Slot 2 is (0, ln 3 / 2): score ln 3. Weights over slots 0, 1, 2 are 2/6, 1/6, 3/6. The output holds only the
// latent part: value 0 is 2/6 * ln 2 / 2. LSE = ln 6, natural; Max = ln 3.
func TestSparseAttend(t *testing.T) {
	b := newBench(t)
	ln2, ln3 := math.Log(2), math.Log(3)
	pool := b.latentRows([2]float32{float32(ln2 / 2), 0}, [2]float32{0, 0}, [2]float32{0, float32(ln3 / 2)},
		[2]float32{nan, nan})
	const rows = 5
	q := b.f32(rows, layout.RowDim)
	for r := range rows {
		host.RowF32(q, r)[0], host.RowF32(q, r)[512] = 1, 1
	}
	out, lse, top := b.f32(rows, 512), b.f32(rows, 1), b.f32(rows, 1)
	b.must(b.run(kernel.SparseArgs{Out: out, LSE: lse, Max: top, Q: q, Pool: pool, Heads: 1, Scale: 2,
		Indices: b.i32(rows, 4,
			0, 1, 2, -1, // all three keys
			-1, 0, -1, 1, // with missing entries: 2/3 and 1/3
			2, 3, 3, 3, // only the first entry counts; the others are NaN
			-1, -1, -1, -1, // no valid entry
			0, 0, 0, 0), // the count is zero
		Lens: b.i32(rows, 1, 4, 4, 1, 4, 0)}))
	b.near("value 0", []float32{host.RowF32(out, 0)[0], host.RowF32(out, 1)[0], host.RowF32(out, 2)[0],
		host.RowF32(out, 3)[0], host.RowF32(out, 4)[0]},
		ln2/6, ln2/3, 0, 0, 0)
	b.near("lse of rows with keys", host.F32(lse)[:3], math.Log(6), ln3, ln3)
	b.near("max of rows with keys", host.F32(top)[:3], ln3, ln2, ln3)
	for r := 3; r < 5; r++ {
		if !math.IsInf(float64(host.F32(lse)[r]), 1) || !math.IsInf(float64(host.F32(top)[r]), -1) {
			t.Errorf("row %d without keys: lse %v, max %v; want +Inf, -Inf", r, host.F32(lse)[r], host.F32(top)[r])
		}
	}
	err := b.run(kernel.SparseArgs{Out: b.f32(1, 512), Q: b.f32(1, 576), Pool: pool, Heads: 1, Scale: 1,
		Indices: b.i32(1, 1, 4), Lens: b.i32(1, 1, 1)})
	if !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("slot 4 of 4: got %v, want ErrArgument", err)
	}
}

// Two heads have nope 1, rope 2 and value 1. Row 0 attends only to key 1; row 1 attends to keys 0 and 1 of a second
// request that starts at row 1. Head 0 of row 1 has q = (1 | 0 0); keys 1 and 2 have k = ln 2 and 0, so the weights are
// 2/3 and 1/3, and with values 30 and 60 the result is 40. Head 1 of row 1 has q = (0 | 1 0); the rope parts are 0 and
// ln 4, so the weights are 1/5 and 4/5, and with values 5 and 10 the result is 9.
func TestDenseAttend(t *testing.T) {
	b := newBench(t)
	d := kernel.LatentDims{Heads: 2, Nope: 1, Rope: 2, V: 1, Latent: 512}
	ln2, ln4 := float32(math.Log(2)), float32(math.Log(4))
	kv := b.f32(3, 4, // key and value of each head
		9, 1, 9, 2,
		ln2, 30, 9, 5,
		0, 60, 9, 10)
	rope := b.f32(3, 2, 9, 9, 0, 9, ln4, 9)
	q := b.f32(2, 6, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0)
	out := b.f32(2, 2)
	b.must(b.run(kernel.DenseArgs{Out: out, Q: q, KV: kv, Rope: rope, Start: b.i32(2, 1, 0, 1),
		Lens: b.i32(2, 1, 1, 2), Dims: d, Scale: 1}))
	b.near("outputs", host.F32(out), 1, 2, 40, 9)
	err := b.run(kernel.DenseArgs{Out: out, Q: q, KV: kv, Rope: rope, Start: b.i32(2, 1, 0, 2),
		Lens: b.i32(2, 1, 1, 2), Dims: d, Scale: 1})
	if !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("keys 2 and 3 of 3: got %v, want ErrArgument", err)
	}
}

// The absorbed and the expanded form of attention compute the same result (v32 spec, 11.2). The expanded form projects
// latents up to keys and values and attends to them densely. The absorbed form projects queries into latent space,
// attends there, and projects the result back.
func TestAbsorbedEqualsExpanded(t *testing.T) {
	for _, d := range []kernel.LatentDims{{Heads: 3, Nope: 128, Rope: 64, V: 128, Latent: 512},
		{Heads: 2, Nope: 192, Rope: 64, V: 256, Latent: 512}} {
		b := newBench(t)
		rng := rand.New(rand.NewPCG(7, uint64(d.V)))
		normal := func(rows, cols int, scale float64) kernel.Tensor {
			x := b.f32(rows, cols)
			for i := range host.F32(x) {
				host.F32(x)[i] = float32(rng.NormFloat64() * scale)
			}
			return x
		}
		const queries, keys = 5, 40
		q, latents := normal(queries, d.Heads*d.QK(), 1), normal(keys, d.Row(), 1)
		kvb := b.prepare(kernel.Weight{Data: normal(d.KVB(), d.Latent, 1/math.Sqrt(512))}, kernel.Latent)
		scale := float32(1 / math.Sqrt(float64(d.QK())))
		lens := b.i32(queries, 1, 1, 7, 39, 40, 40)

		expanded, up := b.f32(queries, d.Heads*d.V), b.f32(keys, d.KVB())
		b.must(b.run(kernel.MultiplyArgs{Out: up, X: latents.Columns(0, d.Latent), W: kvb}))
		b.must(b.run(kernel.DenseArgs{Out: expanded, Q: q, KV: up, Rope: latents.Columns(d.Latent, d.Row()),
			Start: b.i32(queries, 1), Lens: lens, Dims: d, Scale: scale}))

		pool := b.mainPool(layout.F32Row2304, 1, keys)
		indices := b.i32(queries, keys)
		for s := range keys {
			layout.F32{}.Encode(host.Page(pool, 0), s, host.RowF32(latents, s))
			for r := range queries {
				host.RowI32(indices, r)[s] = int32(s)
			}
		}
		absorbed, latent, out := b.f32(queries, d.Heads*d.Row()), b.f32(queries, d.Heads*d.Latent),
			b.f32(queries, d.Heads*d.V)
		b.must(b.run(kernel.AbsorbArgs{Out: absorbed, Q: q, KVB: kvb, Dims: d}))
		b.must(b.run(kernel.SparseArgs{Out: latent, Q: absorbed, Pool: pool, Indices: indices, Lens: lens,
			Heads: d.Heads, Scale: scale}))
		b.must(b.run(kernel.ExpandArgs{Out: out, U: latent, KVB: kvb, Dims: d}))

		for r := range queries {
			if c := cosdiff(host.RowF32(expanded, r), host.RowF32(out, r)); c > 1e-5 {
				t.Errorf("%+v: row %d differs by %g", d, r, c)
			}
		}
		if c := cosdiff(host.RowF32(expanded, 0), host.RowF32(out, 1)); c < 1e-2 {
			t.Errorf("different rows differ by only %g, want a larger difference", c)
		}
	}
}

// cosdiff returns 1 - 2ab/(aa+bb), which is zero for equal vectors (v32 spec, 8).
func cosdiff(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	return 1 - 2*ab/(aa+bb)
}
