package testkit

import (
	"fmt"
	"slices"

	"sparrow/internal/testkit/testflag"
	"sparrow/kernel"
	"sparrow/layout"
)

// testSparse compares sparse attention with the reference in every layout, with missing entries, shortened lengths,
// masked rows, and NaN in every row that is not selected.
func testSparse(p *pair) { p.sparseOf(mains) }

func testNopeSparse(p *pair) { p.sparseOf(nopes) }

func (p *pair) sparseOf(kinds []layout.Kind) {
	const tokens, pages, k, rows = 7, 40, 130, 7
	lens := []int32{0, 1, 63, 64, 65, k, k}
	for _, kind := range kinds {
		for _, heads := range []int{1, 3, 16} {
			what := fmt.Sprintf("%v %d heads", kind, heads)
			poison := map[int]bool{}
			index := make([]int32, rows*k)
			for i := range index {
				index[i] = int32(p.rng.IntN(tokens * pages))
				if p.rng.IntN(9) == 0 || i/k == 6 {
					index[i] = -1
				}
			}
			for s := range tokens * pages {
				poison[s] = true
			}
			for r, n := range lens {
				for _, s := range index[r*k:][:n] {
					delete(poison, int(s))
				}
			}
			pool := p.mainPool(kind, pages, tokens, poison)
			q := p.random(rows, heads*layout.Width(kind))
			at, ln := p.ints(rows, k, index), p.ints(rows, 1, lens)
			out := p.random(rows, heads*layout.LatentDim)
			lse, top := p.floats(rows, heads, make([]float32, rows*heads)),
				p.floats(rows, heads, make([]float32, rows*heads))
			p.must(kernel.Do(p.ref, kernel.SparseArgs{Out: out.ref, LSE: lse.ref, Max: top.ref, Q: q.ref,
				Pool: pool.ref, Indices: at.ref, Lens: ln.ref, Heads: heads, Scale: 0.1}))
			p.must(kernel.Do(p.dev, kernel.SparseArgs{Out: out.dev, LSE: lse.dev, Max: top.dev, Q: q.dev,
				Pool: pool.dev, Indices: at.dev, Lens: ln.dev, Heads: heads, Scale: 0.1}))
			p.near(what, out, 2e-5)
			p.near(what+" lse", lse, 2e-5)
			p.near(what+" max", top, 2e-5)
			p.rowwise(what, out.dev, func(r int) kernel.Tensor {
				one := p.like(out.dev, 1)
				p.must(kernel.Do(p.dev, kernel.SparseArgs{Out: one, Q: q.dev.Slice(r, r+1), Pool: pool.dev,
					Indices: at.dev.Slice(r, r+1), Lens: ln.dev.Slice(r, r+1), Heads: heads, Scale: 0.1}))
				return one
			})
		}
	}
}

// testWhole compares attention over every key of three sequences whose rows are mixed in one call. Lengths are around
// the positions where devices split keys, one row has no keys, pages are in random order, and every unused page holds
// NaN.
func testWhole(p *pair) {
	const tokens, width = 64, 66
	row := []int32{0, 0, 0, 1, 1, 2, 0}
	all := []int32{511, 512, 513, 4096, 4100, 0, 1}
	order := p.rng.Perm(2 * width)
	table, poison := make([]int32, 3*width), map[int]bool{}
	for s := range 2 * width * tokens {
		poison[s] = true
	}
	for i := range width {
		table[i], table[width+i] = int32(order[i%9]), int32(order[9+i])
	}
	for i := range 9 + width {
		for s := range tokens {
			delete(poison, order[i]*tokens+s)
		}
	}
	for _, kind := range mains {
		for _, heads := range []int{1, 20} {
			if heads > 1 && kind != layout.BF16Row1152 {
				continue
			}
			lens := slices.Clone(all)
			if heads > 1 && !*testflag.Long { // one head has the longest rows
				lens[3], lens[4] = 1024, 1030
			}
			what := fmt.Sprintf("%v %d heads", kind, heads)
			pool := p.mainPool(kind, 2*width, tokens, poison)
			q, out := p.random(len(row), heads*layout.RowDim), p.random(len(row), heads*layout.LatentDim)
			pages, at, ln := p.ints(3, width, table), p.ints(len(row), 1, row), p.ints(len(row), 1, lens)
			args := func(out, q kernel.Tensor, pool kernel.Pool, pages, at, ln kernel.Tensor) kernel.LatentArgs {
				return kernel.LatentArgs{Out: out, Q: q, Pool: pool, Table: pages, TableRow: at, Lens: ln, Heads: heads,
					Scale: 0.1}
			}
			p.must(kernel.Do(p.ref, args(out.ref, q.ref, pool.ref, pages.ref, at.ref, ln.ref)))
			p.must(kernel.Do(p.dev, args(out.dev, q.dev, pool.dev, pages.dev, at.dev, ln.dev)))
			p.near(what, out, 2e-5)
			p.rowwise(what, out.dev, func(r int) kernel.Tensor {
				one := p.like(out.dev, 1)
				p.must(kernel.Do(p.dev, args(one, q.dev.Slice(r, r+1), pool.dev, pages.dev, at.dev.Slice(r, r+1),
					ln.dev.Slice(r, r+1))))
				return one
			})
		}
	}
}

// testDense compares attention over the keys of two requests, whose rows are mixed in one call. One row has no keys.
func testDense(p *pair) {
	starts := []int32{0, 0, 0, 0, 40, 40, 40, 40, 40, 40, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	lens := []int32{1, 2, 39, 40, 1, 63, 64, 65, 130, 0, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	rows, keys := len(starts), 170
	for _, d := range []kernel.LatentDims{{Heads: 2, Nope: 128, Rope: 64, V: 128, Latent: 512},
		{Heads: 1, Nope: 192, Rope: 64, V: 256, Latent: 512}} {
		q, out := p.random(rows, d.Heads*d.QK()), p.random(rows, d.Heads*d.V)
		kv, gathered := p.random(keys, d.KVB()), p.random(keys, d.Row())
		rope := gathered.columns(d.Latent, d.Row())
		start, ln := p.ints(rows, 1, starts), p.ints(rows, 1, lens)
		args := func(out, q, kv, rope, start, ln kernel.Tensor) kernel.DenseArgs {
			return kernel.DenseArgs{Out: out, Q: q, KV: kv, Rope: rope, Start: start, Lens: ln, Dims: d, Scale: 0.1}
		}
		p.must(kernel.Do(p.ref, args(out.ref, q.ref, kv.ref, rope.ref, start.ref, ln.ref)))
		p.must(kernel.Do(p.dev, args(out.dev, q.dev, kv.dev, rope.dev, start.dev, ln.dev)))
		// The reference divides zero by zero if a row has no keys; such rows are not valid arguments of prefill.
		p.near(fmt.Sprintf("%+v", d), out.slice(0, 9), 2e-5)
		p.near(fmt.Sprintf("%+v", d), out.slice(10, rows), 2e-5)
		p.rowwise(fmt.Sprintf("%+v", d), out.dev, func(r int) kernel.Tensor {
			one := p.like(out.dev, 1)
			p.must(kernel.Do(p.dev, args(one, q.dev.Slice(r, r+1), kv.dev, rope.dev, start.dev.Slice(r, r+1),
				ln.dev.Slice(r, r+1))))
			return one
		})
	}
}
