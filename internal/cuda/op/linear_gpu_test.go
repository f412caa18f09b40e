package op

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
)

// linearPass is a pass of linear attention: it has rows of several sequences in a mixed order, and each sequence has a
// slot.
type linearPass struct {
	rows, spans, snapshots both
	lens                   []int
}

// pass returns a pass with sequences of the given lengths, in slots counted down from the last. If begins is true, the
// sequences start in this pass. The state after the last row of each sequence is saved.
func (b *bench) pass(begins bool, lens ...int) linearPass {
	total := 0
	for _, n := range lens {
		total += n
	}
	var rows, spans []int32
	kept := make([]int32, total)
	for i := range kept {
		kept[i] = -1
	}
	for _, r := range b.rng.Perm(total) {
		rows = append(rows, int32(r))
	}
	at := int32(0)
	for i, n := range lens {
		begin := int32(0)
		if begins {
			begin = 1
		}
		spans = append(spans, at, int32(n), int32(len(lens)-1-i), begin, 0, 0)
		if at += int32(n); n > 0 {
			kept[rows[at-1]] = int32(i)
		}
	}
	return linearPass{b.ints(total, 1, rows), b.ints(len(lens), kernel.SpanWords, spans), b.ints(total, 1, kept), lens}
}

func (p linearPass) on(gpu bool) kernel.Sequences {
	if gpu {
		return kernel.Sequences{Rows: p.rows.gpu, Spans: p.spans.gpu, Snapshots: p.snapshots.gpu}
	}
	return kernel.Sequences{Rows: p.rows.ref, Spans: p.spans.ref, Snapshots: p.snapshots.ref}
}

// Convolutions of several sequences in one pass, with many and with few rows, have the outputs, states and snapshots of
// the reference.
func TestGPUConvolve(t *testing.T) {
	b := onGPU(t)
	for _, lens := range [][]int{{1, 1, 1, 1, 1}, {1, 40, 3, 2, 100}, {2000}} {
		const cols = 3 * 256
		n := len(lens)
		w, state, kept := b.normal(cols, 4), b.normal(n*kernel.ConvRows, cols), b.normal(n*kernel.ConvRows, cols)
		for _, begins := range []bool{true, false} {
			p := b.pass(begins, lens...)
			x, out := b.random(p.rows.ref.Rows, cols), b.random(p.rows.ref.Rows, cols)
			b.must(b.ref.Do(kernel.ConvArgs{Out: out.ref, X: x.ref, Weight: w.ref, State: state.ref,
				Kept: kept.ref, Sequences: p.on(false)}),
				b.gpu.Do(kernel.ConvArgs{Out: out.gpu, X: x.gpu, Weight: w.gpu, State: state.gpu,
					Kept: kept.gpu, Sequences: p.on(true)}))
			what := fmt.Sprintf("%v rows, beginning %v", lens, begins)
			b.near(what, out, toBF16)
			b.near(what+" state", state, 0)
			b.near(what+" snapshots", kept, 0)
		}
	}
}

