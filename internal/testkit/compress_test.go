package testkit

import (
	"fmt"
	"math"

	"sparrow/kernel"
	"sparrow/layout"
)

// testCompress compares compression of rows from this step, rows from the state and absent rows with the reference.
func testCompress(p *pair) {
	for _, c := range []struct {
		ratio   int
		overlap bool
		dim     int
	}{{4, true, 512}, {4, true, 128}, {128, false, 512}, {3, true, 5}, {1, false, 1}} {
		const rows, entries, kept = 9, 4, 6
		halves := 1
		if c.overlap {
			halves = 2
		}
		w := halves * c.dim
		values, gates := p.floats(rows, w, p.normal(rows*w, 1)), p.floats(rows, w, p.normal(rows*w, 3))
		state, ape := p.floats(kept, 2*w, p.normal(kept*2*w, 1)), p.floats(c.ratio, w, p.normal(c.ratio*w, 1))
		list := make([]int32, entries*halves*c.ratio)
		for i := range list {
			switch k := p.rng.IntN(3); {
			case k == 0 || i >= 3*halves*c.ratio:
				list[i] = -1 // the last entry has no source
			case k == 1:
				list[i] = int32(p.rng.IntN(rows))
			default:
				list[i] = int32(-2 - p.rng.IntN(kept))
			}
		}
		list[0], list[halves*c.ratio], list[2*halves*c.ratio] = 0, -2, rows-1
		sources, out := p.ints(entries, halves*c.ratio, list), p.random(entries, c.dim)
		run := func(s side, out, sources kernel.Tensor) error {
			return kernel.Do(s, kernel.CompressArgs{Out: out, Values: s.of(values), Gates: s.of(gates),
				State: s.of(state), APE: s.of(ape), Sources: sources, Ratio: c.ratio, Overlap: c.overlap})
		}
		p.each(func(s side) error { return run(s, s.of(out), s.of(sources)) })
		what := fmt.Sprintf("%+v", c)
		p.near(what, out.slice(0, 3), 1e-5)
		for i, v := range p.read(p.dev, out.dev.Slice(3, 4)) {
			if v != 0 {
				p.Fatalf("%s: channel %d of an entry without sources is %v", what, i, v)
			}
		}
		p.rowwise(what, out.dev, func(r int) kernel.Tensor {
			one := p.like(out.dev, 1)
			p.must(run(p.target(), one, sources.dev.Slice(r, r+1)))
			return one
		})
		p.movedToState(what, c.dim, values, gates, func(s side, out, state, sources kernel.Tensor) error {
			return kernel.Do(s, kernel.CompressArgs{Out: out, Values: s.of(values), Gates: s.of(gates), State: state,
				APE: s.of(ape), Sources: sources, Ratio: c.ratio, Overlap: c.overlap})
		}, halves*c.ratio)
	}
}

// movedToState checks that results are bitwise equal whether rows come from the step or from the state in which they
// were stored. Therefore chunks give the results of a whole prompt.
func (p *pair) movedToState(what string, dim int, values, gates both,
	run func(s side, out, state, sources kernel.Tensor) error, slots int) {
	p.Helper()
	rows, w := values.dev.Rows, values.dev.Cols
	state := p.zeros(rows+2, 2*w)
	to := make([]int32, rows)
	for i := range to {
		to[i] = int32(rows + 1 - i)
	}
	to[rows-1] = -1 // this row is not stored
	place := p.ints(rows, 1, to)
	p.must(p.dev.Put(kernel.PutArgs{Out: state.dev.Columns(0, w), X: values.dev, Rows: place.dev}))
	p.must(p.dev.Put(kernel.PutArgs{Out: state.dev.Columns(w, 2*w), X: gates.dev, Rows: place.dev}))
	fresh, kept := make([]int32, slots), make([]int32, slots)
	for i := range fresh {
		fresh[i] = int32(i % (rows - 1))
		if kept[i] = fresh[i]; i%2 == 0 {
			kept[i] = -2 - to[fresh[i]]
		}
	}
	a, b := p.random(1, dim), p.random(1, dim)
	p.must(run(p.target(), a.dev, state.dev, p.ints(1, slots, fresh).dev))
	p.must(run(p.target(), b.dev, state.dev, p.ints(1, slots, kept).dev))
	if string(p.readBytes(p.dev, a.dev)) != string(p.readBytes(p.dev, b.dev)) {
		p.Fatalf("%s: results with rows from the state are not bitwise equal to results with rows of the step", what)
	}
}

