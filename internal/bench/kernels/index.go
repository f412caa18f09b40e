package kernels

import (
	"fmt"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
)

const (
	scoreKeys   = 32 << 10
	indexHeads  = 64
	selectWidth = 128 << 10
	topK        = 2048
)

// selectCalled holds other names of the operation Select.
const selectCalled = "top-k topk"

func indexCases() []Case {
	var out []Case
	for _, queries := range []int{1, 64} {
		out = append(out, Case{Name: "scores fp8", Shape: scoreShape(queries), Make: func(r *Rig) *Op {
			return scores(r, queries, layout.IndexPage132)
		}}, Case{Name: "scores fp4", Shape: scoreShape(queries), Make: func(r *Rig) *Op {
			return scores(r, queries, layout.V41Index68)
		}})
	}
	out = append(out,
		Case{Name: "select", Called: selectCalled, Shape: selectShape(1), Make: func(r *Rig) *Op {
			return selectTop(r, scoreSet{rows: 1, width: selectWidth, sets: selectSets})
		}},
		Case{Name: "select many zeros", Called: selectCalled, Shape: selectShape(1), Make: func(r *Rig) *Op {
			return selectTop(r, scoreSet{rows: 1, width: selectWidth, sets: selectSets, zeros: true})
		}},
		Case{Name: "select hot", Called: selectCalled, Shape: selectShape(1), Make: func(r *Rig) *Op {
			return selectTop(r, scoreSet{rows: 1, width: selectWidth, sets: 1})
		}},
		Case{Name: "select", Called: selectCalled, Shape: fmt.Sprintf("%d of 64 rows of 8k scores", topK),
			Make: func(r *Rig) *Op { return selectTop(r, scoreSet{rows: 64, width: 8 << 10, sets: 1}) }},
		Case{Name: "index query", Shape: "512 tokens, 64 heads", Make: indexQuery},
		Case{Name: "store index", Shape: "512 tokens", Make: storeIndex},
		Case{Name: "gather index", Shape: "8k keys", Make: gatherIndex},
		Case{Name: "locate", Shape: "64 rows of 2048", Make: locate},
	)
	return out
}

func scoreShape(queries int) string {
	return fmt.Sprintf("%d queries of %d heads, %dk keys", queries, indexHeads, scoreKeys>>10)
}

func selectShape(rows int) string {
	return fmt.Sprintf("%d of %d rows of %dk scores", topK, rows, selectWidth>>10)
}

// order returns a random permutation of the numbers below n, as a function.
func (r *Rig) order(n int) func(i int) int32 {
	p := r.rng.Perm(n)
	return func(i int) int32 { return int32(p[i%n]) }
}

// scores returns an operation that computes index scores over pages in random order. The check compares the first keys
// of a row.
func scores(r *Rig, queries int, kind layout.Kind) *Op {
	const pageTokens, some = 64, 512
	keys := r.indexPool(kind, scoreKeys)
	var q kernel.Tensor
	if kind == layout.V41Index68 {
		q = r.normal(queries, indexHeads*layout.IndexDim, 60)
		layout.RoundV41Queries(host.F32(q))
	} else {
		q = r.empty(kernel.E4M3, queries, indexHeads*layout.IndexDim)
		for i, b := 0, host.Bytes(q); i < len(b); i++ {
			b[i] = num.E4M3(float32(r.rng.NormFloat64() * 60))
		}
	}
	w, out := r.normal(queries, indexHeads, 0.01), r.empty(kernel.F32, queries, scoreKeys)
	pages := scoreKeys / pageTokens
	a := kernel.ScoreArgs{Out: out, Q: q, W: w, Keys: keys, Table: r.ints(1, pages, r.order(pages)),
		TableRow: r.constant(queries, 0), Lens: r.constant(queries, scoreKeys), Heads: indexHeads}
	few := r.constant(1, some)
	return &Op{
		Run:    func(d kernel.Device) error { return kernel.Do(d, a) },
		Poison: poison(out),
		Check: all(finite(out), sampled(out.Columns(0, some), 1e-4,
			func(d kernel.Device, row int, to kernel.Tensor) error {
				b := a
				b.Out, b.Q, b.W, b.TableRow, b.Lens = to, q.Slice(row, row+1), w.Slice(row, row+1),
					a.TableRow.Slice(row, row+1), few
				return kernel.Do(d, b)
			})),
		FLOPs: 2 * float64(queries) * indexHeads * layout.IndexDim * scoreKeys, Bytes: float64(keys.Mem.Extent()),
		Memory: host.Bytes(keys.Mem),
	}
}

// finite returns a check that fails if elements of the output were not written.
func finite(t kernel.Tensor) func(kernel.Device) error {
	return func(kernel.Device) error {
		for i, v := range host.F32(t) {
			if v != v {
				return fmt.Errorf("element %d was not written, or is NaN", i)
			}
		}
		return nil
	}
}

// scoreSet holds several sets of rows of scores for a selection; each run uses the next set. In a model, a row of 128k
// scores is not in a CPU cache after 128k keys were read. With only one set it would be.
type scoreSet struct {
	rows, width, sets int
	zeros             bool // whether seven of eight scores are zero, as after ReLU
}

