package op

import (
	"bytes"
	"fmt"
	"testing"

	"sparrow/kernel"
)

// What lies between the products of a layer of DeepSeek-V4 has the bytes, launched together, that it has one by one:
// heads that are normalised and rotated, heads that are rotated and quantised, raw rows kept in four places, and what
// experts gave, added up and written into the residual streams.
func TestGPUHeldOperationsOfStreamsKeepBits(t *testing.T) {
	b := onGPU(t)
	for _, kind := range []kernel.DType{kernel.E4M3, kernel.BF16} {
		for _, rows := range []int{1, 9, 130} {
			for _, shared := range []bool{false, true} {
				l := b.streamLayer(kind, rows, shared)
				one, all := l.run(true), l.run(false)
				for name := range one {
					if !bytes.Equal(one[name], all[name]) {
						t.Errorf("%v, %d rows, shared expert added %v: %s has other bytes", kind, rows, shared, name)
					}
				}
			}
		}
	}
}

type streamLayer struct {
	*heldLayer
	shared                    bool // what experts give is added to a product
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
	do(g.HeadNorm(kernel.HeadNormArgs{X: q, Heads: l.heads, Eps: 1e-6}))
	do(g.Rotate(rotate))
	turned := copied(q)
	rotate.Inverse = true
	do(g.Rotate(rotate))
	for i, w := range l.bands {
		do(g.Multiply(kernel.MultiplyArgs{Out: z.Columns(128*i, 128*(i+1)),
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
		do(g.Multiply(kernel.MultiplyArgs{Out: out, X: q.Columns(0, 2*128), W: l.o, Accumulate: true}))
	}
	do(g.Experts(kernel.ExpertArgs{Out: out, X: l.h, IDs: l.ids, Weights: l.weights, Experts: l.experts}))
	do(g.HyperPost(kernel.HyperPostArgs{X: streams, Sub: out, Post: l.post, Comb: l.comb, Streams: l.streamsCount}))
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
