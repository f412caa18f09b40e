package op

import (
	"bytes"
	"fmt"
	"testing"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
)

// Operations that are fused with a neighbour give bitwise equal results to separate launches: everything between the
// matrix products of a layer, for few and for many rows, with joined and with separate weights.
func TestGPUHeldOperationsKeepBits(t *testing.T) {
	b := onGPU(t)
	for _, kind := range []kernel.DType{kernel.E4M3, kernel.BF16} {
		for _, rows := range []int{1, 9, 130} {
			for _, joins := range []bool{false, true} {
				what := fmt.Sprintf("%v, %d rows, joined %v", kind, rows, joins)
				l := b.heldLayer(kind, rows, joins)
				one := l.run(true)
				all := l.run(false)
				for name := range one {
					if !bytes.Equal(one[name], all[name]) {
						t.Errorf("%s: %s differs from separate launches", what, name)
					}
				}
			}
		}
	}
}

// heldLayer holds the weights and inputs of a small layer.
type heldLayer struct {
	*bench
	rows                   int
	dims                   kernel.LatentDims
	h, norm, norm2, kvNorm kernel.Tensor
	gamma, beta, bias      kernel.Tensor
	angles, slots, table   kernel.Tensor
	request, positions     kernel.Tensor
	a, k, kva, q, iq, kvb  kernel.Matrix
	weights, o, gate, up   kernel.Matrix
	down, router           kernel.Matrix
	experts                kernel.Experts
}

const (
	heldHidden, heldLora, heldInner = 256, 128, 128
	heldExperts, heldHeads          = 16, 32
)

func (b *bench) heldLayer(kind kernel.DType, rows int, joins bool) *heldLayer {
	b.Helper()
	l := &heldLayer{bench: b, rows: rows, dims: kernel.LatentDims{Heads: 2, Nope: 128, Rope: 64, V: 128, Latent: 512}}
	matrix := func(out, in int, role kernel.Role) kernel.Matrix {
		m, err := b.gpu.Prepare(b.weight(kind, out, in), role)
		b.must(err)
		return m
	}
	project := func(out, in int) kernel.Matrix { return matrix(out, in, kernel.Projected) }
	l.a, l.k, l.kva = project(heldLora, heldHidden), project(128, heldHidden), project(576, heldHidden)
	l.q, l.iq = project(2*192, heldLora), project(heldHeads*128, heldLora)
	l.weights, l.o = project(heldHeads, heldHidden), project(heldHidden, 2*128)
	l.gate, l.up = project(heldInner, heldHidden), project(heldInner, heldHidden)
	l.down, l.router = project(heldHidden, heldInner), project(heldExperts, heldHidden)
	l.kvb = matrix(2*256, 512, kernel.Latent)
	if joins {
		b.must(b.gpu.Join(l.a, l.k, l.kva), b.gpu.Join(l.q, l.iq), b.gpu.Join(l.gate, l.up))
	}
	var w kernel.ExpertWeights
	for range heldExperts {
		w.Gate, w.Up = append(w.Gate, b.weight(kind, heldInner, heldHidden)), append(w.Up,
			b.weight(kind, heldInner, heldHidden))
		w.Down = append(w.Down, b.weight(kind, heldHidden, heldInner))
	}
	var err error
	l.experts, err = b.gpu.PrepareExperts(w)
	b.must(err)
	l.h, l.norm, l.norm2 = b.random(rows, heldHidden).gpu, b.normal(1, heldHidden).gpu, b.normal(1, heldHidden).gpu
	l.kvNorm, l.gamma, l.beta = b.normal(1, 512).gpu, b.normal(1, 128).gpu, b.normal(1, 128).gpu
	l.bias, l.angles = b.normal(1, heldExperts).gpu, b.angles(rows).gpu
	var slots, request, positions []int32
	for r := range rows {
		slots, request = append(slots, int32(r*7%192)), append(request, int32(r%3))
		positions = append(positions, int32(r%130), -1, 5, 64)
	}
	slots[rows/2] = -1
	l.slots, l.request, l.positions = b.ints(rows, 1, slots).gpu, b.ints(rows, 1, request).gpu,
		b.ints(rows, 4, positions).gpu
	l.table = b.ints(3, 4, []int32{2, 0, 1, 0, 1, 2, 0, 0, 0, 1, 2, 0}).gpu
	return l
}

