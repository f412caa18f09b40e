package testkit

import (
	"fmt"

	"sparrow/kernel"
)

// sequences describes three sequences whose rows are mixed in a pass: one begins, one continues, and one is padding.
type sequences struct{ rows, spans, snapshots both }

func (s sequences) on(d side) kernel.Sequences {
	return kernel.Sequences{Rows: d.of(s.rows), Spans: d.of(s.spans), Snapshots: d.of(s.snapshots)}
}

// mixedSequences returns sequences with 9 rows, slots 2 and 0 of 3, and snapshots 1 and 0 of 2. The previous pass held
// back held rows of the sequence that continues; this pass holds back hold rows of it.
func (p *pair) mixedSequences(held, hold int32) sequences {
	return sequences{p.ints(9, 1, []int32{4, 0, 7, 2, 1, 3, 6, 8, 5}),
		p.ints(3, kernel.SpanWords, []int32{0, 4, 2, 1, 0, 0, 4, 3, 0, 0, held, hold, 7, 2, -1, 0, 0, 0}),
		p.ints(9, 1, []int32{-1, -1, -1, 0, -1, -1, -1, 1, -1})}
}

// testConvolve compares convolutions with the reference: outputs, states, snapshots and rows that are held back.
func testConvolve(p *pair) {
	for _, cols := range []int{8, 1100} {
		for _, c := range []struct{ held, hold int32 }{{0, 0}, {2, 0}, {0, 1}, {3, 1}} {
			what := fmt.Sprintf("%d channels, %+v", cols, c)
			of, x, out := p.mixedSequences(c.held, c.hold), p.random(9, cols), p.random(9, cols)
			w, state := p.floats(cols, 4, p.normal(4*cols, 1)), p.floats(9, cols, p.normal(9*cols, 1))
			kept, held := p.zeros(6, cols), p.floats(12, cols, p.normal(12*cols, 1))
			p.each(func(s side) error {
				return kernel.Do(s, kernel.ConvArgs{Out: s.of(out), X: s.of(x), Weight: s.of(w), State: s.of(state),
					Kept: s.of(kept), Held: s.of(held), Sequences: of.on(s)})
			})
			p.near(what, out, 1e-5)
			p.near(what+" state", state, 0)
			p.near(what+" snapshots", kept, 0)
			p.near(what+" held", held, 0)
		}
	}
}

// testDelta compares the gated delta rule with the reference.
func testDelta(p *pair) {
	const heads, n = 3, kernel.DeltaDim
	for _, c := range []struct{ held, hold int32 }{{0, 0}, {2, 0}, {0, 1}, {3, 1}} {
		what := fmt.Sprintf("%+v", c)
		of := p.mixedSequences(c.held, c.hold)
		q, k, v, out := p.random(9, heads*n), p.random(9, heads*n), p.random(9, heads*n), p.random(9, heads*n)
		gate, beta := p.floats(9, heads*n, p.normal(9*heads*n, 2)), p.floats(9, heads, p.normal(9*heads, 1))
		speed, bias := p.floats(1, heads, p.normal(heads, 1)), p.floats(1, heads*n, p.normal(heads*n, 1))
		state, kept := p.floats(3*heads*n, n, p.normal(3*heads*n*n, 0.3)), p.zeros(2*heads*n, n)
		width := kernel.HeldWidth(heads)
		held := p.floats(12, width, p.normal(12*width, 1))
		p.each(func(s side) error {
			return kernel.Do(s, kernel.DeltaArgs{Out: s.of(out), Q: s.of(q), K: s.of(k), V: s.of(v), Gate: s.of(gate),
				Beta: s.of(beta), ALog: s.of(speed), Bias: s.of(bias), State: s.of(state), Kept: s.of(kept),
				Held: s.of(held), Sequences: of.on(s), Heads: heads, Bound: -5})
		})
		p.near(what, out, 1e-4)
		p.near(what+" state", state, 1e-4)
		p.near(what+" snapshots", kept, 1e-4)
		p.near(what+" held", held, 0)
	}
}