// The delta rule over hundreds of rows agrees with the reference, and states and snapshots agree within float32
// rounding.
func TestGPUDelta(t *testing.T) {
	b := onGPU(t)
	const n = kernel.DeltaDim
	for _, c := range []struct {
		heads int
		lens  []int
	}{{2, []int{1, 1, 1}}, {3, []int{7, 0, 8, 9, 17}}, {1, []int{300}}} {
		w, seqs := c.heads*n, len(c.lens)
		speed, bias := b.normal(1, c.heads), b.normal(1, w)
		state, kept := b.normal(seqs*w, n), b.normal(seqs*w, n)
		for _, begins := range []bool{true, false} {
			p := b.pass(begins, c.lens...)
			rows := p.rows.ref.Rows
			q, k, v, out := b.random(rows, w), b.random(rows, w), b.random(rows, w), b.random(rows, w)
			gate, beta := b.normal(rows, w), b.normal(rows, c.heads)
			b.must(b.ref.Do(kernel.DeltaArgs{Out: out.ref, Q: q.ref, K: k.ref, V: v.ref, Gate: gate.ref,
				Beta: beta.ref, ALog: speed.ref, Bias: bias.ref, State: state.ref, Kept: kept.ref,
				Sequences: p.on(false), Heads: c.heads, Bound: -5}),
				b.gpu.Do(kernel.DeltaArgs{Out: out.gpu, Q: q.gpu, K: k.gpu, V: v.gpu, Gate: gate.gpu,
					Beta: beta.gpu, ALog: speed.gpu, Bias: bias.gpu, State: state.gpu, Kept: kept.gpu,
					Sequences: p.on(true), Heads: c.heads, Bound: -5}))
			what := fmt.Sprintf("%+v, beginning %v", c, begins)
			b.near(what, out, toBF16)
			b.near(what+" state", state, 1e-5)
			b.near(what+" snapshots", kept, 1e-5)
		}
	}
	err := b.gpu.Do(kernel.DeltaArgs{})
	if !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("without arguments: %v", err)
	}
}

// chunked is the tolerance for states of the delta rule in chunks. Operands of its products have about 16 bits.
const chunked = 2e-4

// In chunks, whole groups of rows and the rows around them agree with the reference. Sequences begin at any position,
// and one of them has nearly equal keys and no decays.
func TestGPUDeltaInChunks(t *testing.T) {
	b := onGPU(t)
	const n = kernel.DeltaDim
	for _, c := range []struct {
		heads       int
		lens, first []int32
		same        bool
	}{{2, []int32{16, 1, 15, 17}, []int32{0, 31, 16, 32}, false},
		{3, []int32{31, 32, 0, 100}, []int32{15, 5, 3, 77}, false},
		{1, []int32{600}, []int32{256}, false}, {2, []int32{64}, []int32{0}, true}} {
		w, seqs := c.heads*n, len(c.lens)
		speed, bias := b.normal(1, c.heads), b.normal(1, w)
		state, kept := b.normal(seqs*w, n), b.normal(seqs*w, n)
		first, lens := b.ints(seqs, 1, c.first), make([]int, seqs)
		for i := range lens {
			lens[i] = int(c.lens[i])
		}
		for _, begins := range []bool{true, false} {
			p := b.pass(begins, lens...)
			rows := p.rows.ref.Rows
			q, k, v, out := b.random(rows, w), b.random(rows, w), b.random(rows, w), b.random(rows, w)
			gate, beta := b.normal(rows, w), b.normal(rows, c.heads)
			if c.same {
				k = b.rounded(rows, w, func(i int) float32 {
					return float32(i%w%7-3) + float32(b.rng.NormFloat64())/50
				})
				gate = b.floats(rows, w, slices.Repeat([]float32{-50}, rows*w))
				beta = b.floats(rows, c.heads, slices.Repeat([]float32{10}, rows*c.heads))
			}
			b.must(b.ref.Do(kernel.DeltaArgs{Out: out.ref, Q: q.ref, K: k.ref, V: v.ref, Gate: gate.ref,
				Beta: beta.ref, ALog: speed.ref, Bias: bias.ref, State: state.ref, Kept: kept.ref,
				Sequences: p.on(false), Heads: c.heads, Bound: -5, Chunk: 16, First: first.ref}),
				b.gpu.Do(kernel.DeltaArgs{Out: out.gpu, Q: q.gpu, K: k.gpu, V: v.gpu, Gate: gate.gpu,
					Beta: beta.gpu, ALog: speed.gpu, Bias: bias.gpu, State: state.gpu, Kept: kept.gpu,
					Sequences: p.on(true), Heads: c.heads, Bound: -5, Chunk: 16, First: first.gpu}))
			what := fmt.Sprintf("%+v, beginning %v", c, begins)
			b.near(what, out, toBF16)
			b.near(what+" state", state, chunked)
			b.near(what+" snapshots", kept, chunked)
		}
	}
}

