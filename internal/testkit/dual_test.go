package testkit

import (
	"fmt"
	"math"

	"sparrow/kernel"
	"sparrow/layout"
)

// dualCase describes attention over a window and an extra stream, with missing entries and shortened lengths.
type dualCase struct {
	window, extra       pools
	windowAt, extraAt   both
	windowLen, extraLen both
	sinks, q            both
	heads               int
	rowsAt              [2][]int32 // indices of both streams, by row
}

const dualRows, dualWindow, dualExtra = 8, 130, 70

var (
	windowLens = []int32{0, 1, 63, 64, 65, 130, 128, 0}
	// The cases include an empty extra stream with a full window, and an empty window with a full extra stream.
	extraLens = []int32{0, 70, 0, 1, 64, 70, -3, 5}
)

func (p *pair) dualCase(kind layout.Kind, heads int) dualCase {
	p.Helper()
	c := dualCase{heads: heads, q: p.random(dualRows, heads*layout.V4Dim)}
	sinks := make([]float32, heads)
	for h := range sinks {
		sinks[h] = []float32{float32(math.Inf(-1)), 0, 20, -1}[h%4]
	}
	c.sinks = p.floats(1, heads, sinks)
	make := func(entries, width int, lens []int32) (pools, both, both, []int32) {
		const pages = 30
		at := make([]int32, dualRows*width)
		poison := map[int]bool{}
		for i := range at {
			if at[i] = int32(p.rng.IntN(entries * pages)); p.rng.IntN(9) == 0 || i/width == 7 {
				at[i] = -1 // so that the last row has no keys
			}
		}
		for s := range entries * pages {
			poison[s] = true
		}
		for r, n := range lens {
			for _, s := range at[r*width:][:max(n, 0)] {
				delete(poison, int(s))
			}
		}
		return p.entryPool(kind, pages, entries, poison), p.ints(dualRows, width, at), p.ints(dualRows, 1, lens), at
	}
	c.window, c.windowAt, c.windowLen, c.rowsAt[0] = make(7, dualWindow, windowLens)
	c.extra, c.extraAt, c.extraLen, c.rowsAt[1] = make(2, dualExtra, extraLens)
	return c
}

func (c *dualCase) args(s side, out, lse kernel.Tensor, extra bool) kernel.DualArgs {
	a := kernel.DualArgs{Out: out, LSE: lse, Q: s.of(c.q), Sinks: s.of(c.sinks), Heads: c.heads, Scale: 0.1,
		Window: kernel.Stream{Pool: s.pool(c.window), Indices: s.of(c.windowAt), Lens: s.of(c.windowLen)}}
	if extra {
		a.Extra = kernel.Stream{Pool: s.pool(c.extra), Indices: s.of(c.extraAt), Lens: s.of(c.extraLen)}
	}
	return a
}

// testDual compares attention in every layout, with NaN in every entry that no row reads.
func testDual(p *pair) {
	for _, kind := range entryKinds {
		for _, heads := range []int{1, 4, 16} {
			for _, extra := range []bool{true, false} {
				what := fmt.Sprintf("%v %d heads, extra stream %v", kind, heads, extra)
				c := p.dualCase(kind, heads)
				out, lse := p.random(dualRows, heads*layout.V4Dim), p.zeros(dualRows, heads)
				p.each(func(s side) error { return kernel.Do(s, c.args(s, s.of(out), s.of(lse), extra)) })
				p.near(what, out, 2e-5)
				p.near(what+" lse", lse, 2e-5)
				p.empty(what, out.dev.Slice(7, 8), lse.dev.Slice(7, 8))
				p.rowwise(what, out.dev, func(r int) kernel.Tensor {
					a := c.args(p.target(), p.like(out.dev, 1), kernel.Tensor{}, extra)
					a.Q = a.Q.Slice(r, r+1)
					for _, st := range []*kernel.Stream{&a.Window, &a.Extra} {
						if st.Given() {
							st.Indices, st.Lens = st.Indices.Slice(r, r+1), st.Lens.Slice(r, r+1)
						}
					}
					p.must(kernel.Do(p.dev, a))
					return a.Out
				})
				if extra {
					p.flatEqualsPaged(what, &c, out)
				}
			}
		}
	}
}

