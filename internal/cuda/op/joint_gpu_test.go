package op

import (
	"bytes"
	"fmt"
	"testing"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
)

// Fused operations between the matrix products of a layer of DeepSeek-V4 give bitwise equal results to separate
// launches: heads that are normalised and rotated, heads that are rotated and quantised, raw rows stored in four
// tensors, and results of experts that are added and written into the residual streams.
func TestGPUHeldOperationsOfStreamsKeepBits(t *testing.T) {
	b := onGPU(t)
	for _, kind := range []kernel.DType{kernel.E4M3, kernel.BF16} {
		for _, rows := range []int{1, 9, 130} {
			for _, shared := range []bool{false, true} {
				l := b.streamLayer(kind, rows, shared)
				one, all := l.run(true), l.run(false)
				for name := range one {
					if !bytes.Equal(one[name], all[name]) {
						t.Errorf("%v, %d rows, shared expert added %v: %s differs", kind, rows, shared, name)
					}
				}
			}
		}
	}
}

type streamLayer struct {
	*heldLayer
	shared                    bool // the result of the experts is added to a matrix product
	streams, post, comb, raw  kernel.Tensor
	places                    [4]kernel.Tensor
	bands                     []kernel.Matrix
	q, keys, ids, weights     kernel.Tensor
	heads, size, streamsCount int
}

func (b *bench) streamLayer(kind kernel.DType, rows int, shared bool) *streamLayer {
	b.Helper()
	l := &streamLayer{heldLayer: b.heldLayer(kind, rows, false), shared: shared, heads: 4, size: 256, streamsCount: 4}
	for range l.heads / 2 {
		m, err := b.gpu.Prepare(b.weight(kind, 128, 2*l.size), kernel.Projected)
		b.must(err)
		l.bands = append(l.bands, m)
	}
	b.must(b.gpu.Join(l.bands...))
	n := l.streamsCount
	l.streams, l.post, l.comb = b.random(rows, n*heldHidden).gpu, b.normal(rows, n).gpu, b.normal(rows, n*n).gpu
	l.q, l.raw, l.keys = b.random(rows, l.heads*l.size).gpu, b.normal(rows, 96).gpu, b.normal(rows, 32).gpu
	for i := range l.places {
		var at []int32
		for r := range rows {
			at = append(at, int32((r*7+i)%(rows+1))-int32(r%2*(i%2)*(rows+2)))
		}
		if i%2 == 0 {
			for r := range at {
				at[r] = int32(r)
			}
		}
		l.places[i] = b.ints(rows, 1, at).gpu
	}
	var ids []int32
	var weights []float32
	for r := range rows {
		ids, weights = append(ids, int32(r%heldExperts), int32((r+5)%heldExperts), -1), append(weights, 0.5, 0.25, 1)
	}
	l.ids, l.weights = b.ints(rows, 3, ids).gpu, b.floats(rows, 3, weights).gpu
	return l
}

