package testkit

import (
	"errors"
	"fmt"
	"math"

	"sparrow/internal/num"
	"sparrow/kernel"
)

func testRouteRoot(p *pair) {
	for _, c := range []struct{ experts, topk int }{{8, 2}, {256, 6}, {5, 5}, {1, 1}} {
		for _, ties := range []bool{false, true} {
			const rows = 9
			logits, bias := p.normal(rows*c.experts, 4), p.normal(c.experts, 0.5)
			if ties {
				for i := range logits {
					logits[i] = float32(p.rng.IntN(2)) - 20
				}
				clear(bias)
			}
			what := fmt.Sprintf("%+v ties %v", c, ties)
			l, b := p.floats(rows, c.experts, logits), p.floats(1, c.experts, bias)
			ids, w := p.ints(rows, c.topk, make([]int32, rows*c.topk)), p.zeros(rows, c.topk)
			p.each(func(s side) error {
				return kernel.Do(s, kernel.RootRouteArgs{IDs: s.of(ids), Weights: s.of(w), Logits: s.of(l),
					Bias: s.of(b), Scale: 1.5})
			})
			p.same(what, ids)
			p.near(what, w, 1e-5)
			p.routedByHash(what, l, c.experts, c.topk)
		}
	}
}

func (p *pair) routedByHash(what string, logits both, experts, topk int) {
	p.Helper()
	const vocabulary = 11
	rows := logits.dev.Rows
	list, tokens := make([]int32, vocabulary*topk), make([]int32, rows)
	for i := range list {
		list[i] = int32(p.rng.IntN(experts))
	}
	for i := range tokens {
		tokens[i] = int32(p.rng.IntN(vocabulary))
	}
	table, at := p.ints(vocabulary, topk, list), p.ints(rows, 1, tokens)
	ids, w := p.ints(rows, topk, make([]int32, rows*topk)), p.zeros(rows, topk)
	p.each(func(s side) error {
		return kernel.Do(s, kernel.HashRouteArgs{IDs: s.of(ids), Weights: s.of(w), Logits: s.of(logits),
			Table: s.of(table), Tokens: s.of(at), Scale: 1.5})
	})
	p.same(what+" by hash", ids)
	p.near(what+" by hash", w, 1e-5)
	for i, tok := range tokens {
		p.exactly(what+" by hash", ids.dev.Slice(i, i+1), list[int(tok)*topk:][:topk])
	}
}

// testRootScores checks the values of the v4 spec, 2.6, by the weights of two experts: if their logits are z and 0, and
// the scale is s(0), the ratio of the weights is the ratio of the scores. For z far below zero, the sum of the scores
// must not be zero.
func testRootScores(p *pair) {
	zero := 0.83255461
	for z, want := range map[float32]float64{-20: 4.539993e-05, -1: 0.55969785, 0: zero, 1: 1.1459763, 10: 3.1622848,
		100: 10} {
		ids, w := p.ints(1, 2, []int32{0, 0}), p.zeros(1, 2)
		p.must(kernel.Do(p.dev, kernel.HashRouteArgs{IDs: ids.dev, Weights: w.dev,
			Logits: p.floats(1, 2, []float32{z, 0}).dev, Table: p.ints(1, 2, []int32{0, 1}).dev,
			Tokens: p.ints(1, 1, []int32{0}).dev, Scale: 1}))
		v := p.read(p.dev, w.dev)
		if got := float64(v[0]) / float64(v[1]) * zero; math.Abs(got/want-1) > 2e-6 {
			p.Errorf("score of %v is %v, want %v", z, got, want)
		}
	}
	ids, w := p.ints(1, 2, []int32{0, 0}), p.zeros(1, 2)
	p.must(kernel.Do(p.dev, kernel.HashRouteArgs{IDs: ids.dev, Weights: w.dev,
		Logits: p.floats(1, 2, []float32{-80, -80}).dev, Table: p.ints(1, 2, []int32{0, 1}).dev,
		Tokens: p.ints(1, 1, []int32{0}).dev, Scale: 1}))
	for _, v := range p.read(p.dev, w.dev) {
		if math.Abs(float64(v)-0.5) > 1e-3 {
			p.Errorf("weight of two equal experts far below zero is %v, want 0.5", v)
		}
	}
}

// testClamp compares clamped gates with the reference, and with the formula at the limit.
func testClamp(p *pair) {
	g, u, out := p.activations(3, 67, p.normal(3*67, 20)), p.activations(3, 67, p.normal(3*67, 20)), p.random(3, 67)
	before := p.read(p.dev, u.dev)
	p.each(func(s side) error {
		return kernel.Do(s, kernel.GateArgs{Out: s.of(out), Gate: s.of(g), Up: s.of(u), Limit: 10})
	})
	p.near("clamped gate", out, 1e-5)
	for i, v := range p.read(p.dev, u.dev) {
		if v != before[i] {
			p.Fatalf("the gate changed its input %d", i)
		}
	}
	one := p.activations(1, 3, []float32{100, -100, 100})
	up := p.activations(1, 3, []float32{100, 100, -100})
	p.must(kernel.Do(p.dev, kernel.GateArgs{Out: one.dev, Gate: one.dev, Up: up.dev, Limit: 10}))
	silu := 10 / (1 + math.Exp(-10))
	for i, want := range []float64{10 * silu, 0, -10 * silu} {
		if got := float64(p.read(p.dev, one.dev)[i]); math.Abs(got-want) > max(1e-4, math.Abs(want)/128) ||
			i != 1 && math.Abs(got) > 101 {
			p.Errorf("clamped gate %d is %v, want %v", i, got, want)
		}
	}
}