// testGatedNorm compares the norm of heads with a gate, the mean of streams and LayerNorm with the reference.
func testGatedNorm(p *pair) {
	const rows, heads, n = 5, 3, 128
	x, gate, out := p.random(rows, heads*n), p.random(rows, heads*n), p.random(rows, heads*n)
	w, b := p.floats(1, n, p.normal(n, 1)), p.floats(1, heads*n, p.normal(heads*n, 1))
	mean, wide := p.random(rows, n), p.floats(1, heads*n, p.normal(heads*n, 1))
	p.each(func(s side) error {
		if err := kernel.Do(s, kernel.MeanStreamsArgs{Out: s.of(mean), X: s.of(x), Streams: heads}); err != nil {
			return err
		}
		return kernel.Do(s, kernel.GatedNormArgs{Out: s.of(out), X: s.of(x), Gate: s.of(gate), Weight: s.of(w),
			Heads: heads, Eps: 1e-5})
	})
	p.near("gated norm", out, 1e-5)
	p.near("mean", mean, 1e-6)
	p.each(func(s side) error {
		return kernel.Do(s, kernel.LayerNormArgs{Out: s.of(out), X: s.of(x), Weight: s.of(wide), Bias: s.of(b),
			Eps: 1e-6})
	})
	p.near("layer norm", out, 1e-5)
}

// testSpread checks that the operation lists the tokens of selected pools in ascending order, and then the tokens that
// are in no pool yet.
func testSpread(p *pair) {
	pools := p.ints(4, 2, []int32{0, 2, 1, -1, -1, -1, 0, 1})
	seen, table := p.ints(4, 1, []int32{14, 8, 3, 0}), p.ints(2, 2, []int32{3, 1, 0, 2})
	rows := p.ints(4, 1, []int32{0, 1, 1, 0})
	out, lens := p.ints(4, 11, make([]int32, 44)), p.ints(4, 1, make([]int32, 4))
	args := func(s side, n int) kernel.SpreadArgs {
		return kernel.SpreadArgs{Out: s.of(out).Slice(0, n), Lens: s.of(lens).Slice(0, n), Pools: s.of(pools).Slice(0,
			n), Seen: s.of(seen).Slice(0, n), Table: s.of(table), TableRow: s.of(rows).Slice(0, n), PageTokens: 8,
			Pool: 4}
	}
	p.each(func(s side) error { return kernel.Do(s, args(s, 3)) })
	p.exactly("places", out.dev.Slice(0, 3), []int32{24, 25, 26, 27, 8, 9, 10, 11, 12, 13, -1,
		4, 5, 6, 7, -1, -1, -1, -1, -1, -1, -1, 0, 1, 2, -1, -1, -1, -1, -1, -1, -1, -1})
	p.exactly("numbers", lens.dev.Slice(0, 3), []int32{10, 4, 3})
	offset := p.ints(3, 1, []int32{100, 0, 7})
	p.each(func(s side) error {
		a := args(s, 3)
		a.Table, a.TableRow, a.PageTokens, a.Offset = kernel.Tensor{}, kernel.Tensor{}, 0, s.of(offset)
		return kernel.Do(s, a)
	})
	p.exactly("places by offset", out.dev.Slice(0, 3), []int32{100, 101, 102, 103, 108, 109, 110, 111, 112, 113, -1,
		4, 5, 6, 7, -1, -1, -1, -1, -1, -1, -1, 7, 8, 9, -1, -1, -1, -1, -1, -1, -1, -1})
	p.exactly("numbers by offset", lens.dev.Slice(0, 3), []int32{10, 4, 3})
	if err := kernel.Do(p.dev, args(p.target(), 4)); err == nil {
		p.Error("a pool that the row sees only in part was accepted")
	}
}
