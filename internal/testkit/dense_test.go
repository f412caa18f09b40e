package testkit

import (
	"fmt"
	"math"

	"sparrow/kernel"
)

func testEmbed(p *pair) {
	for _, kind := range []kernel.DType{kernel.F32, kernel.BF16, kernel.F16} {
		w := p.weightFor(kernel.LookedUp, kind, 37, 96)
		ids := p.ints(5, 1, []int32{0, 36, 7, 7, 1})
		out := p.random(5, 96)
		p.must(kernel.Do(p.ref, kernel.EmbedArgs{Out: out.ref, Table: w.ref, IDs: ids.ref}))
		p.must(kernel.Do(p.dev, kernel.EmbedArgs{Out: out.dev, Table: w.dev, IDs: ids.dev}))
		p.near(kind.String(), out, 0)
	}
}

func testNorm(p *pair) {
	for _, n := range []int{1, 96, 512, 7168} {
		x, out := p.random(5, n), p.random(5, n)
		w := p.floats(1, n, p.normal(n, 1))
		p.must(kernel.Do(p.ref, kernel.NormArgs{Out: out.ref, X: x.ref, Weight: w.ref, Eps: 1e-6}))
		p.must(kernel.Do(p.dev, kernel.NormArgs{Out: out.dev, X: x.dev, Weight: w.dev, Eps: 1e-6}))
		p.near(fmt.Sprintf("%d columns", n), out, 1e-5)
		p.rowwise("norm", out.dev, func(r int) kernel.Tensor {
			one := p.like(out.dev, 1)
			p.must(kernel.Do(p.dev, kernel.NormArgs{Out: one, X: x.dev.Slice(r, r+1), Weight: w.dev, Eps: 1e-6}))
			return one
		})
	}
}

func testMultiply(p *pair) {
	shapes := [][3]int{{1, 1, 1}, {1, 130, 257}, {3, 17, 96}, {4, 64, 128}, {5, 576, 128}, {16, 129, 300},
		{131, 66, 192}}
	for _, kind := range []kernel.DType{kernel.F32, kernel.BF16, kernel.F16, kernel.E4M3} {
		for _, s := range shapes {
			m, n, k := s[0], s[1], s[2]
			w := p.weight(kind, n, k)
			wide := p.random(m, k+3) // columns of it are a view with a stride
			x := wide.columns(2, k+2)
			out := p.random(m, n+5).columns(5, n+5)
			for _, add := range []bool{false, true} {
				what := fmt.Sprintf("%v %dx%dx%d accumulate %v", kind, m, n, k, add)
				before := p.read(p.dev, out.dev)
				p.must(kernel.Do(p.ref, kernel.MultiplyArgs{Out: out.ref, X: x.ref, W: w.ref, Accumulate: add}))
				p.must(kernel.Do(p.dev, kernel.MultiplyArgs{Out: out.dev, X: x.dev, W: w.dev, Accumulate: add}))
				p.near(what, out, 2e-5)
				p.rowwise(what, out.dev, func(r int) kernel.Tensor {
					one := p.on(p.dev, out.dev.DType, 1, n, before[r*n:(r+1)*n])
					p.must(kernel.Do(p.dev, kernel.MultiplyArgs{Out: one, X: x.dev.Slice(r, r+1), W: w.dev,
						Accumulate: add}))
					return one
				})
			}
		}
	}
}

func testTake(p *pair) {
	x, out := p.random(9, 33), p.random(3, 33)
	rows := p.ints(3, 1, []int32{8, 0, 8})
	p.must(p.ref.Take(kernel.TakeArgs{Out: out.ref, X: x.ref, Rows: rows.ref}))
	p.must(p.dev.Take(kernel.TakeArgs{Out: out.dev, X: x.dev, Rows: rows.dev}))
	p.near("take", out, 0)
	// Copied integers keep their bits, including integers whose bits are not finite floats. Columns of wider rows are
	// copied separately.
	const wide = 66
	list := make([]int32, 9*wide)
	for i := range list {
		list[i] = int32(p.rng.Uint32())
	}
	list[0], list[1] = -1, math.MinInt32
	ids, taken := p.ints(9, wide, list), p.ints(3, 33, make([]int32, 99))
	ids = ids.columns(0, 33)
	p.must(p.ref.Take(kernel.TakeArgs{Out: taken.ref, X: ids.ref, Rows: rows.ref}))
	p.must(p.dev.Take(kernel.TakeArgs{Out: taken.dev, X: ids.dev, Rows: rows.dev}))
	p.same("take of whole numbers", taken)
	if got := p.readInts(p.ref, taken.ref); got[33] != -1 || got[34] != math.MinInt32 || got[0] != list[8*wide] {
		p.Fatalf("took %v", got[:35])
	}
}

