package testkit

import (
	"errors"
	"fmt"
	"math"

	"sparrow/kernel"
	"sparrow/layout"
)

func testRoute(p *pair) {
	for _, c := range []struct{ experts, topk, groups, keep int }{{8, 2, 4, 2}, {8, 2, 1, 1}, {256, 8, 8, 4},
		{6, 3, 6, 4}, {5, 5, 1, 1}} {
		for _, ties := range []bool{false, true} {
			logits, bias := p.normal(9*c.experts, 1), p.normal(c.experts, 0.3)
			if ties {
				for i := range logits {
					logits[i] = float32(p.rng.IntN(3))
				}
				clear(bias)
			} else {
				for i := range bias {
					bias[i] -= 2 // some biased scores are negative: the score of a dropped group must not be zero
				}
			}
			l, b := p.floats(9, c.experts, logits), p.floats(1, c.experts, bias)
			ids, w := p.ints(9, c.topk, make([]int32, 9*c.topk)), p.floats(9, c.topk, make([]float32, 9*c.topk))
			for _, norm := range []bool{false, true} {
				what := fmt.Sprintf("%+v ties %v normalised %v", c, ties, norm)
				p.must(kernel.Do(p.ref, kernel.RouteArgs{IDs: ids.ref, Weights: w.ref, Logits: l.ref, Bias: b.ref,
					Groups: c.groups, KeepGroups: c.keep, Normalize: norm, Scale: 2.5}))
				p.must(kernel.Do(p.dev, kernel.RouteArgs{IDs: ids.dev, Weights: w.dev, Logits: l.dev, Bias: b.dev,
					Groups: c.groups, KeepGroups: c.keep, Normalize: norm, Scale: 2.5}))
				p.same(what, ids)
				p.near(what, w, 1e-5)
			}
			p.routesNaN(fmt.Sprintf("%+v ties %v", c, ties), logits, kernel.RouteArgs{IDs: ids.dev, Weights: w.dev,
				Bias: b.dev, Groups: c.groups, KeepGroups: c.keep, Scale: 2.5})
		}
	}
}

// routesNaN makes a row of logits NaN. The expert ids of that row must be valid, its weights must be NaN, and the
// results of the other rows must not change.
func (p *pair) routesNaN(what string, logits []float32, a kernel.RouteArgs) {
	p.Helper()
	const row = 3
	run := func() (ids []int32, weights []float32) {
		a.Logits = p.floats(a.IDs.Rows, len(logits)/a.IDs.Rows, logits).dev
		p.must(kernel.Do(p.dev, a))
		return p.readInts(p.dev, a.IDs), p.read(p.dev, a.Weights)
	}
	ids, weights := run()
	experts, k := len(logits)/a.IDs.Rows, a.IDs.Cols
	for e := range experts {
		logits[row*experts+e] = float32(math.NaN())
	}
	gotIDs, got := run()
	for i := range got {
		switch {
		case i/k != row && (got[i] != weights[i] || gotIDs[i] != ids[i]):
			p.Fatalf("%s: with a row of NaN in the batch, row %d has a changed expert or weight %d", what, i/k, i%k)
		case i/k == row && (got[i] == got[i] || gotIDs[i] < 0 || int(gotIDs[i]) >= experts):
			p.Fatalf("%s: a row of NaN has expert %v with weight %v", what, gotIDs[i], got[i])
		}
	}
}

func testExperts(p *pair) {
	const experts, hidden, inner, rows, k = 5, 96, 70, 9, 2
	for _, kind := range []kernel.DType{kernel.BF16, kernel.E4M3} {
		var r, d kernel.ExpertArgs
		var gate, up, down []weights
		for range experts {
			gate = append(gate, p.weight(kind, inner, hidden))
			up = append(up, p.weight(kind, inner, hidden))
			down = append(down, p.weight(kind, hidden, inner))
		}
		r.Experts, d.Experts = p.experts(gate, up, down)
		choice := make([]int32, rows*k)
		for i := range choice {
			choice[i] = int32(p.rng.IntN(experts - 1)) // the last expert is never chosen
		}
		x, out := p.random(rows, hidden), p.random(rows, hidden)
		ids, w := p.ints(rows, k, choice), p.floats(rows, k, p.normal(rows*k, 1))
		before := p.read(p.dev, out.dev)
		r.Out, r.X, r.IDs, r.Weights = out.ref, x.ref, ids.ref, w.ref
		d.Out, d.X, d.IDs, d.Weights = out.dev, x.dev, ids.dev, w.dev
		p.must(kernel.Do(p.ref, r))
		p.must(kernel.Do(p.dev, d))
		p.near(kind.String(), out, 1e-4)
		p.rowwise(kind.String(), out.dev, func(row int) kernel.Tensor {
			one := d
			one.Out = p.on(p.dev, out.dev.DType, 1, hidden, before[row*hidden:(row+1)*hidden])
			one.X, one.IDs, one.Weights = x.dev.Slice(row, row+1), ids.dev.Slice(row, row+1), w.dev.Slice(row, row+1)
			p.must(kernel.Do(p.dev, one))
			return one.Out
		})
	}
}

// foreign is a matrix handle that no device has prepared.
type foreign struct{ out, in int }

func (f foreign) Out() int        { return f.out }
func (f foreign) In() int         { return f.in }
func (foreign) Role() kernel.Role { return kernel.Projected }