const selectSets = 16

func selectTop(r *Rig, c scoreSet) *Op {
	s := r.empty(kernel.F32, c.sets*c.rows, c.width)
	for i, v := 0, host.F32(s); i < len(v); i++ { // every score is random, because repeated scores would be equal
		if v[i] = float32(r.rng.NormFloat64()); c.zeros && (r.rng.IntN(8) > 0 || v[i] < 0) {
			v[i] = 0
		}
	}
	var scores turns
	for i := range c.sets {
		scores.sets = append(scores.sets, s.Slice(i*c.rows, (i+1)*c.rows))
	}
	op := rowwiseAfter(r, kernel.SelectArgs{Out: r.empty(kernel.I32, c.rows, topK), Lens: r.constant(c.rows, c.width)},
		outs{"Out": 0}, func(_ kernel.Device, a *kernel.SelectArgs, row int) error {
			a.Scores = scores.of(row)
			return nil
		})
	op.Bytes, op.Memory = 4*float64(c.rows*c.width), host.Bytes(s)
	return op
}

// indexQuery returns an operation that rotates and quantises queries. Codes may differ from the reference by one
// rounding step. The check compares the head weights, and allows a few different codes.
func indexQuery(r *Rig) *Op {
	const tokens = 512
	src := r.normal(tokens, indexHeads*layout.IndexDim, 1)
	q := r.empty(kernel.F32, tokens, indexHeads*layout.IndexDim) // every run copies q, which it may overwrite
	out, w := r.empty(kernel.E4M3, tokens, indexHeads*layout.IndexDim), r.empty(kernel.F32, tokens, indexHeads)
	weights, angles := r.normal(tokens, indexHeads, 1), r.angles(tokens)
	args := func(from, to int, out, w, q kernel.Tensor) kernel.IndexQueryArgs {
		return kernel.IndexQueryArgs{Out: out, W: w, Q: q, Weights: weights.Slice(from, to),
			Angles: angles.Slice(from, to), Heads: indexHeads, Pairing: kernel.HalfSplit, Hadamard: true,
			Scales: num.ScalePow2}
	}
	return &Op{
		Run: func(d kernel.Device) error {
			copy(host.F32(q), host.F32(src))
			return kernel.Do(d, args(0, tokens, out, w, q))
		},
		Poison: poison(out, w),
		Check: sampled(w, 1e-5, func(d kernel.Device, row int, to kernel.Tensor) error {
			raw, codes := r.empty(kernel.F32, 1, src.Cols), r.empty(kernel.E4M3, 1, src.Cols)
			copy(host.F32(raw), host.RowF32(src, row))
			if err := kernel.Do(d, args(row, row+1, codes, to, raw)); err != nil {
				return err
			}
			return sameCodes(out.Slice(row, row+1), codes)
		}),
		Bytes: float64(src.Extent()), Memory: host.Bytes(src),
	}
}

// storeIndex returns an operation that writes keys to the cache. A few codes may differ from the reference by one
// rounding step.
func storeIndex(r *Rig) *Op {
	const tokens = 512
	key, pool := r.normal(tokens, layout.IndexDim, 1), r.indexPool(layout.IndexPage132, tokens)
	a := kernel.IndexStoreArgs{Key: key, Weight: r.normal(1, layout.IndexDim, 1), Bias: r.normal(1, layout.IndexDim, 1),
		Eps: 1e-6, Angles: r.angles(tokens), Pairing: kernel.HalfSplit, Hadamard: true,
		Slots: r.ints(tokens, 1, r.order(tokens)), Pool: pool}
	return repeated(r, a, "Pool", sameCodes).reads(key)
}

// sameCodes checks that at most a few quantised bytes differ.
func sameCodes(got, want kernel.Tensor) error {
	differ, g := 0, host.Bytes(got)
	for i, c := range host.Bytes(want) {
		if c != g[i] {
			differ++
		}
	}
	if differ > len(g)/50 {
		return fmt.Errorf("%d of %d bytes differ from the reference", differ, len(g))
	}
	return nil
}

func gatherIndex(r *Rig) *Op {
	const n = 8 << 10
	pool := r.indexPool(layout.IndexPage132, 4*n)
	l := layout.IndexFP8{}
	to := kernel.Pool{Mem: r.empty(kernel.U8, 1, l.PageBytes(n)), Layout: layout.IndexPage132, PageTokens: n}
	op := repeated(r, kernel.IndexGatherArgs{Out: to, Slots: r.ints(n, 1, r.order(4*n)), Pool: pool}, "Out", equal)
	op.Bytes, op.Memory = float64(l.PageBytes(n)), host.Bytes(pool.Mem)
	return op
}

func locate(r *Rig) *Op {
	const rows, pages = 64, 512
	pos := r.ints(rows, topK, func(int) int32 { return int32(r.rng.IntN(pages * 64)) })
	return rowwise(r, kernel.LocateArgs{Out: r.empty(kernel.I32, rows, topK), Positions: pos,
		Table: r.ints(1, pages, r.order(pages)), TableRow: r.constant(rows, 0), PageTokens: 64},
		outs{"Out": 0}).reads(pos)
}
