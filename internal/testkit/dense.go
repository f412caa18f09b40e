package testkit

import (
	"fmt"
	"testing"

	"sparrow/kernel"
)

// Operations compares every operation of a device with the reference.
func Operations(t *testing.T, dev kernel.Device) {
	t.Run("embed", func(t *testing.T) { testEmbed(newPair(t, dev, 1)) })
	t.Run("norm", func(t *testing.T) { testNorm(newPair(t, dev, 2)) })
	t.Run("multiply", func(t *testing.T) { testMultiply(newPair(t, dev, 3)) })
	t.Run("take", func(t *testing.T) { testTake(newPair(t, dev, 4)) })
	t.Run("gate", func(t *testing.T) { testGate(newPair(t, dev, 5)) })
	t.Run("rotate", func(t *testing.T) { testRotate(newPair(t, dev, 6)) })
	t.Run("absorb and expand", func(t *testing.T) { testLatent(newPair(t, dev, 7)) })
	t.Run("store and gather rows", func(t *testing.T) { testRows(newPair(t, dev, 8)) })
	t.Run("store and gather index", func(t *testing.T) { testIndexRows(newPair(t, dev, 9)) })
	t.Run("convert pages", func(t *testing.T) { testConvert(newPair(t, dev, 10)) })
	t.Run("index query", func(t *testing.T) { testIndexQuery(newPair(t, dev, 11)) })
	t.Run("scores", func(t *testing.T) { testScores(newPair(t, dev, 12)) })
	t.Run("select", func(t *testing.T) { testSelect(newPair(t, dev, 13)) })
	t.Run("locate", func(t *testing.T) { testLocate(newPair(t, dev, 14)) })
	t.Run("sparse attend", func(t *testing.T) { testSparse(newPair(t, dev, 15)) })
	t.Run("dense attend", func(t *testing.T) { testDense(newPair(t, dev, 16)) })
	t.Run("route", func(t *testing.T) { testRoute(newPair(t, dev, 17)) })
	t.Run("experts", func(t *testing.T) { testExperts(newPair(t, dev, 18)) })
	t.Run("refusals", func(t *testing.T) { testRefusals(newPair(t, dev, 19)) })
	t.Run("hyper-connections", func(t *testing.T) { testHyper(newPair(t, dev, 20)) })
	t.Run("mixing matrix by hand", func(t *testing.T) { testSinkhorn(newPair(t, dev, 21)) })
	t.Run("head norm", func(t *testing.T) { testHeadNorm(newPair(t, dev, 22)) })
	t.Run("rotate back", func(t *testing.T) { testTurnBack(newPair(t, dev, 23)) })
	t.Run("compress", func(t *testing.T) { testCompress(newPair(t, dev, 24)) })
	t.Run("compress by hand", func(t *testing.T) { testCompressVector(newPair(t, dev, 25)) })
	t.Run("store and unpack entries", func(t *testing.T) { testEntries(newPair(t, dev, 26)) })
	t.Run("store keys", func(t *testing.T) { testKeys(newPair(t, dev, 27)) })
	t.Run("dual and flat attend", func(t *testing.T) { testDual(newPair(t, dev, 28)) })
	t.Run("sink by hand", func(t *testing.T) { testSink(newPair(t, dev, 29)) })
	t.Run("combine by hand", func(t *testing.T) { testCombine(newPair(t, dev, 30)) })
	t.Run("route by root", func(t *testing.T) { testRouteRoot(newPair(t, dev, 31)) })
	t.Run("root scores by hand", func(t *testing.T) { testRootScores(newPair(t, dev, 32)) })
	t.Run("clamped gate", func(t *testing.T) { testClamp(newPair(t, dev, 33)) })
	t.Run("packed weights", func(t *testing.T) { testPacked(newPair(t, dev, 34)) })
	t.Run("refusals of places", func(t *testing.T) { testEntryRefusals(newPair(t, dev, 35)) })
}

func testEmbed(p *pair) {
	for _, kind := range []kernel.DType{kernel.F32, kernel.BF16, kernel.F16} {
		w := p.weight(kind, 37, 96)
		ids := p.ints(5, 1, []int32{0, 36, 7, 7, 1})
		out := p.random(5, 96)
		p.must(p.ref.Embed(kernel.EmbedArgs{Out: out.ref, Table: w.ref.Data, IDs: ids.ref}))
		p.must(p.dev.Embed(kernel.EmbedArgs{Out: out.dev, Table: w.dev.Data, IDs: ids.dev}))
		p.near(kind.String(), out, 0)
	}
}

func testNorm(p *pair) {
	for _, n := range []int{1, 96, 512, 7168} {
		x, out := p.random(5, n), p.random(5, n)
		w := p.floats(1, n, p.normal(n, 1))
		p.must(p.ref.Norm(kernel.NormArgs{Out: out.ref, X: x.ref, Weight: w.ref, Eps: 1e-6}))
		p.must(p.dev.Norm(kernel.NormArgs{Out: out.dev, X: x.dev, Weight: w.dev, Eps: 1e-6}))
		p.near(fmt.Sprintf("%d columns", n), out, 1e-5)
		p.rowwise("norm", out.dev, func(r int) kernel.Tensor {
			one := p.like(out.dev, 1)
			p.must(p.dev.Norm(kernel.NormArgs{Out: one, X: x.dev.Slice(r, r+1), Weight: w.dev, Eps: 1e-6}))
			return one
		})
	}
}