// The outputs and states of a sequence are bitwise equal for any division into passes, alone and with other sequences.
// In chunks, passes begin at multiples of 16 rows.
func TestGPUDeltaBitsDependOnTheSequenceAlone(t *testing.T) {
	b := onGPU(t)
	const heads, n, rows = 2, kernel.DeltaDim, 70
	const w = heads * n
	speed, bias, conv := b.normal(1, heads).gpu, b.normal(1, w).gpu, b.normal(3*w, 4).gpu
	z := b.random(rows, 3*w).gpu
	gate, beta := b.normal(rows, w).gpu, b.normal(rows, heads).gpu
	run := func(chunk int, cuts []int, beside int) (outs, states []byte) {
		state, kept := b.normal((beside+1)*w, n).gpu, b.normal(w, n).gpu
		tails, keptTails := b.normal((beside+1)*kernel.ConvRows, 3*w).gpu, b.normal(kernel.ConvRows, 3*w).gpu
		from := 0
		for _, size := range cuts {
			spans, list, none := []int32{0, int32(size), int32(beside), 0, 0, 0}, []int32(nil), []int32(nil)
			first := append([]int32{int32(from)}, make([]int32, beside)...)
			if from == 0 {
				spans[3] = 1
			}
			for i := range size {
				list = append(list, int32(i))
			}
			for j := range beside { // sequences of two rows each
				spans = append(spans, int32(size+2*j), 2, int32(j), 1, 0, 0)
				list = append(list, int32(size+2*j), int32(size+2*j+1))
			}
			for range list {
				none = append(none, -1)
			}
			of := kernel.Sequences{Rows: b.ints(len(list), 1, list).gpu, Spans: b.ints(beside+1, 6, spans).gpu,
				Snapshots: b.ints(len(list), 1, none).gpu}
			take := func(t kernel.Tensor) kernel.Tensor {
				at := slices.Clone(list)
				for i := range at {
					at[i] = (at[i] + int32(from)) % rows
				}
				out := b.place(b.gpu, t.DType, len(list), t.Cols, nil)
				b.must(b.gpu.Take(kernel.TakeArgs{Out: out, X: t, Rows: b.ints(len(at), 1, at).gpu}))
				return out
			}
			c, out := b.random(len(list), 3*w).gpu, b.random(len(list), w).gpu
			b.must(b.gpu.Do(kernel.ConvArgs{Out: c, X: take(z), Weight: conv, State: tails, Kept: keptTails,
				Sequences: of}),
				b.gpu.Do(kernel.DeltaArgs{Out: out, Q: c.Columns(0, w), K: c.Columns(w, 2*w),
					V: c.Columns(2*w, 3*w), Gate: take(gate), Beta: take(beta), ALog: speed, Bias: bias, State: state,
					Kept: kept, Sequences: of, Heads: heads, Bound: -5, Chunk: chunk,
					First: b.ints(beside+1, 1, first).gpu}))
			outs = append(outs, b.bytes(b.gpu, out.Slice(0, size))...)
			from += size
		}
		return outs, append(b.bytes(b.gpu, state.Slice(beside*w, (beside+1)*w)),
			b.bytes(b.gpu, tails.Slice(beside*kernel.ConvRows, (beside+1)*kernel.ConvRows))...)
	}
	var byRows []byte
	for _, chunk := range []int{0, 16} {
		wantOut, wantState := run(chunk, []int{rows}, 0)
		type division struct {
			cuts   []int
			beside int
		}
		list := []division{{[]int{64, 6}, 0}, {[]int{16, 48, 6}, 0}, {[]int{rows}, 3}, {[]int{48, 22}, 40}}
		if chunk == 0 {
			byRows = wantOut
			list = append(list, division{[]int{1, 2, 3, 64}, 0}, division{slices.Repeat([]int{1}, rows), 5},
				division{slices.Repeat([]int{7}, 10), 1})
		} else if bytes.Equal(wantOut, byRows) {
			t.Error("chunks have the outputs of single rows, to the bit: they were not computed in chunks")
		}
		for _, c := range list {
			out, state := run(chunk, c.cuts, c.beside)
			if !bytes.Equal(out, wantOut) || !bytes.Equal(state, wantState) {
				t.Errorf("chunk %d, passes of %v rows together with %d sequences: outputs equal %v, states equal %v",
					chunk, c.cuts, c.beside, bytes.Equal(out, wantOut), bytes.Equal(state, wantState))
			}
		}
	}
}