func (l *streamLayer) run(alone bool) map[string][]byte {
	l.Helper()
	b, g, rows := l.bench, l.gpu, l.rows
	do := func(err error) {
		l.Helper()
		b.must(err)
		if alone {
			b.must(g.settle())
		}
	}
	copied := func(x kernel.Tensor) kernel.Tensor {
		out, err := kernel.New(g, x.DType, x.Rows, x.Cols)
		b.must(err, g.Copy(kernel.CopyArgs{Out: out, X: x}))
		return out
	}
	q, streams, out := copied(l.q), copied(l.streams), copied(l.h)
	z, err := kernel.New(g, kernel.BF16, rows, 128*len(l.bands))
	b.must(err)
	rotate := kernel.RotateArgs{X: q, Angles: l.angles, Heads: l.heads, HeadDim: l.size, Offset: l.size - 64,
		Pairing: kernel.Interleaved}
	do(g.Do(kernel.HeadNormArgs{X: q, Heads: l.heads, Eps: 1e-6}))
	do(rotateRows(g, rotate))
	turned := copied(q)
	rotate.Inverse = true
	do(rotateRows(g, rotate))
	for i, w := range l.bands {
		do(g.Do(kernel.MultiplyArgs{Out: z.Columns(128*i, 128*(i+1)),
			X: q.Columns(2*l.size*i, 2*l.size*(i+1)), W: w}))
	}
	var to [4]kernel.Tensor
	for i := range to {
		x := l.raw
		if i > 1 {
			x = l.keys
		}
		to[i], err = kernel.New(g, kernel.F32, rows+1, x.Cols)
		b.must(err, g.Write(to[i], make([]byte, 4*to[i].Rows*to[i].Cols)))
	}
	for i := range to {
		x := l.raw
		if i > 1 {
			x = l.keys
		}
		do(g.Put(kernel.PutArgs{Out: to[i], X: x, Rows: l.places[i]}))
	}
	if l.shared {
		do(g.Do(kernel.MultiplyArgs{Out: out, X: q.Columns(0, 2*128), W: l.o, Accumulate: true}))
	}
	do(g.Do(kernel.ExpertArgs{Out: out, X: l.h, IDs: l.ids, Weights: l.weights, Experts: l.experts}))
	do(g.Do(kernel.HyperPostArgs{X: streams, Sub: out, Post: l.post, Comb: l.comb, Streams: l.streamsCount}))
	b.must(g.settle(), g.Sync())
	wrote := map[string][]byte{}
	for name, t := range map[string]kernel.Tensor{"normalised heads": turned, "heads": q, "products": z,
		"a sublayer's output": out, "streams": streams} {
		wrote[name] = b.bytes(g, t)
	}
	for i, t := range to {
		wrote[fmt.Sprintf("kept rows %d", i)] = b.bytes(g, t)
	}
	return wrote
}

// Fused parts of a layer of DeepSeek-V4 give bitwise equal results to separate launches: residual streams that are
// added, normalised and quantised; entries, closed groups and normalised latents after the first matrix products;
// heads, indexer queries, entries, keys and raw rows after the second.
func TestGPUPartsOfALayerKeepBits(t *testing.T) {
	b := onGPU(t)
	for _, hidden := range []int{512, 4096, 7168} {
		for _, rows := range []int{1, 9, 130, 520} { // at 520 rows the kernel for many rows mixes the streams
			if rows > 130 && hidden > 512 {
				continue
			}
			l := b.partsLayer(hidden, rows)
			one, all := l.run(true), l.run(false)
			for name := range one {
				if !bytes.Equal(one[name], all[name]) {
					t.Errorf("%d columns, %d rows: %s differs from separate launches", hidden, rows, name)
				}
			}
		}
	}
}

// partsLayer holds the inputs of the layer: residual streams and their mixture, weights of norms, products of latents,
// and raw rows of compressors.
type partsLayer struct {
	*bench
	hidden, rows                                 int
	x, mix, base, scale, norm, qNorm, kvNorm     kernel.Tensor
	latents, angles, slots, places, raw, key     kernel.Tensor
	state, keyState, ape, keyAPE, sources, q, iq kernel.Tensor
	weights, entryNorm, keyNorm                  kernel.Tensor
	qa, qb                                       kernel.Matrix
}

func (b *bench) partsLayer(hidden, rows int) *partsLayer {
	b.Helper()
	l := &partsLayer{bench: b, hidden: hidden, rows: rows}
	l.x, l.mix, l.base, l.scale = b.random(rows, 4*hidden).gpu, b.normal(rows, 24).gpu, b.normal(1, 24).gpu,
		b.normal(1, 3).gpu
	l.norm, l.qNorm, l.kvNorm = b.normal(1, hidden).gpu, b.random(1, 1024).gpu, b.normal(1, 512).gpu
	l.entryNorm, l.keyNorm = b.normal(1, 512).gpu, b.normal(1, 128).gpu
	l.latents, l.angles = b.random(rows, 1024+512).gpu, b.angles(rows).gpu
	var slots, places, sources []int32
	for r := range rows {
		slots, places = append(slots, int32(r)), append(places, int32(r))
		for s := range 8 {
			sources = append(sources, []int32{int32((r + s) % rows), -1, -2 - int32(r)}[(r+s)%3])
		}
	}
	l.slots, l.places, l.sources = b.ints(rows, 1, slots).gpu, b.ints(rows, 1, places).gpu, b.ints(rows, 8, sources).gpu
	l.raw, l.key = b.normal(rows, 4*512).gpu, b.normal(rows, 4*128).gpu
	l.state, l.keyState = b.normal(rows, 4*512).gpu, b.normal(rows, 4*128).gpu
	l.ape, l.keyAPE = b.normal(4, 2*512).gpu, b.normal(4, 2*128).gpu
	l.q, l.iq, l.weights = b.random(rows, 64*512).gpu, b.random(rows, 64*128).gpu, b.normal(rows, 64).gpu
	for _, m := range []struct {
		to  *kernel.Matrix
		out int
		in  int
	}{{&l.qa, 256, hidden}, {&l.qb, 256, 1024}} {
		w, err := b.gpu.Prepare(b.weight(kernel.E4M3, m.out, m.in), kernel.Projected)
		b.must(err)
		*m.to = w
	}
	return l
}