func testMultiply(p *pair) {
	shapes := [][3]int{{1, 1, 1}, {1, 130, 257}, {3, 17, 96}, {4, 64, 128}, {5, 576, 128}, {16, 129, 300}, {131, 66, 192}}
	for _, kind := range []kernel.DType{kernel.F32, kernel.BF16, kernel.F16, kernel.E4M3} {
		for _, s := range shapes {
			m, n, k := s[0], s[1], s[2]
			w := p.weight(kind, n, k)
			wide := p.random(m, k+3) // a view with a stride
			x := wide.columns(2, k+2)
			out := p.random(m, n+5).columns(5, n+5)
			for _, add := range []bool{false, true} {
				what := fmt.Sprintf("%v %dx%dx%d accumulate %v", kind, m, n, k, add)
				before := p.read(p.dev, out.dev)
				p.must(p.ref.Multiply(kernel.MultiplyArgs{Out: out.ref, X: x.ref, W: w.ref, Accumulate: add}))
				p.must(p.dev.Multiply(kernel.MultiplyArgs{Out: out.dev, X: x.dev, W: w.dev, Accumulate: add}))
				p.near(what, out, 2e-5)
				p.rowwise(what, out.dev, func(r int) kernel.Tensor {
					one := p.on(p.dev, out.dev.DType, 1, n, before[r*n:(r+1)*n])
					p.must(p.dev.Multiply(kernel.MultiplyArgs{Out: one, X: x.dev.Slice(r, r+1), W: w.dev, Accumulate: add}))
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
}

func testGate(p *pair) {
	g := p.activations(3, 67, p.normal(3*67, 8))
	u, out := p.random(3, 67), p.random(3, 67)
	p.must(p.ref.Gate(kernel.GateArgs{Out: out.ref, Gate: g.ref, Up: u.ref}))
	p.must(p.dev.Gate(kernel.GateArgs{Out: out.dev, Gate: g.dev, Up: u.dev}))
	p.near("gate", out, 1e-5)
}

// angles computes rotations on both sides for positions that reach far into a long context.
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
	p.must(p.ref.Angles(kernel.AngleArgs{Out: out.ref, Positions: at.ref, InvFreq: f.ref, Scale: 1}))
	p.must(p.dev.Angles(kernel.AngleArgs{Out: out.dev, Positions: at.dev, InvFreq: f.dev, Scale: 1}))
	return out
}

func testRotate(p *pair) {
	a := p.angles(7)
	p.near("angles", a, 1e-5)
	for _, pairing := range []kernel.Pairing{kernel.Interleaved, kernel.HalfSplit} {
		x := p.random(7, 3*192)
		p.must(p.ref.Rotate(kernel.RotateArgs{X: x.ref, Angles: a.ref, Heads: 3, HeadDim: 192, Offset: 128, Pairing: pairing}))
		p.must(p.dev.Rotate(kernel.RotateArgs{X: x.dev, Angles: a.dev, Heads: 3, HeadDim: 192, Offset: 128, Pairing: pairing}))
		p.near(pairing.String(), x, 1e-5)
	}
}

func testLatent(p *pair) {
	for _, d := range []kernel.LatentDims{{Heads: 2, Nope: 128, Rope: 64, V: 128, Latent: 512}, {Heads: 3, Nope: 192, Rope: 64, V: 256, Latent: 512}} {
		for _, kind := range []kernel.DType{kernel.F32, kernel.BF16, kernel.F16, kernel.E4M3} {
			what := fmt.Sprintf("%v %+v", kind, d)
			w := p.weight(kind, d.KVB(), d.Latent)
			q, out := p.random(5, d.Heads*d.QK()), p.random(5, d.Heads*d.Row())
			p.must(p.ref.Absorb(kernel.AbsorbArgs{Out: out.ref, Q: q.ref, KVB: w.ref, Dims: d}))
			p.must(p.dev.Absorb(kernel.AbsorbArgs{Out: out.dev, Q: q.dev, KVB: w.dev, Dims: d}))
			p.near("absorb "+what, out, 2e-5)
			p.rowwise("absorb "+what, out.dev, func(r int) kernel.Tensor {
				one := p.like(out.dev, 1)
				p.must(p.dev.Absorb(kernel.AbsorbArgs{Out: one, Q: q.dev.Slice(r, r+1), KVB: w.dev, Dims: d}))
				return one
			})
			u, o := p.random(5, d.Heads*d.Latent), p.random(5, d.Heads*d.V)
			p.must(p.ref.Expand(kernel.ExpandArgs{Out: o.ref, U: u.ref, KVB: w.ref, Dims: d}))
			p.must(p.dev.Expand(kernel.ExpandArgs{Out: o.dev, U: u.dev, KVB: w.dev, Dims: d}))
			p.near("expand "+what, o, 2e-5)
		}
	}
}
