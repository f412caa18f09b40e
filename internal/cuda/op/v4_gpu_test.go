package op

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
)

// Operations on residual streams agree with the reference for the widths of DeepSeek-V4 and for odd widths.
func TestGPUHyper(t *testing.T) {
	b := onGPU(t)
	for _, c := range []struct{ rows, n, hidden int }{{1, 4, 4096}, {9, 4, 7168}, {3, 4, 2056}, {5, 5, 24},
		{2, 16, 9}} {
		what, w := fmt.Sprintf("%+v", c), c.n*(2+c.n)
		x, mix, base, scale := b.random(c.rows, c.n*c.hidden), b.normal(c.rows, w), b.normal(1, w), b.normal(1, 3)
		out, post, comb := b.random(c.rows, c.hidden), b.normal(c.rows, c.n), b.normal(c.rows, c.n*c.n)
		b.must(b.ref.Do(kernel.HyperPreArgs{Out: out.ref, Post: post.ref, Comb: comb.ref, X: x.ref, Mix: mix.ref,
			Base: base.ref, Scale: scale.ref, Streams: c.n, Rounds: 20, NormEps: 1e-6, Eps: 1e-6}),
			b.gpu.Do(kernel.HyperPreArgs{Out: out.gpu, Post: post.gpu, Comb: comb.gpu, X: x.gpu, Mix: mix.gpu,
				Base: base.gpu, Scale: scale.gpu, Streams: c.n, Rounds: 20, NormEps: 1e-6, Eps: 1e-6}))
		b.near(what+" mixture", out, 1./128)
		b.near(what+" post", post, 1e-5)
		b.near(what+" comb", comb, 1e-5)
		sub := b.random(c.rows, c.hidden)
		b.must(b.ref.Do(kernel.HyperPostArgs{X: x.ref, Sub: sub.ref, Post: post.ref, Comb: comb.ref,
			Streams: c.n}),
			b.gpu.Do(kernel.HyperPostArgs{X: x.gpu, Sub: sub.gpu, Post: post.gpu, Comb: comb.gpu,
				Streams: c.n}))
		b.near(what+" streams", x, 1./128)
	}
}

func TestGPUHeadNorm(t *testing.T) {
	b := onGPU(t)
	for _, c := range []struct{ rows, heads, size int }{{1, 64, 512}, {7, 3, 512}, {3, 5, 33}, {2, 1, 1}} {
		x := b.random(c.rows, c.heads*c.size)
		b.must(b.ref.Do(kernel.HeadNormArgs{X: x.ref, Heads: c.heads, Eps: 1e-6}),
			b.gpu.Do(kernel.HeadNormArgs{X: x.gpu, Heads: c.heads, Eps: 1e-6}))
		b.near(fmt.Sprintf("%+v", c), x, 1./128)
	}
}

// Put writes rows to positions of tensors of every type, including column views. Negative positions write nothing;
// positions beyond the end raise a fault.
func TestGPUPut(t *testing.T) {
	b := onGPU(t)
	places := []int32{5, -1, 0, 7, 3}
	for _, cols := range []int{1, 24, 33, 2048} {
		rows := b.ints(len(places), 1, places)
		put := func(what string, out, x both) {
			t.Helper()
			b.must(b.ref.Put(kernel.PutArgs{Out: out.ref, X: x.ref, Rows: rows.ref}),
				b.gpu.Put(kernel.PutArgs{Out: out.gpu, X: x.gpu, Rows: rows.gpu}))
			b.near(fmt.Sprintf("%s, %d columns", what, cols), out, 0)
		}
		put("bf16", b.random(8, cols), b.random(len(places), cols))
		put("f32", b.normal(8, cols), b.normal(len(places), cols))
		put("bf16 to f32", b.normal(8, cols), b.random(len(places), cols))
		wide := b.normal(8, 2*cols)
		x := b.normal(len(places), cols)
		for _, from := range []int{0, cols} {
			b.must(b.ref.Put(kernel.PutArgs{Out: wide.ref.Columns(from, from+cols), X: x.ref, Rows: rows.ref}),
				b.gpu.Put(kernel.PutArgs{Out: wide.gpu.Columns(from, from+cols), X: x.gpu, Rows: rows.gpu}))
		}
		b.same(fmt.Sprintf("halves of %d columns", cols), wide.ref, wide.gpu)
	}
	beyond := b.ints(1, 1, []int32{8}).gpu
	b.must(b.gpu.Put(kernel.PutArgs{Out: b.random(8, 4).gpu, X: b.random(1, 4).gpu, Rows: beyond}))
	if err := b.gpu.Sync(); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("place 8 of 8: %v, want ErrArgument at the next sync", err)
	}
	b.must(b.gpu.Sync())
}