// packed returns a random matrix of e2m1 pairs with a power-of-two scale for every row and 32 inputs.
func (p *pair) packed(out, in int) weights {
	p.Helper()
	data, scale := make([]byte, out*in/2), make([]byte, out*((in+31)/32))
	for i := range data {
		data[i] = byte(p.rng.IntN(256))
	}
	for i := range scale {
		scale[i] = byte(120 + p.rng.IntN(6))
	}
	return p.prepare(p.packedWeight(out, in, data, scale), kernel.Projected)
}

// packedWeight returns a matrix of e2m1 pairs.
func (p *pair) packedWeight(out, in int, data, scale []byte) kernel.Weight {
	p.Helper()
	t, err := kernel.New(p.ref, kernel.E2M1x2, out, in/2)
	p.must(err)
	p.must(p.ref.Write(t, data))
	e, err := kernel.New(p.ref, kernel.E8M0, out, (in+31)/32)
	p.must(err)
	p.must(p.ref.Write(e, scale))
	return kernel.Weight{Data: t, Scale: e, BlockRows: 1, BlockCols: 32}
}

// packedTolerance returns the largest allowed difference between products with k packed weights and the reference. The
// tiles of a CPU round x, whose largest number is about 4, with errors of up to 2^-15 of that. These errors, multiplied
// by weights of about 1/3, add up like random numbers, and the largest of many such sums is about five times their
// standard deviation.
func (p *pair) packedTolerance(k int) float64 {
	if p.dev.Name() == "cpu-amx" {
		return 5 * 4 * 0x1p-15 / math.Sqrt(3) / 3 * math.Sqrt(float64(k))
	}
	return 2e-5
}

// testPacked compares products with packed matrices, both single matrices and experts with clamps.
func testPacked(p *pair) {
	for _, c := range [][3]int{{1, 5, 32}, {3, 70, 96}, {5, 130, 80}, {130, 64, 256}} {
		m, n, k := c[0], c[1], c[2]
		w, x, out := p.packed(n, k), p.random(m, k), p.random(m, n)
		what := fmt.Sprintf("packed %dx%dx%d", m, n, k)
		p.each(func(s side) error {
			return kernel.Do(s, kernel.MultiplyArgs{Out: s.of(out), X: s.of(x), W: s.weight(w)})
		})
		p.near(what, out, p.packedTolerance(k))
		p.rowwise(what, out.dev, func(r int) kernel.Tensor {
			one := p.like(out.dev, 1)
			p.must(kernel.Do(p.dev, kernel.MultiplyArgs{Out: one, X: x.dev.Slice(r, r+1), W: w.dev}))
			return one
		})
	}
	p.packedByHand()
	p.packedExperts()
}

// packedByHand checks the product with a row of known values: the codes 0 to 15 times 2^3, then times 2^-1.
func (p *pair) packedByHand() {
	p.Helper()
	data := make([]byte, 32)
	for i := range data {
		data[i] = num.PackE2M1(byte(2*i%16), byte(2*i%16+1))
	}
	w := p.prepare(p.packedWeight(1, 64, data, []byte{130, 126}), kernel.Projected).dev
	values := []float32{0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6}
	for c := range 64 {
		x := make([]float32, 64)
		x[c] = 1
		want := values[c%16] * 8
		if c >= 32 {
			want = values[c%16] / 2
		}
		out := p.random(1, 1)
		p.must(kernel.Do(p.dev, kernel.MultiplyArgs{Out: out.dev, X: p.activations(1, 64, x).dev, W: w}))
		if got := p.read(p.dev, out.dev)[0]; got != want {
			p.Fatalf("packed value %d is %v, want %v", c, got, want)
		}
	}
	if err := kernel.Do(p.dev, kernel.MultiplyArgs{Out: p.random(1, 1).dev, X: p.random(1, 63).dev,
		W: w}); !errors.Is(err, kernel.ErrArgument) {
		p.Errorf("a product with an odd number of packed values: got error %v, want one that wraps ErrArgument", err)
	}
}

func (p *pair) packedExperts() {
	p.Helper()
	const experts, hidden, inner, rows = 3, 64, 96, 7
	var list [3][]weights
	for range experts {
		list[0], list[1], list[2] = append(list[0], p.packed(inner, hidden)), append(list[1], p.packed(inner, hidden)),
			append(list[2], p.packed(hidden, inner))
	}
	choice := make([]int32, rows*2)
	for i := range choice {
		choice[i] = int32(p.rng.IntN(experts))
	}
	x, out := p.random(rows, hidden), p.activations(rows, hidden, make([]float32, rows*hidden))
	ids, w := p.ints(rows, 2, choice), p.floats(rows, 2, p.normal(rows*2, 1))
	onRef, onDev := p.experts(list[0], list[1], list[2])
	p.must(kernel.Do(p.ref, kernel.ExpertArgs{Out: out.ref, X: x.ref, IDs: ids.ref, Weights: w.ref, Experts: onRef,
		Limit: 0.5}))
	p.must(kernel.Do(p.dev, kernel.ExpertArgs{Out: out.dev, X: x.dev, IDs: ids.dev, Weights: w.dev, Experts: onDev,
		Limit: 0.5}))
	p.near("packed experts with clamps", out, max(1e-4, p.packedTolerance(inner)))
}
