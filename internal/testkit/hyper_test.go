package testkit

import (
	"fmt"
	"math"

	"sparrow/kernel"
)

// testHyper compares the three operations on residual streams with the reference, for several numbers of streams.
func testHyper(p *pair) {
	for _, c := range []struct{ n, hidden, rounds int }{{4, 128, 20}, {1, 7, 1}, {3, 33, 2}, {16, 20, 5}} {
		const rows = 5
		what := fmt.Sprintf("%+v", c)
		w := 2*c.n + c.n*c.n
		x := p.random(rows, c.n*c.hidden)
		mix, base, scale := p.floats(rows, w, p.normal(rows*w, 3)), p.floats(1, w, p.normal(w, 1)),
			p.floats(1, 3, []float32{0.7, 1.3, 2})
		out, post, comb := p.random(rows, c.hidden), p.zeros(rows, c.n), p.zeros(rows, c.n*c.n)
		pre := func(s side, out, post, comb, x, mix kernel.Tensor) error {
			return kernel.Do(s, kernel.HyperPreArgs{Out: out, Post: post, Comb: comb, X: x, Mix: mix, Base: s.of(base),
				Scale: s.of(scale), Streams: c.n, Rounds: c.rounds, NormEps: 1e-6, Eps: 1e-6})
		}
		p.each(func(s side) error { return pre(s, s.of(out), s.of(post), s.of(comb), s.of(x), s.of(mix)) })
		p.near(what+" mixture", out, 1e-4)
		p.near(what+" post", post, 1e-5)
		p.near(what+" comb", comb, 1e-5)
		p.rowwise(what+" pre", out.dev, func(r int) kernel.Tensor {
			one := p.like(out.dev, 1)
			p.must(pre(p.target(), one, p.zeros(1, c.n).dev, p.zeros(1, c.n*c.n).dev, x.dev.Slice(r, r+1),
				mix.dev.Slice(r, r+1)))
			return one
		})
		p.hyperHead(what, x, mix, base, c.n)
		p.hyperPost(what, x, post, comb, c.n)
	}
}

func (p *pair) hyperHead(what string, x, mix, base both, n int) {
	p.Helper()
	scale, out := p.floats(1, 1, []float32{0.9}), p.random(x.dev.Rows, x.dev.Cols/n)
	p.each(func(s side) error {
		return kernel.Do(s, kernel.HyperHeadArgs{Out: s.of(out), X: s.of(x), Mix: s.of(mix.columns(0, n)),
			Base: s.of(base.columns(0, n)), Scale: s.of(scale), Streams: n, NormEps: 1e-6, Eps: 1e-6})
	})
	p.near(what+" head", out, 1e-4)
}

// hyperPost runs the operation on copies of the streams, because the operation overwrites them.
func (p *pair) hyperPost(what string, x, post, comb both, n int) {
	p.Helper()
	rows := x.dev.Rows
	sub, values := p.random(rows, x.dev.Cols/n), p.read(p.dev, x.dev)
	streams := p.activations(rows, x.dev.Cols, values)
	p.each(func(s side) error {
		return kernel.Do(s, kernel.HyperPostArgs{X: s.of(streams), Sub: s.of(sub), Post: s.of(post), Comb: s.of(comb),
			Streams: n})
	})
	p.near(what+" streams", streams, 1e-5)
	p.rowwise(what+" post", streams.dev, func(r int) kernel.Tensor {
		one := p.on(p.dev, x.dev.DType, 1, x.dev.Cols, values[r*x.dev.Cols:][:x.dev.Cols])
		p.must(kernel.Do(p.dev, kernel.HyperPostArgs{X: one, Sub: sub.dev.Slice(r, r+1), Post: post.dev.Slice(r, r+1),
			Comb: comb.dev.Slice(r, r+1), Streams: n}))
		return one
	})
}