// The compressors of DeepSeek-V4 agree with the reference: overlapping groups of 4 with 512 and 128 channels, and
// groups of 128, whose source rows are in this pass, in the state, or missing.
func TestGPUCompress(t *testing.T) {
	b := onGPU(t)
	for _, c := range []struct {
		entries, ratio, dim int
		overlap             bool
	}{{1, 4, 512, true}, {33, 4, 128, true}, {5, 128, 512, false}, {2, 7, 77, true}} {
		const rows, kept = 40, 19
		halves := 1
		if c.overlap {
			halves = 2
		}
		w, slots := halves*c.dim, halves*c.ratio
		values, gates, state, ape := b.normal(rows, w), b.normal(rows, w), b.normal(kept, 2*w), b.normal(c.ratio, w)
		list := make([]int32, c.entries*slots)
		for i := range list {
			list[i] = int32(b.rng.IntN(rows+kept+1) - kept - 1)
		}
		sources, out := b.ints(c.entries, slots, list), b.random(c.entries, c.dim)
		b.must(b.ref.Do(kernel.CompressArgs{Out: out.ref, Values: values.ref, Gates: gates.ref, State: state.ref,
			APE: ape.ref, Sources: sources.ref, Ratio: c.ratio, Overlap: c.overlap}),
			b.gpu.Do(kernel.CompressArgs{Out: out.gpu, Values: values.gpu, Gates: gates.gpu, State: state.gpu,
				APE: ape.gpu, Sources: sources.gpu, Ratio: c.ratio, Overlap: c.overlap}))
		b.near(fmt.Sprintf("%+v", c), out, 1./128)
		for _, source := range []int32{rows, -2 - kept} {
			list[0] = source
			b.must(b.gpu.Do(kernel.CompressArgs{Out: out.gpu, Values: values.gpu, Gates: gates.gpu,
				State: state.gpu, APE: ape.gpu, Sources: b.ints(c.entries, slots, list).gpu, Ratio: c.ratio,
				Overlap: c.overlap}))
			if err := b.gpu.Sync(); !errors.Is(err, kernel.ErrArgument) {
				t.Errorf("source %d: %v, want ErrArgument at the next sync", source, err)
			}
		}
		b.must(b.gpu.Sync())
	}
}

