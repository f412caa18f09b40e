package testkit

import (
	"fmt"
	"math"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
)

func testIndexQuery(p *pair) {
	for _, heads := range []int{1, 4, 32, 64} {
		a := p.angles(3)
		v := p.normal(3*heads*layout.IndexDim, 1)
		weights := p.floats(3, heads, p.normal(3*heads, 1))
		for i, kind := range []kernel.DType{kernel.E4M3, kernel.F32, kernel.E4M3, kernel.F32, kernel.F32} {
			fp4 := i == 4
			offset, pairing, scales := 0, kernel.HalfSplit, num.ScalePow2
			if i >= 2 {
				offset, pairing, scales = layout.IndexDim-layout.RopeDim, kernel.Interleaved, num.ScaleF32
			}
			q := p.activations(3, heads*layout.IndexDim, append([]float32(nil), v...))
			out := both{p.on(p.ref, kind, 3, heads*layout.IndexDim, make([]float32, len(v))),
				p.on(p.dev, kind, 3, heads*layout.IndexDim, make([]float32, len(v)))}
			w := p.floats(3, heads, make([]float32, 3*heads))
			args := func(out, w, q, weights, a kernel.Tensor) kernel.IndexQueryArgs {
				return kernel.IndexQueryArgs{Out: out, W: w, Q: q, Weights: weights, Angles: a, Heads: heads,
					Offset: offset, Pairing: pairing, Hadamard: kind == kernel.E4M3 || fp4, Scales: scales, FP4: fp4}
			}
			p.must(kernel.Do(p.ref, args(out.ref, w.ref, q.ref, weights.ref, a.ref)))
			p.must(kernel.Do(p.dev, args(out.dev, w.dev, q.dev, weights.dev, a.dev)))
			p.near(fmt.Sprintf("weights of %d heads", heads), w, 1e-5)
			if fp4 {
				p.nearSteps(fmt.Sprintf("%d heads in four bits", heads), out)
				continue
			}
			if kind == kernel.F32 {
				p.near(fmt.Sprintf("%d heads", heads), out, 1e-5)
				continue
			}
			// A few bytes may differ by one step, because the rotation rounds differently.
			want, got, differ := p.readBytes(p.ref, out.ref), p.readBytes(p.dev, out.dev), 0
			for i := range want {
				if want[i] != got[i] {
					differ++
				}
			}
			if differ > len(want)/50 {
				p.Fatalf("%d heads: %d of %d query bytes differ from the reference", heads, differ, len(want))
			}
		}
	}
}

// testPaddedIndexQuery pads heads: real heads are bitwise equal to those without padding, padded heads are zero
// whatever the memory contained, and scores over all heads are bitwise equal to scores over the real heads.
func testPaddedIndexQuery(p *pair) {
	const heads, padded, rows, tokens = 32, 64, 3, 8 // every device can score 64 heads
	a := p.angles(rows)
	keys := p.indexPool(layout.IndexPage132, 1, tokens).dev
	v, weights := p.normal(rows*heads*layout.IndexDim, 1), p.floats(rows, heads, p.normal(rows*heads, 1)).dev
	start, lens := p.ints(rows, 1, make([]int32, rows)).dev, p.ints(rows, 1, []int32{tokens, 5, 1}).dev
	var codes, folded, scores [2][]byte
	for i, n := range []int{heads, padded} {
		rubbish := make([]float32, rows*n*layout.IndexDim)
		for j := range rubbish {
			rubbish[j] = 3
		}
		q := p.activations(rows, heads*layout.IndexDim, append([]float32(nil), v...)).dev
		out := p.on(p.dev, kernel.E4M3, rows, n*layout.IndexDim, rubbish)
		w, s := p.on(p.dev, kernel.F32, rows, n, rubbish[:rows*n]), p.zeros(rows, tokens).dev
		p.must(kernel.Do(p.dev, kernel.IndexQueryArgs{Out: out, W: w, Q: q, Weights: weights, Angles: a.dev,
			Heads: heads, Padded: n, Pairing: kernel.HalfSplit, Hadamard: true, Scales: num.ScalePow2}))
		p.must(kernel.Do(p.dev, kernel.ScoreArgs{Out: s, Q: out, W: w, Keys: keys, Start: start, Lens: lens, Heads: n}))
		scores[i] = p.readBytes(p.dev, s)
		for _, x := range []struct {
			t    kernel.Tensor
			to   *[]byte
			head int // number of columns of a head
		}{{out, &codes[i], layout.IndexDim}, {w, &folded[i], 1}} {
			*x.to = p.readBytes(p.dev, x.t.Columns(0, heads*x.head))
			for _, b := range p.readBytes(p.dev, x.t.Columns(heads*x.head, n*x.head)) {
				if b != 0 {
					p.Fatalf("the padding of %v has the byte %#x", x.t, b)
				}
			}
		}
	}
	if string(codes[0]) != string(codes[1]) || string(folded[0]) != string(folded[1]) {
		p.Error("padding changes the bits of the real heads")
	}
	if string(scores[0]) != string(scores[1]) {
		p.Error("padding changes the bits of the scores")
	}
}