// testSinkhorn checks the test vector of the v4 spec, 2.1, on the device under test: the input is logits, the output is
// the mixing matrix. It also detects a transposed matrix, both when streams are read and when they are written.
func testSinkhorn(p *pair) {
	c := []float32{-1, .5, 1, 1.5, 2, -1, .5, 1, 1.5, 2, -1, .5, 1, 1.5, 2, -1}
	want := []float64{.030038, .152544, .284989, .532428, .532428, .030038, .152544, .284988, .284989, .532428, .030039,
		.152544, .152544, .284989, .532428, .030039}
	// Streams whose mean square is 1 - 1e-6 do not change the mix.
	x := make([]float32, 8)
	for i := range x {
		x[i] = float32(math.Sqrt(1 - 1e-6))
	}
	mix := append(make([]float32, 8), c...)
	streams, m := p.activations(1, 8, x), p.floats(1, 24, mix)
	base, scale := p.zeros(1, 24), p.floats(1, 3, []float32{1, 1, 1})
	out, post, comb := p.random(1, 2), p.zeros(1, 4), p.zeros(1, 16)
	p.must(kernel.Do(p.dev, kernel.HyperPreArgs{Out: out.dev, Post: post.dev, Comb: comb.dev, X: streams.dev,
		Mix: m.dev, Base: base.dev, Scale: scale.dev, Streams: 4, Rounds: 20, NormEps: 1e-6, Eps: 1e-6}))
	for i, got := range p.read(p.dev, comb.dev) {
		if math.Abs(float64(got)-want[i]) > 2e-6 {
			p.Fatalf("mixing matrix element %d: got %v, want %v", i, got, want[i])
		}
	}
	for i, got := range p.read(p.dev, post.dev) {
		if got != 1 { // the value of 2*sigmoid(0)
			p.Fatalf("post %d: got %v, want 1", i, got)
		}
	}
	// Stream k gets column k of the matrix: if one stream is set, the row of the matrix appears across the streams.
	one := p.activations(1, 8, []float32{0, 0, 1, 1, 0, 0, 0, 0})
	sub := p.activations(1, 2, []float32{0, 0})
	p.must(kernel.Do(p.dev, kernel.HyperPostArgs{X: one.dev, Sub: sub.dev, Post: post.dev, Comb: comb.dev, Streams: 4}))
	for i, got := range p.read(p.dev, one.dev) {
		if w := want[4+i/2]; math.Abs(float64(got)-w) > 1e-2 ||
			p.dev.Activation() == kernel.F32 && math.Abs(float64(got)-w) > 2e-6 {
			p.Fatalf("stream %d: got %v, want %v", i/2, got, w)
		}
	}
}

func testHeadNorm(p *pair) {
	for _, c := range []struct{ heads, size int }{{1, 1}, {3, 64}, {4, 512}} {
		v := p.normal(5*c.heads*c.size, 3)
		x := p.activations(5, c.heads*c.size, v)
		p.each(func(s side) error { return kernel.Do(s, kernel.HeadNormArgs{X: s.of(x), Heads: c.heads, Eps: 1e-6}) })
		p.near(fmt.Sprintf("%+v", c), x, 1e-5)
		p.rowwise("head norm", x.dev, func(r int) kernel.Tensor {
			one := p.on(p.dev, x.dev.DType, 1, x.dev.Cols, v[r*x.dev.Cols:][:x.dev.Cols])
			p.must(kernel.Do(p.dev, kernel.HeadNormArgs{X: one, Heads: c.heads, Eps: 1e-6}))
			return one
		})
	}
}

// testTurnBack rotates rows forward and back and compares them.
func testTurnBack(p *pair) {
	a := p.angles(7)
	for _, pairing := range []kernel.Pairing{kernel.Interleaved, kernel.HalfSplit} {
		v := p.normal(7*2*512, 1)
		x := p.activations(7, 2*512, v)
		before := p.activations(7, 2*512, v)
		args := func(s side, inverse bool) kernel.RotateArgs {
			return kernel.RotateArgs{X: s.of(x), Angles: s.of(a), Heads: 2, HeadDim: 512, Offset: 448, Pairing: pairing,
				Inverse: inverse}
		}
		p.each(func(s side) error { return kernel.Do(s, args(s, true)) })
		p.near(pairing.String()+" back", x, 1e-5)
		p.each(func(s side) error { return kernel.Do(s, args(s, false)) })
		p.near(pairing.String()+" back and forth", both{before.ref, x.dev}, 1e-5)
	}
}

// zeros returns a float32 tensor of zeros on both devices.
func (p *pair) zeros(rows, cols int) both {
	p.Helper()
	return p.floats(rows, cols, make([]float32, rows*cols))
}