// The routers of DeepSeek-V4, by score and by token, agree with the reference.
func TestGPURouteRoot(t *testing.T) {
	b := onGPU(t)
	for _, c := range []struct{ rows, experts, topk int }{{1, 256, 6}, {77, 384, 6}, {9, 8, 2}, {3, 1, 1}} {
		const vocabulary = 50
		logits, bias := b.normal(c.rows, c.experts), b.normal(1, c.experts)
		ids, w := b.ints(c.rows, c.topk, make([]int32, c.rows*c.topk)), b.normal(c.rows, c.topk)
		b.must(b.ref.Do(kernel.RootRouteArgs{IDs: ids.ref, Weights: w.ref, Logits: logits.ref, Bias: bias.ref,
			Scale: 2.5}),
			b.gpu.Do(kernel.RootRouteArgs{IDs: ids.gpu, Weights: w.gpu, Logits: logits.gpu, Bias: bias.gpu,
				Scale: 2.5}))
		b.same(fmt.Sprintf("%+v ids", c), ids.ref, ids.gpu)
		b.near(fmt.Sprintf("%+v weights", c), w, 1e-6)
		list, said := make([]int32, vocabulary*c.topk), make([]int32, c.rows)
		for i := range list {
			list[i] = int32(b.rng.IntN(c.experts))
		}
		for i := range said {
			said[i] = int32(b.rng.IntN(vocabulary))
		}
		table, tokens := b.ints(vocabulary, c.topk, list), b.ints(c.rows, 1, said)
		b.must(b.ref.Do(kernel.HashRouteArgs{IDs: ids.ref, Weights: w.ref, Logits: logits.ref, Table: table.ref,
			Tokens: tokens.ref, Scale: 2.5}),
			b.gpu.Do(kernel.HashRouteArgs{IDs: ids.gpu, Weights: w.gpu, Logits: logits.gpu, Table: table.gpu,
				Tokens: tokens.gpu, Scale: 2.5}))
		b.same(fmt.Sprintf("%+v ids by token", c), ids.ref, ids.gpu)
		b.near(fmt.Sprintf("%+v weights by token", c), w, 1e-6)
		b.must(b.gpu.Do(kernel.HashRouteArgs{IDs: ids.gpu, Weights: w.gpu, Logits: logits.gpu, Table: table.gpu,
			Tokens: b.ints(c.rows, 1, append(make([]int32, c.rows-1), vocabulary)).gpu, Scale: 2.5}))
		if err := b.gpu.Sync(); !errors.Is(err, kernel.ErrArgument) {
			t.Errorf("token %d of %d: %v, want ErrArgument at the next sync", vocabulary, vocabulary, err)
		}
		b.must(b.gpu.Sync())
	}
}

// Experts of e2m1 at the widths of DeepSeek-V4-Flash: results for few and for many tokens are bitwise equal, and equal
// to those of e4m3 experts with equal values. Each of the routers chooses the experts in the launch that also prepares
// the products. If the scales of one block cannot be folded, the results are bitwise equal to those of bf16 experts.
func TestGPUPackedExperts(t *testing.T) {
	b := onGPU(t)
	for _, folds := range []bool{true, false} {
		b.packedExperts(folds)
	}
}

func (b *bench) packedExperts(folds bool) {
	const count, hidden, inner, top, rows = 4, 4096, 2048, 2, 150
	var packed, wide kernel.ExpertWeights
	for range count {
		for _, m := range []struct {
			to      [2]*[]kernel.Weight
			out, in int
		}{{[2]*[]kernel.Weight{&packed.Gate, &wide.Gate}, inner, hidden},
			{[2]*[]kernel.Weight{&packed.Up, &wide.Up}, inner, hidden},
			{[2]*[]kernel.Weight{&packed.Down, &wide.Down}, hidden, inner}} {
			w := b.packedWeight(m.out, m.in)
			scales := []byte(w.Scale.Buf.(kernel.HostBuffer))[w.Scale.Off:]
			scales[129*m.in/32+2] = 125 - 14 // every block also has scale 125
			*m.to[0] = append(*m.to[0], w)
			if folds {
				*m.to[1] = append(*m.to[1], b.folded(w))
			} else {
				*m.to[1] = append(*m.to[1], b.widened(w))
			}
		}
	}
	if !folds { // one block of one matrix cannot be folded
		w := &packed.Down[3]
		scales := []byte(w.Scale.Buf.(kernel.HostBuffer))[w.Scale.Off:]
		scales[7] = 125 - 15
		wide.Down[3] = b.widened(*w)
	}
	onPacked, err := b.gpu.PrepareExperts(packed)
	b.must(err)
	onWide, err := b.gpu.PrepareExperts(wide)
	b.must(err)
	if p, w := onPacked.(*experts).shape, onWide.(*experts).shape; !p.E2M1 || w.E2M1 || p.BF16 == folds ||
		w.BF16 == folds {
		b.Fatalf("prepared as %+v and %+v, scales fold: %v", p, w, folds)
	}
	x, logits, bias := b.random(rows, hidden).gpu, b.normal(rows, count).gpu, b.normal(1, count).gpu
	run := func(e kernel.Experts, from, to int) []byte {
		n := to - from
		out := b.place(b.gpu, kernel.BF16, n, hidden, nil)
		ids, w := b.ints(n, top, make([]int32, n*top)).gpu, b.normal(n, top).gpu
		b.must(b.gpu.Do(kernel.RootRouteArgs{IDs: ids, Weights: w, Logits: logits.Slice(from, to), Bias: bias,
			Scale: 1.5}),
			b.gpu.Do(kernel.ExpertArgs{Out: out, X: x.Slice(from, to), IDs: ids, Weights: w, Experts: e,
				Limit: 10}))
		return b.bytes(b.gpu, out)
	}
	whole := run(onPacked, 0, rows)
	if !bytes.Equal(whole, run(onWide, 0, rows)) {
		b.Errorf("scales fold %v: e2m1 experts differ from others of the same values", folds)
	}
	for _, part := range [][2]int{{0, 1}, {7, 16}, {16, 80}, {149, 150}} {
		got := run(onPacked, part[0], part[1])
		if !bytes.Equal(got, whole[part[0]*hidden*2:part[1]*hidden*2]) {
			b.Errorf("scales fold %v: rows %d to %d alone differ from those among %d", folds, part[0], part[1], rows)
		}
	}
}