// nearSteps compares values rounded to FP4. All values must be equal except a few, which may differ by one step because
// the rotation rounds differently.
func (p *pair) nearSteps(what string, out both) {
	p.Helper()
	want, got := p.read(p.ref, out.ref), p.read(p.dev, out.dev)
	differ := 0
	for i := range want {
		if want[i] == got[i] {
			continue
		}
		differ++
		if d := abs(want[i] - got[i]); d > max(abs(want[i]), abs(got[i]))*0.5 && d > 0.5 {
			p.Fatalf("%s: value %d is %v, the reference gives %v", what, i, got[i], want[i])
		}
	}
	if differ > len(want)/50 {
		p.Fatalf("%s: %d of %d values differ from the reference", what, differ, len(want))
	}
}

// testScores scores paged and gathered keys and checks that the scores are bitwise equal.
func testScores(p *pair) {
	const tokens, pages = 7, 9
	lens := []int32{0, 1, 6, 7, 8, 40, 63, -2}
	table := p.ints(2, pages, []int32{8, 6, 4, 2, 0, 1, 3, 5, 7, 0, 1, 2, 3, 4, 5, 6, 7, 8})
	row := p.ints(len(lens), 1, []int32{0, 1, 0, 1, 0, 1, 0, 1})
	ln := p.ints(len(lens), 1, lens)
	for _, k := range indexes {
		for _, heads := range []int{1, 4, 32, 64} {
			what := fmt.Sprintf("%v %d heads", k, heads)
			keys := p.indexPool(k, pages, tokens)
			kind := kernel.F32
			if k == layout.IndexPage132 {
				kind = kernel.E4M3
			}
			v := p.normal(len(lens)*heads*layout.IndexDim, 1)
			q := both{p.on(p.ref, kind, len(lens), heads*layout.IndexDim, v),
				p.on(p.dev, kind, len(lens), heads*layout.IndexDim, v)}
			w := p.floats(len(lens), heads, p.normal(len(lens)*heads, 1))
			blank := make([]float32, len(lens)*64)
			for i := range blank {
				blank[i] = -7
			}
			out := p.floats(len(lens), 64, blank)
			p.must(kernel.Do(p.ref, kernel.ScoreArgs{Out: out.ref, Q: q.ref, W: w.ref, Keys: keys.ref, Table: table.ref,
				TableRow: row.ref, Lens: ln.ref, Heads: heads, SkipUpTo: 1}))
			p.must(kernel.Do(p.dev, kernel.ScoreArgs{Out: out.dev, Q: q.dev, W: w.dev, Keys: keys.dev, Table: table.dev,
				TableRow: row.dev, Lens: ln.dev, Heads: heads, SkipUpTo: 1}))
			p.near(what, out, 1e-4)
			p.gatheredScores(what, keys, q, w, ln, out, heads)
			p.rowwise(what, out.dev.Slice(5, 7), func(r int) kernel.Tensor {
				one := p.on(p.dev, kernel.F32, 1, 64, blank[:64])
				p.must(kernel.Do(p.dev, kernel.ScoreArgs{Out: one, Q: q.dev.Slice(5+r, 6+r), W: w.dev.Slice(5+r, 6+r),
					Keys: keys.dev, Table: table.dev, TableRow: row.dev.Slice(5+r, 6+r), Lens: ln.dev.Slice(5+r, 6+r),
					Heads: heads}))
				return one
			})
		}
	}
}

// gatheredScores repeats paged scores over gathered keys on the device and compares bits.
func (p *pair) gatheredScores(what string, keys pools, q, w, lens, paged both, heads int) {
	p.Helper()
	l, err := layout.IndexOf(keys.dev.Layout)
	p.must(err)
	var slots, starts []int32
	for _, order := range [][]int32{{8, 6, 4, 2, 0, 1, 3, 5, 7}, {0, 1, 2, 3, 4, 5, 6, 7, 8}} {
		for _, page := range order {
			for s := range 7 {
				slots = append(slots, page*7+int32(s))
			}
		}
	}
	for r := range lens.dev.Rows {
		starts = append(starts, int32(r%2*63))
	}
	at, start := p.ints(len(slots), 1, slots), p.ints(len(starts), 1, starts)
	flat := p.emptyPool(keys.dev.Layout, l.PageBytes(len(slots)), 1, len(slots))
	p.must(kernel.Do(p.dev, kernel.IndexGatherArgs{Out: flat.dev, Slots: at.dev, Pool: keys.dev}))
	blank := make([]float32, lens.dev.Rows*64)
	for i := range blank {
		blank[i] = -7
	}
	out := p.on(p.dev, kernel.F32, lens.dev.Rows, 64, blank)
	p.must(kernel.Do(p.dev, kernel.ScoreArgs{Out: out, Q: q.dev, W: w.dev, Keys: flat.dev, Start: start.dev,
		Lens: lens.dev, Heads: heads, SkipUpTo: 1}))
	if string(p.readBytes(p.dev, out)) != string(p.readBytes(p.dev, paged.dev)) {
		p.Fatalf("%s: gathered and paged scores differ", what)
	}
}

