package op

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
)

// keyPools returns two caches with the same random keys, one on the reference and one on the GPU.
func (b *bench) keyPools(pages, tokens int) (onRef, onGPU kernel.Pool) {
	l := layout.IndexFP8{}
	bytes := make([]byte, pages*l.PageBytes(tokens))
	key := make([]float32, layout.IndexDim)
	for s := range pages * tokens {
		for i := range key {
			key[i] = float32(b.rng.NormFloat64())
		}
		l.Encode(bytes[s/tokens*l.PageBytes(tokens):][:l.PageBytes(tokens)], tokens, s%tokens, key)
	}
	return b.pools(layout.IndexPage132, pages, l.PageBytes(tokens), tokens, bytes)
}

func TestGPUIndexKeys(t *testing.T) {
	b := onGPU(t)
	n, l := len(scattered), layout.IndexFP8{}
	key, a, w, bias, slots := b.random(n, layout.IndexDim), b.angles(n), b.normal(1, layout.IndexDim),
		b.normal(1, layout.IndexDim), b.ints(n, 1, scattered)
	for _, p := range []kernel.Pairing{kernel.Interleaved, kernel.HalfSplit} {
		onRef, onGPU := b.pools(layout.IndexPage132, 3, l.PageBytes(64), 64, nil)
		b.must(b.ref.Do(kernel.IndexStoreArgs{Key: key.ref, Weight: w.ref, Bias: bias.ref, Eps: 1e-6,
			Angles: a.ref, Pairing: p, Hadamard: true, Slots: slots.ref, Pool: onRef}),
			b.gpu.Do(kernel.IndexStoreArgs{Key: key.gpu, Weight: w.gpu, Bias: bias.gpu, Eps: 1e-6,
				Angles: a.gpu, Pairing: p, Hadamard: true, Slots: slots.gpu, Pool: onGPU}))
		b.fewDiffer(p.String(), onRef.Mem, onGPU.Mem)
	}
	onRef, onGPU := b.pools(layout.IndexPage132, 3, l.PageBytes(64), 64, nil)
	b.must(b.ref.Do(kernel.KeyStoreArgs{Keys: key.ref, Norm: w.ref, Eps: 1e-6, Angles: a.ref, Hadamard: true,
		Slots: slots.ref, Pool: onRef}),
		b.gpu.Do(kernel.KeyStoreArgs{Keys: key.gpu, Norm: w.gpu, Eps: 1e-6, Angles: a.gpu, Hadamard: true,
			Slots: slots.gpu, Pool: onGPU}))
	b.fewDiffer("compressed keys", onRef.Mem, onGPU.Mem)

	srcRef, srcGPU := b.keyPools(3, 64)
	read := []int32{130, 0, 63, 64, 127, 191, 1, 65}
	at := b.ints(len(read), 1, read)
	outRef, outGPU := b.pools(layout.IndexPage132, 1, l.PageBytes(12), 12, nil)
	b.must(b.ref.Do(kernel.IndexGatherArgs{Out: outRef, Slots: at.ref, Pool: srcRef}),
		b.gpu.Do(kernel.IndexGatherArgs{Out: outGPU, Slots: at.gpu, Pool: srcGPU}))
	b.same("gathered keys", outRef.Mem, outGPU.Mem)
}

func TestGPUIndexQueries(t *testing.T) {
	b := onGPU(t)
	for _, heads := range []int{1, 4, 32, 64} {
		for _, offset := range []int{0, 64} {
			q, weights, a := b.random(3, heads*layout.IndexDim), b.normal(3, heads), b.angles(3)
			w := b.normal(3, heads)
			outRef, outGPU := b.place(b.ref, kernel.E4M3, 3, heads*layout.IndexDim, nil),
				b.place(b.gpu, kernel.E4M3, 3, heads*layout.IndexDim, nil)
			pairing, scales := kernel.HalfSplit, num.ScalePow2
			if offset > 0 {
				pairing, scales = kernel.Interleaved, num.ScaleF32
			}
			b.must(b.ref.Do(kernel.IndexQueryArgs{Out: outRef, W: w.ref, Q: q.ref, Weights: weights.ref,
				Angles: a.ref, Heads: heads, Offset: offset, Pairing: pairing, Hadamard: true, Scales: scales}),
				b.gpu.Do(kernel.IndexQueryArgs{Out: outGPU, W: w.gpu, Q: q.gpu, Weights: weights.gpu,
					Angles: a.gpu, Heads: heads, Offset: offset, Pairing: pairing, Hadamard: true, Scales: scales}))
			b.fewDiffer(fmt.Sprintf("%d heads, rotated at %d", heads, offset), outRef, outGPU)
			b.near("weights", w, 1e-2)
		}
	}
}