// The GPU counts choices as the host does: padding rows are not counted, and an expert that does not exist raises a
// fault.
func TestGPUTally(t *testing.T) {
	b := onGPU(t)
	const experts, top = 256, 6
	for _, rows := range []int{1, 43, 8192} {
		ids, seen := make([]int32, rows*top), make([]int32, rows)
		for i := range ids {
			ids[i] = int32((i*i + i/7) % experts)
		}
		for i := range seen {
			seen[i] = int32(i % 5)
		}
		counts := b.ints(1, experts, make([]int32, experts))
		chosen, sees := b.ints(rows, top, ids), b.ints(rows, 1, seen)
		for range 2 {
			b.must(b.gpu.Tally(kernel.TallyArgs{Counts: counts.gpu, IDs: chosen.gpu, Seen: sees.gpu}),
				host.Tally(kernel.TallyArgs{Counts: counts.ref, IDs: chosen.ref, Seen: sees.ref}))
		}
		b.must(b.gpu.Sync())
		if !bytes.Equal(b.bytes(b.gpu, counts.gpu), b.bytes(b.ref, counts.ref)) {
			t.Errorf("%d rows: counts differ from those of the host", rows)
		}
	}
	counts, bad := b.ints(1, experts, make([]int32, experts)), b.ints(1, 2, []int32{3, experts})
	b.must(b.gpu.Tally(kernel.TallyArgs{Counts: counts.gpu, IDs: bad.gpu, Seen: b.ints(1, 1, []int32{1}).gpu}))
	if err := b.gpu.Sync(); err == nil {
		t.Error("an expert that is none raised no fault")
	}
}

