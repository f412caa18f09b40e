package testkit

import (
	"sparrow/kernel"
	"sparrow/layout"
)

// mains lists the layouts of latent rows.
var mains = []layout.Kind{layout.BF16Row1152, layout.FP8Row656, layout.FP8Row576, layout.F32Row2304}

// indexes lists the layouts of indexer keys.
var indexes = []layout.Kind{layout.IndexPage132, layout.IndexPage68, layout.IndexF32Row512}

// scattered lists slots of a pool of 5 pages of 7 tokens. The slots are out of order and in every page, and one of them
// is padding.
var scattered = []int32{34, 0, 7, 6, -1, 13, 20, 21, 33}

// dropNegative removes padding slots, which operations that read do not accept.
func dropNegative(v []int32) []int32 {
	var out []int32
	for _, s := range v {
		if s >= 0 {
			out = append(out, s)
		}
	}
	return out
}

func testRows(p *pair) { p.rowsOf(mains) }

// nopes lists the layouts of latent rows without a rotated part.
var nopes = []layout.Kind{layout.BF16Row1024, layout.FP8Row528, layout.F32Row2048}

func testNopeRows(p *pair) { p.rowsOf(nopes) }

func (p *pair) rowsOf(kinds []layout.Kind) {
	for _, k := range kinds {
		width := layout.Width(k)
		l, err := layout.MainOf(k)
		p.must(err)
		n := len(scattered)
		kv, a := p.random(n, width), p.angles(n)
		norm := p.floats(1, layout.LatentDim, p.normal(layout.LatentDim, 1))
		slots := p.ints(n, 1, scattered)
		pool := p.emptyPool(k, l.PageBytes(7), 5, 7)
		args := func(kv, norm, a, slots kernel.Tensor, pool kernel.Pool) kernel.StoreArgs {
			return kernel.StoreArgs{KV: kv, Norm: norm, Eps: 1e-6, Angles: a, Slots: slots, Pool: pool}
		}
		p.must(kernel.Do(p.ref, args(kv.ref, norm.ref, a.ref, slots.ref, pool.ref)))
		p.must(kernel.Do(p.dev, args(kv.dev, norm.dev, a.dev, slots.dev, pool.dev)))

		read := dropNegative(scattered)
		at := p.ints(len(read), 1, read)
		for _, kind := range []kernel.DType{kernel.F32, kernel.BF16} {
			out := both{p.on(p.ref, kind, len(read), width, make([]float32, len(read)*width)),
				p.on(p.dev, kind, len(read), width, make([]float32, len(read)*width))}
			p.must(kernel.Do(p.ref, kernel.GatherArgs{Out: out.ref, Slots: at.ref, Pool: pool.ref}))
			p.must(kernel.Do(p.dev, kernel.GatherArgs{Out: out.dev, Slots: at.dev, Pool: pool.dev}))
			// A value at a rounding boundary may be rounded either way, so it may differ by one step of the layout's
			// precision.
			tol := map[layout.Kind]float64{layout.BF16Row1152: 1. / 128, layout.FP8Row656: 1. / 8,
				layout.FP8Row576: 1. / 8, layout.F32Row2304: 1e-5, layout.BF16Row1024: 1. / 128,
				layout.FP8Row528:  1. / 8,
				layout.F32Row2048: 1e-5}[k]
			if kind == kernel.BF16 {
				tol = max(tol, 1./128)
			}
			p.near("stored and gathered "+k.String(), out, tol)
			// Equal bytes on both devices must widen to exactly equal values.
			bytes := p.mainPool(k, 5, 7, nil)
			p.must(kernel.Do(p.ref, kernel.GatherArgs{Out: out.ref, Slots: at.ref, Pool: bytes.ref}))
			p.must(kernel.Do(p.dev, kernel.GatherArgs{Out: out.dev, Slots: at.dev, Pool: bytes.dev}))
			if want, got := p.readBytes(p.ref, out.ref), p.readBytes(p.dev, out.dev); string(want) != string(got) {
				p.Fatalf("%v rows gathered as %v differ from the reference", k, kind)
			}
		}
	}
}