// layerRun runs the operations of a layer and keeps the tensors that they write.
type layerRun struct {
	*bench
	alone bool // every operation has launches of its own
	wrote map[string]kernel.Tensor
}

func (b *bench) layerRun(alone bool) *layerRun {
	return &layerRun{bench: b, alone: alone, wrote: map[string]kernel.Tensor{}}
}

func (l *layerRun) do(err error) {
	l.Helper()
	l.must(err)
	if l.alone {
		l.must(l.gpu.settle())
	}
}

func (l *layerRun) take(name string, kind kernel.DType, rows, columns int) kernel.Tensor {
	l.Helper()
	t, err := kernel.New(l.gpu, kind, rows, columns)
	l.must(err, l.gpu.Write(t, make([]byte, t.Extent())))
	l.wrote[name] = t
	return t
}

func (l *layerRun) copied(name string, x kernel.Tensor) kernel.Tensor {
	l.Helper()
	out := l.take(name, x.DType, x.Rows, x.Cols)
	l.must(l.gpu.Copy(kernel.CopyArgs{Out: out, X: x}))
	return out
}

// results returns the bytes of the tensors when all operations have ended.
func (l *layerRun) results() map[string][]byte {
	l.Helper()
	l.must(l.gpu.settle(), l.gpu.Sync())
	out := map[string][]byte{}
	for name, t := range l.wrote {
		out[name] = l.bytes(l.gpu, t)
	}
	return out
}

func (l *partsLayer) run(alone bool) map[string][]byte {
	l.Helper()
	g, rows, run := l.gpu, l.rows, l.layerRun(alone)
	do, take, copied := run.do, run.take, run.copied
	pages := (rows + 63) / 64
	pool := func(name string, kind layout.Kind, bytes int) kernel.Pool {
		return kernel.Pool{Mem: take(name, kernel.U8, pages, bytes), Layout: kind, PageTokens: 64}
	}
	entryBytes := layout.V4Packed{}.PageBytes(64)
	window, extra := pool("window", layout.V4Row584, entryBytes), pool("entries", layout.V4Row584, entryBytes)
	index := pool("index keys", layout.IndexPage132, layout.IndexFP8{}.PageBytes(64))
	x, first, second := take("x", kernel.BF16, rows, l.hidden), take("first product", kernel.BF16, rows, 256),
		take("second product", kernel.BF16, rows, 256)
	post, comb := take("post", kernel.F32, rows, 4), take("comb", kernel.F32, rows, 16)
	latents, q := copied("latents", l.latents), copied("heads", l.q)
	state, keyState := copied("ring", l.state), copied("ring of keys", l.keyState)
	closed, keys := take("closed groups", kernel.BF16, rows, 512), take("closed keys", kernel.BF16, rows, 128)
	codes, folded := take("query codes", kernel.E4M3, rows, 64*128), take("folded", kernel.F32, rows, 64)
	do(g.Do(kernel.HyperPreArgs{Out: x, Post: post, Comb: comb, X: l.x, Mix: l.mix, Base: l.base, Scale: l.scale,
		Streams: 4, Rounds: 20, NormEps: 1e-6, Eps: 1e-6}))
	do(g.Do(kernel.NormArgs{Out: x, X: x, Weight: l.norm, Eps: 1e-6}))
	do(g.Do(kernel.MultiplyArgs{Out: first, X: x, W: l.qa}))

	qr, kv := latents.Columns(0, 1024), latents.Columns(1024, 1536)
	do(g.Do(kernel.EntryStoreArgs{Rows: kv, Norm: l.kvNorm, Eps: 1e-6, Angles: l.angles, Slots: l.slots,
		Pool: window}))
	do(g.Do(kernel.CompressArgs{Out: closed, Values: l.raw.Columns(0, 1024), Gates: l.raw.Columns(1024, 2048),
		State: state, APE: l.ape, Sources: l.sources, Ratio: 4, Overlap: true}))
	do(g.Do(kernel.CompressArgs{Out: keys, Values: l.key.Columns(0, 256), Gates: l.key.Columns(256, 512),
		State: keyState, APE: l.keyAPE, Sources: l.sources, Ratio: 4, Overlap: true}))
	do(g.Do(kernel.NormArgs{Out: qr, X: qr, Weight: l.qNorm, Eps: 1e-6}))
	do(g.Do(kernel.MultiplyArgs{Out: second, X: qr, W: l.qb}))

	do(g.Do(kernel.HeadNormArgs{X: q, Heads: 64, Eps: 1e-6}))
	do(g.Do(kernel.RotateArgs{X: q, Angles: l.angles, Heads: 64, HeadDim: 512, Offset: 448,
		Pairing: kernel.Interleaved}))
	do(g.Do(kernel.EntryStoreArgs{Rows: closed, Norm: l.entryNorm, Eps: 1e-6, Angles: l.angles,
		Slots: l.slots, Pool: extra}))
	do(g.Do(kernel.KeyStoreArgs{Keys: keys, Norm: l.keyNorm, Eps: 1e-6, Angles: l.angles, Hadamard: true,
		Slots: l.slots, Pool: index}))
	do(g.Put(kernel.PutArgs{Out: state, X: l.raw, Rows: l.places}))
	do(g.Put(kernel.PutArgs{Out: keyState, X: l.key, Rows: l.places}))
	do(g.Do(kernel.IndexQueryArgs{Out: codes, W: folded, Q: l.iq, Weights: l.weights, Angles: l.angles,
		Heads: 64, Offset: 64, Pairing: kernel.Interleaved, Hadamard: true, Scales: num.ScaleF32}))
	return run.results()
}