// Scores of paged keys and of gathered keys agree with the reference and are bitwise equal to each other. Rows that are
// not longer than SkipUpTo are not written.
func TestGPUScores(t *testing.T) {
	b := onGPU(t)
	const pages, tokens = 6, 64
	lens := []int32{0, 1, 63, 64, 65, 190, 192, -2}
	rows := len(lens)
	order := []int32{5, 3, 1, 0, 2, 4}
	table, tableRow, ln := b.ints(2, 3, order), b.ints(rows, 1, []int32{0, 0, 1, 1, 0, 0, 1, 1}), b.ints(rows, 1, lens)
	starts := make([]int32, rows)
	for i := range starts {
		starts[i] = int32(i / 2 % 2 * 3 * tokens)
	}
	var slots []int32
	for _, p := range order {
		for s := range int32(tokens) {
			slots = append(slots, p*tokens+s)
		}
	}
	start, at := b.ints(rows, 1, starts), b.ints(len(slots), 1, slots)
	for _, heads := range []int{32, 64} {
		keysRef, keysGPU := b.keyPools(pages, tokens)
		codes := make([]byte, rows*heads*layout.IndexDim)
		for i := range codes {
			codes[i] = num.E4M3(float32(b.rng.NormFloat64()))
		}
		qRef, qGPU := b.place(b.ref, kernel.E4M3, rows, heads*layout.IndexDim, codes),
			b.place(b.gpu, kernel.E4M3, rows, heads*layout.IndexDim, codes)
		w := b.normal(rows, heads)
		for _, nextN := range []int{1, 2, 4} {
			blank := make([]float32, rows*200)
			for i := range blank {
				blank[i] = -7
			}
			out := b.floats(rows, 200, blank)
			b.must(b.ref.Do(kernel.ScoreArgs{Out: out.ref, Q: qRef, W: w.ref, Keys: keysRef, Table: table.ref,
				TableRow: tableRow.ref, Lens: ln.ref, Heads: heads, SkipUpTo: 1}))
			if nextN <= 2 { // with groups of 4, neighbouring rows belong to different requests
				b.must(b.gpu.Do(kernel.ScoreArgs{Out: out.gpu, Q: qGPU, W: w.gpu, Keys: keysGPU, Table: table.gpu,
					TableRow: tableRow.gpu, Lens: ln.gpu, Heads: heads, SkipUpTo: 1, NextN: nextN}))
			} else {
				flat := kernel.Pool{Mem: b.place(b.gpu, kernel.U8, 1, layout.IndexFP8{}.PageBytes(len(slots)), nil),
					Layout: layout.IndexPage132, PageTokens: len(slots)}
				b.must(b.gpu.Do(kernel.IndexGatherArgs{Out: flat, Slots: at.gpu, Pool: keysGPU}))
				b.must(b.gpu.Do(kernel.ScoreArgs{Out: out.gpu, Q: qGPU, W: w.gpu, Keys: flat, Start: start.gpu,
					Lens: ln.gpu, Heads: heads, SkipUpTo: 1}))
			}
			// The tensor cores add FP8 products with a precision of about 14 bits.
			b.near(fmt.Sprintf("%d heads, groups of %d", heads, nextN), out, 3e-2)
		}
	}
	err := b.gpu.Do(kernel.ScoreArgs{Out: b.normal(1, 4).gpu, Q: b.place(b.gpu, kernel.E4M3, 1, 16*128, nil),
		W: b.normal(1, 16).gpu, Keys: func() kernel.Pool { _, p := b.keyPools(1, 64); return p }(),
		Table: b.ints(1, 1, []int32{0}).gpu, TableRow: b.ints(1, 1, []int32{0}).gpu, Lens: b.ints(1, 1, []int32{4}).gpu,
		Heads: 16})
	if !errors.Is(err, kernel.ErrUnsupported) {
		t.Errorf("16 heads: %v, want ErrUnsupported", err)
	}
}