// testCompressVector checks the test vector of the v4 spec, 2.4: one channel, ratio 4.
func testCompressVector(p *pair) {
	var values, gates []float32
	for i := range 8 {
		values = append(values, float32(i+1), float32(10*(i+1)))
		gates = append(gates, []float32{0, .1, .2, .3}[i%4], []float32{.5, .4, .3, .2}[i%4])
	}
	ape := p.floats(4, 2, []float32{0, .2, .05, .1, .1, 0, .15, -.1})
	out := p.random(2, 1)
	sources := p.ints(2, 8, []int32{-1, -1, -1, -1, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7})
	p.must(kernel.Do(p.dev, kernel.CompressArgs{Out: out.dev, Values: p.floats(8, 2, values).dev,
		Gates: p.floats(8, 2, gates).dev, State: p.zeros(1, 4).dev, APE: ape.dev, Sources: sources.dev, Ratio: 4,
		Overlap: true}))
	for i, want := range []float64{22.527906824626182, 35.37940423877968} {
		tol := 1e-6
		if p.dev.Activation() == kernel.BF16 {
			tol = 1. / 128
		}
		if got := float64(p.read(p.dev, out.dev)[i]); math.Abs(got/want-1) > tol {
			p.Errorf("entry %d is %v, want %v", i, got, want)
		}
	}
}

// entryKinds lists the layouts of V4 entries.
var entryKinds = []layout.Kind{layout.V4Row584, layout.V4F32Row2048}

// entryPool fills a pool with random entries. Slots in poison hold NaN.
func (p *pair) entryPool(k layout.Kind, pages, entries int, poison map[int]bool) pools {
	p.Helper()
	l, err := layout.V4Of(k)
	p.must(err)
	out := p.emptyPool(k, l.PageBytes(entries), pages, entries)
	bytes := make([]byte, pages*l.PageBytes(entries))
	for s := range pages * entries {
		row := p.normal(layout.V4Dim, 1)
		if poison[s] {
			for i := range row {
				row[i] = float32(math.NaN())
			}
		}
		l.Encode(bytes[s/entries*l.PageBytes(entries):][:l.PageBytes(entries)], entries, s%entries, row)
	}
	p.must(p.ref.Write(out.ref.Mem, bytes))
	p.must(p.dev.Write(out.dev.Mem, bytes))
	return out
}

// testEntries stores entries, reads them back and compares them.
func testEntries(p *pair) {
	for _, k := range entryKinds {
		l, err := layout.V4Of(k)
		p.must(err)
		n := len(scattered)
		rows, a := p.random(n, layout.V4Dim), p.angles(n)
		norm, slots := p.floats(1, layout.V4Dim, p.normal(layout.V4Dim, 1)), p.ints(n, 1, scattered)
		pool := p.emptyPool(k, l.PageBytes(7), 5, 7)
		p.each(func(s side) error {
			return kernel.Do(s, kernel.EntryStoreArgs{Rows: s.of(rows), Norm: s.of(norm), Eps: 1e-6, Angles: s.of(a),
				Slots: s.of(slots), Pool: s.pool(pool)})
		})
		// A value at a rounding boundary may be rounded either way, so it may differ by one step of the layout's
		// precision.
		tol := 1. / 8
		if k == layout.V4F32Row2048 {
			tol = 1e-5
		}
		p.unpacked("stored "+k.String(), pool, kernel.F32, tol)
		bytes := p.entryPool(k, 5, 7, nil)
		p.unpacked("equal bytes of "+k.String(), bytes, kernel.F32, 0)
		p.unpacked("equal bytes as bf16 of "+k.String(), bytes, kernel.BF16, 0)
	}
}

// unpacked reads the scattered slots on both devices and compares them; a negative slot reads zeros. If tol is 0, bytes
// must be equal.
func (p *pair) unpacked(what string, pool pools, kind kernel.DType, tol float64) {
	p.Helper()
	n := len(scattered)
	blank := make([]float32, n*layout.V4Dim)
	for i := range blank {
		blank[i] = 7
	}
	out := both{p.on(p.ref, kind, n, layout.V4Dim, blank), p.on(p.dev, kind, n, layout.V4Dim, blank)}
	slots := p.ints(n, 1, scattered)
	p.each(func(s side) error {
		return kernel.Do(s, kernel.UnpackArgs{Out: s.of(out), Slots: s.of(slots), Pool: s.pool(pool)})
	})
	for i, s := range scattered {
		if s < 0 {
			for _, v := range p.read(p.dev, out.dev.Slice(i, i+1)) {
				if v != 0 {
					p.Fatalf("%s: a negative slot reads %v", what, v)
				}
			}
		}
	}
	if tol > 0 {
		p.near(what, out, tol)
	} else if string(p.readBytes(p.ref, out.ref)) != string(p.readBytes(p.dev, out.dev)) {
		p.Fatalf("%s: unpacked entries differ from the reference", what)
	}
}

// testKeys stores compressed indexer keys and compares them.
func testKeys(p *pair) {
	for _, k := range indexes {
		l, err := layout.IndexOf(k)
		p.must(err)
		n := len(scattered)
		keys, a := p.random(n, layout.IndexDim), p.angles(n)
		norm, slots := p.floats(1, layout.IndexDim, p.normal(layout.IndexDim, 1)), p.ints(n, 1, scattered)
		pool := p.emptyPool(k, l.PageBytes(7), 5, 7)
		p.each(func(s side) error {
			return kernel.Do(s, kernel.KeyStoreArgs{Keys: s.of(keys), Norm: s.of(norm), Eps: 1e-6, Angles: s.of(a),
				Hadamard: k != layout.IndexF32Row512, Slots: s.of(slots), Pool: s.pool(pool)})
		})
		p.sameKeys(k, pool)
	}
}