// Rows that are rotated and quantised in one launch for banded products are bitwise equal to rows of a separate
// rotation and separate products. This includes so many rows that a warp processes several of them.
func TestGPUManyTurnedRowsKeepBits(t *testing.T) {
	b := onGPU(t)
	const heads, size, rows = 64, 512, 260
	var bands []kernel.Matrix
	for range 2 {
		m, err := b.gpu.Prepare(b.weight(kernel.E4M3, 128, heads/2*size), kernel.Projected)
		b.must(err)
		bands = append(bands, m)
	}
	b.must(b.gpu.Join(bands...))
	x, angles := b.random(rows, heads*size).gpu, b.angles(rows).gpu
	for _, n := range []int{1, rows} {
		var wrote [2][2][]byte
		for i, alone := range []bool{true, false} {
			q, err := kernel.New(b.gpu, kernel.BF16, n, heads*size)
			b.must(err, b.gpu.Copy(kernel.CopyArgs{Out: q, X: x.Slice(0, n)}))
			z, err := kernel.New(b.gpu, kernel.BF16, n, 256)
			b.must(err, b.gpu.Do(kernel.RotateArgs{X: q, Angles: angles.Slice(0, n), Heads: heads, HeadDim: size,
				Offset: size - 64, Pairing: kernel.Interleaved, Inverse: true}))
			for j, w := range bands {
				if alone {
					b.must(b.gpu.settle())
				}
				b.must(b.gpu.Do(kernel.MultiplyArgs{Out: z.Columns(128*j, 128*(j+1)),
					X: q.Columns(j*heads/2*size, (j+1)*heads/2*size), W: w}))
			}
			b.must(b.gpu.settle(), b.gpu.Sync())
			wrote[i] = [2][]byte{b.bytes(b.gpu, q), b.bytes(b.gpu, z)}
		}
		for i, name := range []string{"heads", "products"} {
			if !bytes.Equal(wrote[0][i], wrote[1][i]) {
				t.Errorf("%d rows: %s differ from separate launches", n, name)
			}
		}
	}
}