// empty checks that a row without keys has zeros as output and a log-sum-exp of plus infinity.
func (p *pair) empty(what string, out, lse kernel.Tensor) {
	p.Helper()
	for _, v := range p.read(p.dev, out) {
		if v != 0 {
			p.Fatalf("%s: a row without keys has the output %v", what, v)
		}
	}
	for _, v := range p.read(p.dev, lse) {
		if !math.IsInf(float64(v), 1) {
			p.Fatalf("%s: the log-sum-exp of a row without keys is %v", what, v)
		}
	}
}

// flatEqualsPaged gathers both streams into one workspace, joins the indices and attends over the workspace. The sums
// are equal, so on a device with float32 activations the results must be bitwise equal to those over pages.
func (p *pair) flatEqualsPaged(what string, c *dualCase, paged both) {
	p.Helper()
	kind := kernel.BF16
	if c.window.dev.Layout == layout.V4F32Row2048 {
		kind = kernel.F32
	}
	nw, ne := c.window.dev.Slots(), c.extra.dev.Slots()
	blank := make([]float32, (nw+ne)*layout.V4Dim)
	kv := both{p.on(p.ref, kind, nw+ne, layout.V4Dim, blank), p.on(p.dev, kind, nw+ne, layout.V4Dim, blank)}
	all := func(n int) both {
		at := make([]int32, n)
		for i := range at {
			at[i] = int32(i)
		}
		return p.ints(n, 1, at)
	}
	aw, ae := all(nw), all(ne)
	width := (dualWindow + dualExtra + 127) / 128 * 128
	rows, lens := p.ints(dualRows, width, make([]int32, dualRows*width)), p.ints(dualRows, 1, make([]int32, dualRows))
	zero, shift := make([]int32, dualRows), make([]int32, dualRows)
	for i := range shift {
		shift[i] = int32(nw)
	}
	wb, eb := p.ints(dualRows, 1, zero), p.ints(dualRows, 1, shift)
	out, lse := p.random(dualRows, c.heads*layout.V4Dim), p.zeros(dualRows, c.heads)
	p.each(func(s side) error {
		if err := kernel.Do(s, kernel.UnpackArgs{Out: s.of(kv.slice(0, nw)), Slots: s.of(aw),
			Pool: s.pool(c.window)}); err != nil {
			return err
		}
		if err := kernel.Do(s, kernel.UnpackArgs{Out: s.of(kv.slice(nw, nw+ne)), Slots: s.of(ae),
			Pool: s.pool(c.extra)}); err != nil {
			return err
		}
		if err := kernel.Do(s, kernel.CombineArgs{Out: s.of(rows), Lens: s.of(lens), Window: s.of(c.windowAt),
			WindowLens: s.of(c.windowLen), WindowBase: s.of(wb), Extra: s.of(c.extraAt), ExtraLens: s.of(c.extraLen),
			ExtraBase: s.of(eb)}); err != nil {
			return err
		}
		return kernel.Do(s, kernel.FlatArgs{Out: s.of(out), LSE: s.of(lse), Q: s.of(c.q), KV: s.of(kv),
			Indices: s.of(rows), Lens: s.of(lens), Sinks: s.of(c.sinks), Heads: c.heads, Scale: 0.1})
	})
	p.near(what+" over a workspace", out, 2e-5)
	if p.dev.Activation() == kernel.F32 &&
		string(p.readBytes(p.dev, out.dev)) != string(p.readBytes(p.dev, paged.dev)) {
		p.Fatalf("%s: results over a workspace and over pages are not bitwise equal", what)
	}
}