// Gated norms of the released widths agree with the reference, also if a warp computes several heads; the keys and
// gates of a raw row are the two halves of its float32 columns.
func TestGPUGatedNorm(t *testing.T) {
	b := onGPU(t)
	for _, c := range []struct{ rows, heads, size int }{{1, 64, 128}, {9, 3, 128}, {2, 5, 33}, {150, 64, 128},
		{1100, 64, 128}, {300, 64, 40}} {
		x, gate, out := b.random(c.rows, c.heads*c.size), b.random(c.rows, c.heads*c.size),
			b.random(c.rows, c.heads*c.size)
		w := b.normal(1, c.size)
		b.must(b.ref.Do(kernel.GatedNormArgs{Out: out.ref, X: x.ref, Gate: gate.ref, Weight: w.ref,
			Heads: c.heads, Eps: 1e-5}),
			b.gpu.Do(kernel.GatedNormArgs{Out: out.gpu, X: x.gpu, Gate: gate.gpu, Weight: w.gpu,
				Heads: c.heads, Eps: 1e-5}))
		b.near(fmt.Sprintf("%+v", c), out, toBF16)
		raw, weight, bias := b.normal(c.rows, 2*c.size), b.normal(1, c.size), b.normal(1, c.size)
		keys := both{raw.ref.Columns(0, c.size), raw.gpu.Columns(0, c.size)}
		b.must(b.ref.Do(kernel.LayerNormArgs{Out: keys.ref, X: keys.ref, Weight: weight.ref, Bias: bias.ref,
			Eps: 1e-6}),
			b.gpu.Do(kernel.LayerNormArgs{Out: keys.gpu, X: keys.gpu, Weight: weight.gpu, Bias: bias.gpu,
				Eps: 1e-6}))
		b.near(fmt.Sprintf("layer norm, %+v", c), raw, 1e-5)
		wide, mean := b.random(c.rows, 4*c.size), b.random(c.rows, c.size)
		b.must(b.ref.Do(kernel.MeanStreamsArgs{Out: mean.ref, X: wide.ref, Streams: 4}),
			b.gpu.Do(kernel.MeanStreamsArgs{Out: mean.gpu, X: wide.gpu, Streams: 4}))
		b.near(fmt.Sprintf("mean, %+v", c), mean, toBF16)
	}
}