func testSelect(p *pair) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	const width = 300
	for _, k := range []int{1, 4, 64, 128} {
		lens := []int32{0, -3, 1, int32(k) - 1, int32(k), int32(k) + 1, width - 1, width, width, width, width, width}
		v := make([]float32, 0, len(lens)*width)
		for r := range lens {
			row := p.normal(width, 1)
			for i := range row {
				switch {
				case r == 7 || i%5 == 0:
					row[i] = 0 // makes many ties, as ReLU does
				case r == 8 && i%3 == 0:
					row[i] = nan
				case r == 9:
					row[i] = -inf
				case r == 10 && i > 2:
					row[i] = -inf
				case r == 11 && i%7 == 0:
					row[i] = inf
				case i%11 == 0:
					row[i] = float32(math.Copysign(0, -1))
				}
			}
			v = append(v, row...)
		}
		scores, ln := p.floats(len(lens), width, v), p.ints(len(lens), 1, lens)
		out := p.ints(len(lens), k, make([]int32, len(lens)*k))
		p.must(kernel.Do(p.ref, kernel.SelectArgs{Out: out.ref, Scores: scores.ref, Lens: ln.ref}))
		p.must(kernel.Do(p.dev, kernel.SelectArgs{Out: out.dev, Scores: scores.dev, Lens: ln.dev}))
		p.same(fmt.Sprintf("best %d", k), out)
		p.values(out, scores, ln)
	}
	short := p.ints(3, 1, []int32{0, 3, 8})
	out := p.ints(3, 8, make([]int32, 24))
	p.must(kernel.Do(p.ref, kernel.SelectArgs{Out: out.ref, Lens: short.ref}))
	p.must(kernel.Do(p.dev, kernel.SelectArgs{Out: out.dev, Lens: short.dev}))
	p.same("short rows without scores", out)
}

// values checks the scores of the selected positions.
func (p *pair) values(out, scores, lens both) {
	p.Helper()
	rows, k := out.ref.Rows, out.ref.Cols
	values := p.floats(rows, k, make([]float32, rows*k))
	p.must(kernel.Do(p.ref, kernel.SelectArgs{Out: out.ref, Scores: scores.ref, Lens: lens.ref, Values: values.ref}))
	p.must(kernel.Do(p.dev, kernel.SelectArgs{Out: out.dev, Scores: scores.dev, Lens: lens.dev, Values: values.dev}))
	p.near("values", values, 0)
	chosen, got := p.readInts(p.ref, out.ref), p.read(p.ref, values.ref)
	all, seen := p.read(p.ref, scores.ref), p.readInts(p.ref, lens.ref)
	for i, at := range chosen {
		want := float32(0)
		if r := i / k; at >= 0 && int(seen[r]) > k {
			want = all[r*scores.ref.Cols+int(at)]
		}
		if got[i] != want {
			p.Fatalf("value %d of row %d is %v, want the score of position %d, %v", i%k, i/k, got[i], at, want)
		}
	}
}

func testLocate(p *pair) {
	pos := p.ints(2, 5, []int32{0, 6, 7, 20, -1, 3, -1, -1, 13, 14})
	table, row := p.ints(2, 3, []int32{5, 1, 9, 2, 0, 4}), p.ints(2, 1, []int32{1, 0})
	offset := p.ints(2, 1, []int32{100, 0})
	out := p.ints(2, 5, make([]int32, 10))
	p.must(kernel.Do(p.ref, kernel.LocateArgs{Out: out.ref, Positions: pos.ref, Table: table.ref, TableRow: row.ref,
		PageTokens: 7}))
	p.must(kernel.Do(p.dev, kernel.LocateArgs{Out: out.dev, Positions: pos.dev, Table: table.dev, TableRow: row.dev,
		PageTokens: 7}))
	p.same("paged", out)
	p.must(kernel.Do(p.ref, kernel.LocateArgs{Out: out.ref, Positions: pos.ref, Offset: offset.ref}))
	p.must(kernel.Do(p.dev, kernel.LocateArgs{Out: out.dev, Positions: pos.dev, Offset: offset.dev}))
	p.same("ragged", out)
}