func TestGPUSelectAndLocate(t *testing.T) {
	b := onGPU(t)
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	const width = 300
	for _, k := range []int{1, 4, 64, 128} {
		n := int32(k)
		lens := []int32{0, -3, 1, n - 1, n, n + 1, width - 1, width, width, width, width, width}
		v := make([]float32, 0, len(lens)*width)
		for r := range lens {
			for i := range width {
				x := float32(b.rng.NormFloat64())
				switch {
				case r == 7 || i%5 == 0:
					x = 0
				case r == 8 && i%3 == 0:
					x = nan
				case r == 9, r == 10 && i > 2:
					x = -inf
				case r == 11 && i%7 == 0:
					x = inf
				}
				v = append(v, x)
			}
		}
		scores, ln, out := b.floats(len(lens), width, v), b.ints(len(lens), 1, lens),
			b.ints(len(lens), k, make([]int32, len(lens)*k))
		b.must(b.ref.Do(kernel.SelectArgs{Out: out.ref, Scores: scores.ref, Lens: ln.ref}),
			b.gpu.Do(kernel.SelectArgs{Out: out.gpu, Scores: scores.gpu, Lens: ln.gpu}))
		b.same(fmt.Sprintf("best %d", k), out.ref, out.gpu)
		pages := make([]int32, 2*5)
		for i := range pages {
			pages[i] = int32(b.rng.IntN(1000))
		}
		table, rows, offset := b.ints(2, 5, pages), b.ints(len(lens), 1, []int32{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}),
			b.ints(len(lens), 1, []int32{0, 1, 20, 300, 0, 1, 20, 300, 0, 1, 20, 300})
		placed := b.ints(len(lens), k, make([]int32, len(lens)*k))
		b.must(b.ref.Do(kernel.LocateArgs{Out: placed.ref, Positions: out.ref, Table: table.ref, TableRow: rows.ref,
			PageTokens: 64}),
			b.gpu.Do(kernel.LocateArgs{Out: placed.gpu, Positions: out.gpu, Table: table.gpu, TableRow: rows.gpu,
				PageTokens: 64}))
		b.same("paged", placed.ref, placed.gpu)
		b.must(b.ref.Do(kernel.LocateArgs{Out: out.ref, Positions: out.ref, Offset: offset.ref}),
			b.gpu.Do(kernel.LocateArgs{Out: out.gpu, Positions: out.gpu, Offset: offset.gpu}))
		b.same("ragged, in place", out.ref, out.gpu)
	}
	short, out := b.ints(3, 1, []int32{0, 3, 8}), b.ints(3, 8, make([]int32, 24))
	b.must(b.ref.Do(kernel.SelectArgs{Out: out.ref, Lens: short.ref}),
		b.gpu.Do(kernel.SelectArgs{Out: out.gpu, Lens: short.gpu}))
	b.same("short rows without scores", out.ref, out.gpu)
}

func TestGPUCombine(t *testing.T) {
	b := onGPU(t)
	window, extra := b.ints(4, 3, []int32{5, -1, 7, 1, 2, 3, 9, 9, 9, 0, 1, 2}),
		b.ints(4, 2, []int32{-1, 4, 8, 9, 1, -7, 3, 3})
	wl, wb := b.ints(4, 1, []int32{3, 0, 99, 1}), b.ints(4, 1, []int32{0, 10, 100, 1000})
	el, eb := b.ints(4, 1, []int32{2, 1, 2, 0}), b.ints(4, 1, []int32{1 << 20, 50, 60, 70})
	for _, withExtra := range []bool{true, false} {
		out, lens := b.ints(4, 256, make([]int32, 4*256)), b.ints(4, 1, make([]int32, 4))
		onRef := kernel.CombineArgs{Out: out.ref, Lens: lens.ref, Window: window.ref, WindowLens: wl.ref,
			WindowBase: wb.ref}
		onGPU := kernel.CombineArgs{Out: out.gpu, Lens: lens.gpu, Window: window.gpu, WindowLens: wl.gpu,
			WindowBase: wb.gpu}
		if withExtra {
			onRef.Extra, onRef.ExtraLens, onRef.ExtraBase = extra.ref, el.ref, eb.ref
			onGPU.Extra, onGPU.ExtraLens, onGPU.ExtraBase = extra.gpu, el.gpu, eb.gpu
		}
		b.must(b.ref.Do(onRef), b.gpu.Do(onGPU))
		b.same("combined", out.ref, out.gpu)
		b.same("lengths", lens.ref, lens.gpu)
	}
}