func testIndexRows(p *pair) {
	for _, k := range indexes {
		l, err := layout.IndexOf(k)
		p.must(err)
		for _, pairing := range []kernel.Pairing{kernel.Interleaved, kernel.HalfSplit} {
			n := len(scattered)
			key, a := p.random(n, layout.IndexDim), p.angles(n)
			w, b := p.floats(1, layout.IndexDim, p.normal(layout.IndexDim, 1)),
				p.floats(1, layout.IndexDim, p.normal(layout.IndexDim, 1))
			slots := p.ints(n, 1, scattered)
			pool := p.emptyPool(k, l.PageBytes(7), 5, 7)
			quantised := k != layout.IndexF32Row512
			p.must(kernel.Do(p.ref, kernel.IndexStoreArgs{Key: key.ref, Weight: w.ref, Bias: b.ref, Eps: 1e-6,
				Angles: a.ref, Pairing: pairing, Hadamard: quantised, Slots: slots.ref, Pool: pool.ref}))
			p.must(kernel.Do(p.dev, kernel.IndexStoreArgs{Key: key.dev, Weight: w.dev, Bias: b.dev, Eps: 1e-6,
				Angles: a.dev, Pairing: pairing, Hadamard: quantised, Slots: slots.dev, Pool: pool.dev}))
			p.sameKeys(k, pool)
			p.gathered(k)
		}
	}
}

// sameKeys compares stored keys after decoding, within one step of their precision.
func (p *pair) sameKeys(k layout.Kind, pool pools) {
	p.Helper()
	l, _ := layout.IndexOf(k)
	tol := 1e-5
	switch k {
	case layout.IndexPage132:
		tol = 1. / 8
	case layout.IndexPage68:
		tol = 1. / 2 // the step from 4 to 6, and half of a scale near zero
	}
	ref, dev := p.readBytes(p.ref, pool.ref.Mem), p.readBytes(p.dev, pool.dev.Mem)
	var want, got [layout.IndexDim]float32
	for s := range pool.ref.Slots() {
		at, tokens := s/pool.ref.PageTokens*l.PageBytes(pool.ref.PageTokens), pool.ref.PageTokens
		l.Decode(want[:], ref[at:], tokens, s%tokens)
		l.Decode(got[:], dev[at:], tokens, s%tokens)
		for c := range want {
			if d := float64(want[c] - got[c]); d > tol*max(1, abs(want[c])) || -d > tol*max(1, abs(want[c])) {
				p.Fatalf("%v: key %d element %d: got %v, the reference gives %v", k, s, c, got[c], want[c])
			}
		}
	}
}

func abs(v float32) float64 { return max(float64(v), -float64(v)) }

// gathered copies keys into one page and checks that the bytes do not change.
func (p *pair) gathered(k layout.Kind) {
	p.Helper()
	l, _ := layout.IndexOf(k)
	src := p.indexPool(k, 5, 7)
	read := dropNegative(scattered)
	at := p.ints(len(read), 1, read)
	out := p.emptyPool(k, l.PageBytes(len(read)), 1, len(read))
	p.must(kernel.Do(p.ref, kernel.IndexGatherArgs{Out: out.ref, Slots: at.ref, Pool: src.ref}))
	p.must(kernel.Do(p.dev, kernel.IndexGatherArgs{Out: out.dev, Slots: at.dev, Pool: src.dev}))
	if want, got := p.readBytes(p.ref, out.ref.Mem), p.readBytes(p.dev, out.dev.Mem); string(want) != string(got) {
		p.Fatalf("gathered %v keys differ from the reference", k)
	}
}

func testConvert(p *pair) {
	in := p.mainPool(layout.FP8Row576, 5, 7, nil)
	out := p.emptyPool(layout.FP8Row656, layout.FP8Block{}.PageBytes(7), 3, 7)
	pages := p.ints(3, 1, []int32{4, 0, 2})
	p.must(kernel.Do(p.ref, kernel.ConvertArgs{Out: out.ref, In: in.ref, Pages: pages.ref}))
	p.must(kernel.Do(p.dev, kernel.ConvertArgs{Out: out.dev, In: in.dev, Pages: pages.dev}))
	if want, got := p.readBytes(p.ref, out.ref.Mem), p.readBytes(p.dev, out.dev.Mem); string(want) != string(got) {
		p.Fatal("converted pages differ from the reference")
	}
}