// Experts whose bytes repeat a pattern, from any offset and over more than one period, give bitwise equal results to
// experts with these bytes in host memory.
func TestGPURepeatedExperts(t *testing.T) {
	b := onGPU(t)
	const hidden, inner = 4096, 2048
	matrix := func(seed uint64, out, in int) kernel.Weight {
		repeated := func(d kernel.DType, x kernel.Drawn, cols int) kernel.Tensor {
			pattern, err := kernel.Pattern(d, x)
			b.must(err)
			pattern = pattern[:3<<20+64]
			v := kernel.Tensor{DType: d, Rows: out, Cols: cols, Stride: cols}
			v.Buf = kernel.From(pattern, d, seed, v.Extent())
			return v
		}
		return kernel.Weight{BlockRows: 1, BlockCols: packedGroup,
			Data:  repeated(kernel.E2M1x2, kernel.Drawn{Spread: 1.2}, in/2),
			Scale: repeated(kernel.E8M0, kernel.Drawn{Mean: 1. / 64}, in/packedGroup)}
	}
	var w kernel.ExpertWeights
	for e := range uint64(2) {
		w.Gate, w.Up = append(w.Gate, matrix(3*e, inner, hidden)), append(w.Up, matrix(3*e+1, inner, hidden))
		w.Down = append(w.Down, matrix(3*e+2, hidden, inner))
	}
	drawn, err := b.gpu.PrepareExperts(w)
	b.must(err)
	b.must(w.OnHost(func(bytes int64) (kernel.HostBuffer, error) { return make(kernel.HostBuffer, bytes), nil }))
	copied, err := b.gpu.PrepareExperts(w)
	b.must(err)
	const rows = 5
	x, ids := b.random(rows, hidden).gpu, b.ints(rows, 2, []int32{0, 1, 1, 0, 0, 1, 1, 0, 0, 1}).gpu
	weights := b.normal(rows, 2).gpu
	run := func(e kernel.Experts) []byte {
		out := b.place(b.gpu, kernel.BF16, rows, hidden, nil)
		b.must(b.gpu.Do(kernel.ExpertArgs{Out: out, X: x, IDs: ids, Weights: weights, Experts: e, Limit: 10}))
		return b.bytes(b.gpu, out)
	}
	if got := run(drawn); !bytes.Equal(got, run(copied)) || bytes.Count(got, []byte{0}) == len(got) {
		t.Error("experts of a repeated pattern differ from those of the same bytes in host memory, or are zero")
	}
}

// widened returns an e2m1 matrix as bf16, which represents its values exactly.
func (b *bench) widened(w kernel.Weight) kernel.Weight {
	b.Helper()
	codes, scales := b.bytes(b.ref, w.Data), b.bytes(b.ref, w.Scale)
	out := make([]byte, 0, 4*len(codes))
	for i, c := range codes {
		scale := num.FromE8M0(scales[2*i/w.BlockCols])
		even, odd := num.UnpackE2M1(c)
		for _, code := range []byte{even, odd} {
			out = binary.LittleEndian.AppendUint16(out, num.BF16(num.FromE2M1(code)*scale))
		}
	}
	return kernel.Weight{Data: b.place(b.ref, kernel.BF16, w.Out(), w.In(), out)}
}

// folded returns an e2m1 matrix as e4m3 in blocks of 128 x 128, which represents its values exactly if scales can be
// folded.
func (b *bench) folded(w kernel.Weight) kernel.Weight {
	b.Helper()
	codes, scales := b.bytes(b.ref, w.Data), b.bytes(b.ref, w.Scale)
	in := w.In()
	n, m := (w.Out()+blockSide-1)/blockSide, (in+blockSide-1)/blockSide
	largest := make([]byte, n*m)
	for i, s := range scales {
		at := i/(in/packedGroup)/blockSide*m + i%(in/packedGroup)*packedGroup/blockSide
		largest[at] = max(largest[at], s)
	}
	out, block := make([]byte, 0, 2*len(codes)), make([]float32, n*m)
	for i := range block {
		block[i] = num.FromE8M0(largest[i] - 6)
	}
	for i, c := range codes {
		row, col := 2*i/in, 2*i%in
		scale := num.FromE8M0(scales[2*i/packedGroup]) / block[row/blockSide*m+col/blockSide]
		even, odd := num.UnpackE2M1(c)
		for _, code := range []byte{even, odd} {
			v := num.FromE2M1(code) * scale
			if out = append(out, num.E4M3(v)); num.FromE4M3(out[len(out)-1]) != v {
				b.Fatalf("%g is not a value of e4m3", v)
			}
		}
	}
	return kernel.Weight{Data: b.place(b.ref, kernel.E4M3, w.Out(), in, out), Scale: b.floats(n, m, block).ref,
		BlockRows: blockSide, BlockCols: blockSide}
}