// Spread returns the tokens of selected pools and the tokens that are in no pool yet. A pool that is not completely
// visible to a row raises a fault.
func TestGPUSpread(t *testing.T) {
	b := onGPU(t)
	const rows, k, pool, page = 9, 512, 4, 256
	pools, seen, tableRow := make([]int32, 0, rows*k), make([]int32, rows), make([]int32, rows)
	for r := range rows {
		whole := r * 97 // no pool, fewer than k pools, or more than k pools
		seen[r], tableRow[r] = int32(whole*pool+r%pool), int32(r%2)
		some := b.rng.Perm(max(whole, 1))[:min(whole, k)]
		slices.Sort(some)
		for _, p := range some {
			pools = append(pools, int32(p))
		}
		for len(pools) < (r+1)*k {
			pools = append(pools, -1)
		}
	}
	pages := make([]int32, 2*16)
	for i, p := range b.rng.Perm(len(pages)) {
		pages[i] = int32(p)
	}
	list, sees, table, at := b.ints(rows, k, pools), b.ints(rows, 1, seen), b.ints(2, 16, pages),
		b.ints(rows, 1, tableRow)
	width := k*pool + pool - 1
	out, lens := b.ints(rows, width, make([]int32, rows*width)), b.ints(rows, 1, make([]int32, rows))
	b.must(b.ref.Do(kernel.SpreadArgs{Out: out.ref, Lens: lens.ref, Pools: list.ref, Seen: sees.ref,
		Table: table.ref, TableRow: at.ref, PageTokens: page, Pool: pool}),
		b.gpu.Do(kernel.SpreadArgs{Out: out.gpu, Lens: lens.gpu, Pools: list.gpu, Seen: sees.gpu,
			Table: table.gpu, TableRow: at.gpu, PageTokens: page, Pool: pool}))
	b.same("places", out.ref, out.gpu)
	b.same("numbers", lens.ref, lens.gpu)
	offset := b.ints(rows, 1, []int32{0, 5, 1, 1 << 20, 7, 0, 3, 2, 9})
	b.must(b.ref.Do(kernel.SpreadArgs{Out: out.ref, Lens: lens.ref, Pools: list.ref, Seen: sees.ref,
		Offset: offset.ref, Pool: pool}),
		b.gpu.Do(kernel.SpreadArgs{Out: out.gpu, Lens: lens.gpu, Pools: list.gpu, Seen: sees.gpu,
			Offset: offset.gpu, Pool: pool}))
	b.same("places by offset", out.ref, out.gpu)
	b.same("numbers by offset", lens.ref, lens.gpu)
	b.must(b.gpu.Do(kernel.SpreadArgs{Out: out.gpu.Slice(0, 1), Lens: lens.gpu.Slice(0, 1),
		Pools: b.ints(1, k, slices.Repeat([]int32{0}, k)).gpu, Seen: b.ints(1, 1, []int32{3}).gpu, Table: table.gpu,
		TableRow: at.gpu.Slice(0, 1), PageTokens: page, Pool: pool}))
	if err := b.gpu.Sync(); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("a pool that is not seen whole: %v, want ErrArgument at the next sync", err)
	}
	b.must(b.gpu.Sync())
}

// Index keys and queries of a model without rotation agree with the reference.
func TestGPUIndexWithoutRotation(t *testing.T) {
	b := onGPU(t)
	n, l := len(scattered), layout.IndexFP8{}
	key, slots := b.random(n, layout.IndexDim), b.ints(n, 1, scattered)
	onRef, onGPU := b.pools(layout.IndexPage132, 3, l.PageBytes(64), 64, nil)
	b.must(b.ref.Do(kernel.KeyStoreArgs{Keys: key.ref, Hadamard: true, Slots: slots.ref, Pool: onRef}),
		b.gpu.Do(kernel.KeyStoreArgs{Keys: key.gpu, Hadamard: true, Slots: slots.gpu, Pool: onGPU}))
	b.fewDiffer("keys", onRef.Mem, onGPU.Mem)
	const heads = 32
	q, weights, w := b.random(3, heads*layout.IndexDim), b.normal(3, heads), b.normal(3, heads)
	outRef, outGPU := b.place(b.ref, kernel.E4M3, 3, heads*layout.IndexDim, nil),
		b.place(b.gpu, kernel.E4M3, 3, heads*layout.IndexDim, nil)
	b.must(b.ref.Do(kernel.IndexQueryArgs{Out: outRef, W: w.ref, Q: q.ref, Weights: weights.ref, Heads: heads,
		Pairing: kernel.Interleaved, Hadamard: true, Scales: num.ScaleF32}),
		b.gpu.Do(kernel.IndexQueryArgs{Out: outGPU, W: w.gpu, Q: q.gpu, Weights: weights.gpu, Heads: heads,
			Pairing: kernel.Interleaved, Hadamard: true, Scales: num.ScaleF32}))
	b.fewDiffer("queries", outRef, outGPU)
	b.near("weights", w, 1e-2)
	b.must(b.gpu.Sync())
}