// run runs the layer and returns its outputs; alone launches every operation separately.
func (l *heldLayer) run(alone bool) map[string][]byte {
	l.Helper()
	b, g, rows := l.bench, l.gpu, l.rows
	q := kernel.NewBuilder(g, kernel.Member{})
	each := func() {
		b.must(q.Run())
		if alone {
			b.must(g.settle())
		}
	}
	take := func(t kernel.DType, cols int) kernel.Tensor {
		x, err := kernel.New(g, t, rows, cols)
		b.must(err)
		return x
	}
	h := take(kernel.BF16, heldHidden)
	q.Add(kernel.CopyArgs{Out: h, X: l.h})
	x, first, both := take(kernel.BF16, heldHidden), take(kernel.BF16, heldLora+128+576), take(kernel.BF16,
		2*192+heldHeads*128)
	qr, key, kv := first.Columns(0, heldLora), first.Columns(heldLora, heldLora+128),
		first.Columns(heldLora+128, heldLora+704)
	query, index := both.Columns(0, 2*192), both.Columns(2*192, 2*192+heldHeads*128)
	weights := take(kernel.F32, heldHeads)
	main, err := kernel.New(g, kernel.U8, 3, 64*656)
	b.must(err)
	keys, err := kernel.New(g, kernel.U8, 3, 64*132)
	b.must(err)
	q.Add(kernel.NormArgs{Out: x, X: h, Weight: l.norm, Eps: 1e-6})
	each()
	q.Add(kernel.ProjectArgs{X: x, To: []kernel.Projection{{Out: qr, W: l.a}, {Out: key, W: l.k},
		{Out: kv, W: l.kva}, {Out: weights, W: l.weights}}})
	each()
	single := take(kernel.BF16, 576)
	q.Add(kernel.MultiplyArgs{Out: single, X: x, W: l.kva})
	each()
	q.Add(kernel.NormArgs{Out: qr, X: qr, Weight: l.norm.Columns(0, heldLora), Eps: 1e-6})
	each()
	q.Add(kernel.ProjectArgs{X: qr, To: []kernel.Projection{{Out: query, W: l.q}, {Out: index, W: l.iq}}})
	each()
	q.Add(kernel.StoreArgs{KV: kv, Norm: l.kvNorm, Eps: 1e-6, Angles: l.angles, Slots: l.slots,
		Pool: kernel.Pool{Mem: main, Layout: layout.FP8Row656, PageTokens: 64}})
	each()
	q.Add(kernel.IndexStoreArgs{Key: key, Weight: l.gamma, Bias: l.beta, Eps: 1e-6, Angles: l.angles,
		Pairing: kernel.HalfSplit, Hadamard: true, Slots: l.slots,
		Pool: kernel.Pool{Mem: keys, Layout: layout.IndexPage132, PageTokens: 64}})
	each()
	codes, folded := take(kernel.E4M3, heldHeads*128), take(kernel.F32, heldHeads)
	q.Add(kernel.IndexQueryArgs{Out: codes, W: folded, Q: index, Weights: weights, Angles: l.angles,
		Heads: heldHeads, Padded: heldHeads, Pairing: kernel.HalfSplit, Hadamard: true, Scales: num.ScalePow2})
	each()
	q.Add(kernel.RotateArgs{X: query, Angles: l.angles, Heads: 2, HeadDim: 192, Offset: 128,
		Pairing: kernel.Interleaved})
	each()
	absorbed, indices, out := take(kernel.BF16, 2*576), take(kernel.I32, 4), take(kernel.BF16, 2*128)
	q.Add(kernel.AbsorbArgs{Out: absorbed, Q: query, KVB: l.kvb, Dims: l.dims})
	each()
	q.Add(kernel.LocateArgs{Out: indices, Positions: l.positions, Table: l.table, TableRow: l.request,
		PageTokens: 64})
	each()
	latent := take(kernel.BF16, 2*512)
	q.Add(kernel.CopyArgs{Out: latent, X: absorbed.Columns(0, 2*512)})
	q.Add(kernel.ExpandArgs{Out: out, U: latent, KVB: l.kvb, Dims: l.dims})
	each()
	q.Add(kernel.MultiplyArgs{Out: h, X: out, W: l.o, Accumulate: true})
	each()
	q.Add(kernel.NormArgs{Out: x, X: h, Weight: l.norm2, Eps: 1e-6})
	each()
	inner, logits, ids, shares := take(kernel.BF16, 2*heldInner), take(kernel.F32, heldExperts), take(kernel.I32, 3),
		take(kernel.F32, 3)
	gate, up := inner.Columns(0, heldInner), inner.Columns(heldInner, 2*heldInner)
	q.Add(kernel.ProjectArgs{X: x, To: []kernel.Projection{{Out: gate, W: l.gate}, {Out: up, W: l.up},
		{Out: logits, W: l.router}}})
	each()
	q.Add(kernel.GateArgs{Out: gate, Gate: gate, Up: up})
	each()
	q.Add(kernel.MultiplyArgs{Out: h, X: gate, W: l.down, Accumulate: true})
	each()
	q.Add(kernel.RouteArgs{IDs: ids, Weights: shares, Logits: logits, Bias: l.bias, Groups: 4, KeepGroups: 2,
		Normalize: true, Scale: 2.5})
	each()
	q.Add(kernel.ExpertArgs{Out: h, X: x, IDs: ids, Weights: shares, Experts: l.experts})
	each()
	last := take(kernel.BF16, heldHidden)
	q.Add(kernel.NormArgs{Out: last, X: h, Weight: l.norm, Eps: 1e-6})
	each()
	then, packed := take(kernel.BF16, 128), take(kernel.BF16, 576)
	q.Add(kernel.ProjectArgs{X: last, To: []kernel.Projection{{Out: then, W: l.k}}})
	q.Add(kernel.CopyArgs{Out: packed, X: kv})
	b.must(q.Run(), g.Sync())
	if !bytes.Equal(b.bytes(g, packed), b.bytes(g, single)) {
		b.Error("the product of a matrix differs alone and in a joint launch")
	}
	wrote := map[string][]byte{}
	for name, t := range map[string]kernel.Tensor{"residual rows": h, "first products": first, "second products": both,
		"cache": main, "indexer keys": keys, "index queries": codes, "index weights": folded,
		"latent queries": absorbed,
		"places":         indices, "inner rows": inner, "choices": ids, "norm": last, "a product of the norm": then} {
		wrote[name] = b.bytes(g, t)
	}
	return wrote
}