func testGate(p *pair) {
	g := p.activations(3, 67, p.normal(3*67, 8))
	u, out := p.random(3, 67), p.random(3, 67)
	p.must(kernel.Do(p.ref, kernel.GateArgs{Out: out.ref, Gate: g.ref, Up: u.ref}))
	p.must(kernel.Do(p.dev, kernel.GateArgs{Out: out.dev, Gate: g.dev, Up: u.dev}))
	p.near("gate", out, 1e-5)
}

// angles computes rotations on both devices for positions that extend far into a long context.
func (p *pair) angles(rows int) both {
	pos := make([]int32, rows)
	freq := make([]float32, 32)
	for i := range pos {
		pos[i] = int32(i * 9973 % 163840)
	}
	for i := range freq {
		freq[i] = 1 / float32(i*i+1)
	}
	at, f := p.ints(rows, 1, pos), p.floats(1, 32, freq)
	out := p.floats(rows, 64, make([]float32, rows*64))
	p.must(kernel.Do(p.ref, kernel.AngleArgs{Out: out.ref, Positions: at.ref, InvFreq: f.ref, Scale: 1}))
	p.must(kernel.Do(p.dev, kernel.AngleArgs{Out: out.dev, Positions: at.dev, InvFreq: f.dev, Scale: 1}))
	return out
}

func testRotate(p *pair) {
	a := p.angles(7)
	p.near("angles", a, 1e-5)
	for _, pairing := range []kernel.Pairing{kernel.Interleaved, kernel.HalfSplit} {
		x := p.random(7, 3*192)
		p.must(kernel.Do(p.ref, kernel.RotateArgs{X: x.ref, Angles: a.ref, Heads: 3, HeadDim: 192, Offset: 128,
			Pairing: pairing}))
		p.must(kernel.Do(p.dev, kernel.RotateArgs{X: x.dev, Angles: a.dev, Heads: 3, HeadDim: 192, Offset: 128,
			Pairing: pairing}))
		p.near(pairing.String(), x, 1e-5)
	}
}

func testLatent(p *pair) {
	for _, d := range []kernel.LatentDims{{Heads: 2, Nope: 128, Rope: 64, V: 128, Latent: 512},
		{Heads: 3, Nope: 192, Rope: 64, V: 256, Latent: 512}} {
		for _, kind := range []kernel.DType{kernel.F32, kernel.BF16, kernel.F16, kernel.E4M3} {
			what := fmt.Sprintf("%v %+v", kind, d)
			w := p.weightFor(kernel.Latent, kind, d.KVB(), d.Latent)
			q, out := p.random(5, d.Heads*d.QK()), p.random(5, d.Heads*d.Row())
			p.must(kernel.Do(p.ref, kernel.AbsorbArgs{Out: out.ref, Q: q.ref, KVB: w.ref, Dims: d}))
			p.must(kernel.Do(p.dev, kernel.AbsorbArgs{Out: out.dev, Q: q.dev, KVB: w.dev, Dims: d}))
			p.near("absorb "+what, out, 2e-5)
			p.rowwise("absorb "+what, out.dev, func(r int) kernel.Tensor {
				one := p.like(out.dev, 1)
				p.must(kernel.Do(p.dev, kernel.AbsorbArgs{Out: one, Q: q.dev.Slice(r, r+1), KVB: w.dev, Dims: d}))
				return one
			})
			u, o := p.random(5, d.Heads*d.Latent), p.random(5, d.Heads*d.V)
			p.must(kernel.Do(p.ref, kernel.ExpandArgs{Out: o.ref, U: u.ref, KVB: w.ref, Dims: d}))
			p.must(kernel.Do(p.dev, kernel.ExpandArgs{Out: o.dev, U: u.dev, KVB: w.dev, Dims: d}))
			p.near("expand "+what, o, 2e-5)
		}
	}
}
