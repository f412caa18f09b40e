package testkit

import (
	"errors"
	"fmt"

	"sparrow/kernel"
	"sparrow/layout"
)

// testVerifyScores scores the rows of requests together (kernel.ScoreArgs.NextN) and each row separately. Both results
// must be bitwise equal and agree with the reference. Incomplete groups are refused.
func testVerifyScores(p *pair) {
	const pageTokens, pages, heads, width = 64, 4, 32, 128
	table := p.ints(2, 2, []int32{3, 1, 0, 2})
	for _, k := range indexes {
		keys := p.indexPool(k, pages, pageTokens)
		kind := kernel.F32
		if k == layout.IndexPage132 {
			kind = kernel.E4M3
		}
		for _, n := range []int{2, 3, 4} {
			what, rows := fmt.Sprintf("%v, %d rows of a request", k, n), 2*n
			var owner, lens []int32 // rows of two requests; the second request ends at the end of a block
			for r := range rows {
				owner, lens = append(owner, int32(r/n)), append(lens, int32(r/n*50+70-n+1+r%n))
			}
			row, ln := p.ints(rows, 1, owner), p.ints(rows, 1, lens)
			v := p.normal(rows*heads*layout.IndexDim, 1)
			q := both{p.on(p.ref, kind, rows, heads*layout.IndexDim, v), p.on(p.dev, kind, rows, heads*layout.IndexDim,
				v)}
			w := p.floats(rows, heads, p.normal(rows*heads, 1))
			blank := make([]float32, rows*width)
			out, split := p.floats(rows, width, blank), p.on(p.dev, kernel.F32, rows, width, blank)
			args := kernel.ScoreArgs{Out: out.dev, Q: q.dev, W: w.dev, Keys: keys.dev, Table: table.dev,
				TableRow: row.dev,
				Lens:     ln.dev, Heads: heads, SkipUpTo: 1, NextN: n}
			p.must(kernel.Do(p.ref, kernel.ScoreArgs{Out: out.ref, Q: q.ref, W: w.ref, Keys: keys.ref, Table: table.ref,
				TableRow: row.ref, Lens: ln.ref, Heads: heads, SkipUpTo: 1, NextN: n}))
			p.must(kernel.Do(p.dev, args))
			p.near(what, out, 1e-4)
			args.Out, args.NextN = split, 1
			p.must(kernel.Do(p.dev, args))
			if string(p.readBytes(p.dev, out.dev)) != string(p.readBytes(p.dev, split)) {
				p.Fatalf("%s: native and split scores differ", what)
			}
			args.NextN = rows + 1
			if err := kernel.Do(p.dev, args); !errors.Is(err, kernel.ErrArgument) {
				p.Fatalf("%s: groups of %d rows: error %v, want a refusal", what, rows+1, err)
			}
		}
	}
}