// testSink checks the sink by the formula: with one entry and score s, the output is the entry times 1/(1+exp(sink-s)).
func testSink(p *pair) {
	for _, sink := range []float64{math.Inf(-1), 0, 20, 200} {
		v, q := make([]float32, layout.V4Dim), make([]float32, layout.V4Dim)
		v[0], v[1], q[0] = 1, 2, 3
		kv, query := both{dev: p.on(p.dev, kernel.F32, 1, layout.V4Dim, v)}, p.activations(1, layout.V4Dim, q)
		out, lse := p.random(1, layout.V4Dim), p.zeros(1, 1)
		p.must(kernel.Do(p.dev, kernel.FlatArgs{Out: out.dev, LSE: lse.dev, Q: query.dev, KV: kv.dev,
			Indices: p.ints(1, 2, []int32{0, -1}).dev, Lens: p.ints(1, 1, []int32{2}).dev,
			Sinks: p.floats(1, 1, []float32{float32(sink)}).dev, Heads: 1, Scale: 0.5}))
		want := 1 / (1 + math.Exp(sink-1.5))
		got := p.read(p.dev, out.dev)
		tol := 1e-6
		if p.dev.Activation() == kernel.BF16 {
			tol = 1. / 128
		}
		if math.Abs(float64(got[0])-want) > tol*want+1e-40 || math.Abs(float64(got[1])-2*want) > 2*tol*want+1e-40 ||
			got[2] != 0 {
			p.Errorf("sink %v: output %v %v %v, want %v %v 0", sink, got[0], got[1], got[2], want, 2*want)
		}
		if l := p.read(p.dev, lse.dev)[0]; math.Abs(float64(l)-1.5) > 1e-6 {
			p.Errorf("sink %v: log-sum-exp %v, want 1.5, without the sink", sink, l)
		}
	}
}

// testCombine checks cases computed by hand: negative entries stay negative for any base, streams are empty, lengths
// exceed the row, and the width is up to 128.
func testCombine(p *pair) {
	window := p.ints(4, 3, []int32{5, -1, 7, 1, 2, 3, 9, 9, 9, 0, 1, 2})
	extra := p.ints(4, 2, []int32{-1, 4, 8, 9, 1, -7, 3, 3})
	out, lens := p.ints(4, 128, make([]int32, 4*128)), p.ints(4, 1, make([]int32, 4))
	args := kernel.CombineArgs{Out: out.dev, Lens: lens.dev, Window: window.dev,
		WindowLens: p.ints(4, 1, []int32{3, 0, 99, 1}).dev, WindowBase: p.ints(4, 1, []int32{0, 10, 100, 1000}).dev,
		Extra: extra.dev, ExtraLens: p.ints(4, 1, []int32{2, 1, 2, 0}).dev,
		ExtraBase: p.ints(4, 1, []int32{1 << 20, 50, 60, 70}).dev}
	want := make([]int32, 4*128)
	for i := range want {
		want[i] = -1
	}
	copy(want, []int32{5, -1, 7, -1, 4 + 1<<20})
	copy(want[128:], []int32{58})
	copy(want[256:], []int32{109, 109, 109, 61, -1})
	copy(want[384:], []int32{1000})
	p.must(kernel.Do(p.dev, args))
	p.exactly("combined", out.dev, want)
	p.exactly("combined lengths", lens.dev, []int32{5, 1, 5, 1})
	args.Extra = kernel.Tensor{}
	p.must(kernel.Do(p.dev, args))
	p.exactly("window alone", lens.dev, []int32{3, 0, 3, 1})
	p.exactly("window alone", out.dev.Slice(2, 3), append([]int32{109, 109, 109}, want[3*128+3:]...))
	args.Out = out.dev.Columns(0, 127)
	if err := kernel.Do(p.dev, args); err == nil {
		p.Error("a width that is not a multiple of 128 was accepted")
	}
}