// The output of a sublayer that is added to the residual streams, the product of the streams and the input of the next
// sublayer are bitwise equal in one launch and in separate launches, also with sizes and numbers of rows for which
// there is no single launch.
func TestGPUStepsOfStreamsKeepBits(t *testing.T) {
	b := onGPU(t)
	const manyRows = 6533 // rows of the kernel for many rows, the last block of which is not full
	for _, hidden := range []int{512, 640, 1024, 4096, 4224} {
		fn, err := b.gpu.Prepare(b.weight(kernel.BF16, 24, 4*hidden), kernel.Projected)
		b.must(err)
		var w kernel.ExpertWeights
		for range heldExperts {
			w.Gate, w.Up = append(w.Gate, b.weight(kernel.E4M3, 128, hidden)), append(w.Up,
				b.weight(kernel.E4M3, 128, hidden))
			w.Down = append(w.Down, b.weight(kernel.E4M3, hidden, 128))
		}
		experts, err := b.gpu.PrepareExperts(w)
		b.must(err)
		for _, kind := range []kernel.DType{kernel.E4M3, kernel.BF16} {
			qa, err := b.gpu.Prepare(b.weight(kind, 256, hidden), kernel.Projected)
			b.must(err)
			for _, rows := range []int{1, 3, 8, 9, 64, 65, manyRows} {
				if rows == manyRows && (kind == kernel.BF16 || hidden > 1024 && hidden != 4096) {
					continue // the kernel for many rows does not depend on the next sublayer
				}
				l := b.streamStep(hidden, rows, fn, qa, experts)
				one, all := l.run(true), l.run(false)
				for name := range one {
					if !bytes.Equal(one[name], all[name]) {
						t.Errorf("%d columns, %v, %d rows: %s differs from separate launches", hidden, kind, rows, name)
					}
				}
			}
		}
	}
}

// streamStep holds the inputs of two sublayers: residual streams, an output, its weights, and those of the next mix.
type streamStep struct {
	*bench
	hidden, rows                       int
	streams, sub, post, comb           kernel.Tensor
	base, scale, norm, h, ids, weights kernel.Tensor
	fn, qa                             kernel.Matrix
	experts                            kernel.Experts
}

func (b *bench) streamStep(hidden, rows int, fn, qa kernel.Matrix, experts kernel.Experts) *streamStep {
	var ids []int32
	var weights []float32
	for r := range rows {
		ids, weights = append(ids, int32(r%heldExperts), int32((r+5)%heldExperts), -1), append(weights, 0.5, 0.25, 1)
	}
	return &streamStep{bench: b, hidden: hidden, rows: rows, streams: b.random(rows, 4*hidden).gpu,
		sub: b.random(rows, hidden).gpu, post: b.normal(rows, 4).gpu, comb: b.normal(rows, 16).gpu,
		base: b.normal(1, 24).gpu, scale: b.normal(1, 3).gpu, norm: b.normal(1, hidden).gpu,
		h: b.random(rows, hidden).gpu, ids: b.ints(rows, 3, ids).gpu, weights: b.floats(rows, 3, weights).gpu,
		fn: fn, qa: qa, experts: experts}
}

func (l *streamStep) run(alone bool) map[string][]byte {
	l.Helper()
	g, rows, run := l.gpu, l.rows, l.layerRun(alone)
	do, take, copied := run.do, run.take, run.copied
	streams, post, comb := copied("streams", l.streams), copied("post", l.post), copied("comb", l.comb)
	mix, x, product := take("mix", kernel.F32, rows, 24), take("x", kernel.BF16, rows, l.hidden),
		take("product", kernel.BF16, rows, 256)
	sub := copied("output", l.sub)
	for i := range 2 { // the second sublayer has experts, and reads what the first one writes
		if i == 1 {
			do(g.Do(kernel.ExpertArgs{Out: sub, X: l.h, IDs: l.ids, Weights: l.weights, Experts: l.experts}))
		}
		do(g.Do(kernel.HyperPostArgs{X: streams, Sub: sub, Post: post, Comb: comb, Streams: 4}))
		do(g.Do(kernel.MultiplyArgs{Out: mix, X: streams, W: l.fn}))
		do(g.Do(kernel.HyperPreArgs{Out: x, Post: post, Comb: comb, X: streams, Mix: mix, Base: l.base, Scale: l.scale,
			Streams: 4, Rounds: 20, NormEps: 1e-6, Eps: 1e-6}))
		do(g.Do(kernel.NormArgs{Out: x, X: x, Weight: l.norm, Eps: 1e-6}))
		do(g.Do(kernel.MultiplyArgs{Out: product, X: x, W: l.qa}))
	}
	return run.results()
}