// testRefusals passes invalid arguments and checks that each is refused with an error that names it, without a read out
// of bounds.
func testRefusals(p *pair) {
	x := p.random(2, 8)
	i1 := p.ints(2, 1, []int32{0, 99})
	w, looked := p.weight(kernel.BF16, 4, 8), p.weightFor(kernel.LookedUp, kernel.BF16, 4, 8)
	_, some := p.experts([]weights{w}, []weights{w}, []weights{p.weight(kernel.BF16, 8, 4)})
	pool := p.mainPool(layout.BF16Row1152, 1, 7, nil)
	index := p.indexPool(layout.IndexPage132, 1, 7)
	rows := p.random(2, layout.RowDim)
	q := p.random(2, layout.RowDim)
	out := p.random(2, layout.LatentDim)
	q8 := p.on(p.dev, kernel.E4M3, 2, layout.IndexDim, make([]float32, 2*layout.IndexDim))
	f := p.floats(2, 1, make([]float32, 2))
	wide := p.floats(2, 200, make([]float32, 400))
	table := p.ints(1, 2, []int32{0, 5})
	zero := p.ints(2, 1, []int32{0, 0})
	sparse := func(slot int32) error {
		return kernel.Do(p.dev, kernel.SparseArgs{Out: out.dev, Q: q.dev, Pool: pool.dev,
			Indices: p.ints(2, 1, []int32{0, slot}).dev, Lens: p.ints(2, 1, []int32{1, 1}).dev, Heads: 1, Scale: 1})
	}
	p.must(sparse(int32(pool.dev.Slots() - 1)))
	cases := map[string]error{
		"multiply: inner sizes differ": kernel.Do(p.dev, kernel.MultiplyArgs{Out: x.dev, X: x.dev.Columns(0, 7),
			W: w.dev}),
		"multiply: missing out": kernel.Do(p.dev, kernel.MultiplyArgs{X: x.dev, W: w.dev}),
		"project: no weight":    kernel.Do(p.dev, kernel.ProjectArgs{X: x.dev}),
		"project: inner sizes differ": kernel.Do(p.dev, kernel.ProjectArgs{X: x.dev.Columns(0, 7),
			To: []kernel.Projection{{Out: x.dev.Columns(0, 4), W: w.dev}}}),
		"project: second out missing": kernel.Do(p.dev, kernel.ProjectArgs{X: x.dev,
			To: []kernel.Projection{{Out: p.random(2, 4).dev, W: w.dev}, {W: w.dev}}}),
		"embed: token beyond vocabulary": kernel.Do(p.dev, kernel.EmbedArgs{Out: x.dev, Table: looked.dev,
			IDs: i1.dev}),
		"embed: a matrix of products": kernel.Do(p.dev, kernel.EmbedArgs{Out: x.dev, Table: w.dev, IDs: zero.dev}),
		"multiply: a table":           kernel.Do(p.dev, kernel.MultiplyArgs{Out: x.dev, X: x.dev, W: looked.dev}),
		"multiply: of another device": kernel.Do(p.dev, kernel.MultiplyArgs{Out: p.random(2, 4).dev, X: x.dev,
			W: foreign{4, 8}}),
		"experts: none": kernel.Do(p.dev, kernel.ExpertArgs{Out: x.dev, X: x.dev, IDs: zero.dev,
			Weights: f.dev}),
		"experts: of another width": kernel.Do(p.dev, kernel.ExpertArgs{Out: rows.dev, X: rows.dev, IDs: zero.dev,
			Weights: f.dev, Experts: some}),
		"take: row beyond x": p.dev.Take(kernel.TakeArgs{Out: x.dev, X: x.dev, Rows: i1.dev}),
		"gather: slot beyond pool": kernel.Do(p.dev, kernel.GatherArgs{Out: rows.dev, Slots: i1.dev,
			Pool: pool.dev}),
		"gather index: wrong layout": kernel.Do(p.dev, kernel.IndexGatherArgs{Out: pool.dev, Slots: i1.dev,
			Pool: index.dev}),
		"sparse: slot beyond pool": kernel.Do(p.dev, kernel.SparseArgs{Out: out.dev, Q: q.dev, Pool: pool.dev,
			Indices: i1.dev, Lens: p.ints(2, 1, []int32{1, 1}).dev, Heads: 1, Scale: 1}),
		"sparse: first slot beyond pool": sparse(int32(pool.dev.Slots())),
		"scores: page beyond pool": kernel.Do(p.dev, kernel.ScoreArgs{Out: wide.dev, Q: q8, W: f.dev,
			Keys: index.dev, Table: table.dev, TableRow: zero.dev, Lens: p.ints(2, 1, []int32{14, 1}).dev, Heads: 1}),
		"scores: more keys than columns": kernel.Do(p.dev, kernel.ScoreArgs{Out: wide.dev, Q: q8, W: f.dev,
			Keys: index.dev, Table: table.dev, TableRow: zero.dev, Lens: p.ints(2, 1, []int32{999, 1}).dev, Heads: 1}),
		"select: long row without scores": kernel.Do(p.dev, kernel.SelectArgs{Out: p.ints(2, 1, []int32{0, 0}).dev,
			Lens: p.ints(2, 1, []int32{5, 5}).dev}),
		"route: groups do not divide": kernel.Do(p.dev, kernel.RouteArgs{IDs: zero.dev, Weights: f.dev,
			Logits: wide.dev, Bias: wide.dev, Groups: 3, KeepGroups: 1}),
		"rotate: beyond the head": kernel.Do(p.dev, kernel.RotateArgs{X: x.dev, Angles: p.angles(2).dev, Heads: 1,
			HeadDim: 8, Pairing: kernel.Interleaved}),
		"convert: not raw to block": kernel.Do(p.dev, kernel.ConvertArgs{Out: pool.dev, In: pool.dev,
			Pages: zero.dev}),
	}
	for name, err := range cases {
		if !errors.Is(err, kernel.ErrArgument) && !errors.Is(err, kernel.ErrUnsupported) {
			p.Errorf("%s: got error %v, want one that wraps ErrArgument or ErrUnsupported", name, err)
		}
	}
}
