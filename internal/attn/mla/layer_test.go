package mla

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/attn"
	"sparrow/kernel"
	"sparrow/kernel/ref"
	"sparrow/layout"
	"sparrow/plan"
)

func openRef(t *testing.T) kernel.Device {
	t.Helper()
	d, err := kernel.NewRegistry(ref.Backends()).Open("ref", kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// rig runs the attention of a small model: one head, hidden size 8, q_lora 8, four indexer heads, top-k 4.
type rig struct {
	*testing.T
	dev  kernel.Device
	list *kernel.Builder
	a    *Attention
	w    Weights
}

const hidden = 8

func newRig(t *testing.T) *rig {
	t.Helper()
	dev := openRef(t)
	freq := make([]float32, 32)
	list := kernel.NewBuilder(dev, kernel.Member{})
	a, err := New(dev, list, Params{Dims: kernel.LatentDims{Heads: 1, Nope: 8, Rope: 64, V: 8, Latent: 512}, QLora: 8,
		IndexHeads: 4, TopK: 4, Scale: 0.1,
		LatentEps: 1e-6, IndexPairing: kernel.HalfSplit, InvFreq: freq, CosScale: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, dev: dev, list: list, a: a}
	as := func(role kernel.Role, out, in int) kernel.Matrix {
		m, err := dev.Prepare(kernel.Weight{Data: r.values(out, in)}, role)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := func(out, in int) kernel.Matrix { return as(kernel.Projected, out, in) }
	r.w = Weights{QA: m(8, hidden), QB: m(72, 8), KVA: m(576, hidden), KVB: as(kernel.Latent, 16, 512),
		O: m(hidden, 8), QNorm: r.values(1, 8), KVNorm: r.values(1, 512),
		Index: &IndexWeights{Q: m(512, 8), K: m(128, hidden), Weights: m(4, hidden), KNorm: r.values(1, 128),
			KBias: r.values(1, 128)}}
	return r
}

// values returns a tensor of distinct numbers around zero.
func (r *rig) values(rows, cols int) kernel.Tensor {
	r.Helper()
	t, err := kernel.New(r.dev, kernel.F32, rows, cols)
	v := make([]float32, rows*cols)
	for i := range v {
		v[i] = float32(i*37%101-50) / 50
	}
	if err == nil {
		err = kernel.WriteF32(r.dev, t, v)
	}
	if err != nil {
		r.Fatal(err)
	}
	return t
}

func (r *rig) cache(main, index layout.Kind) Cache {
	r.Helper()
	var c Cache
	for _, p := range []struct {
		to    *kernel.Pool
		kind  layout.Kind
		bytes func() (int, error)
	}{
		{&c.Main, main, func() (int, error) {
			l, err := layout.MainOf(main)
			if err != nil {
				return 0, err
			}
			return l.PageBytes(4), nil
		}},
		{&c.Index, index, func() (int, error) {
			l, err := layout.IndexOf(index)
			if err != nil {
				return 0, err
			}
			return l.PageBytes(4), nil
		}},
	} {
		n, err := p.bytes()
		if err == nil {
			p.to.Mem, err = kernel.New(r.dev, kernel.U8, 10, n)
		}
		if err != nil {
			r.Fatal(err)
		}
		p.to.Layout, p.to.PageTokens = p.kind, 4
	}
	return c
}

// begin lays out a batch over a cache, fills its arrays and enqueues the operations whose results every layer reads.
func (r *rig) begin(b attn.Batch, c Cache) (*Pass, error) {
	r.Helper()
	pass, in, err := r.arrange(&b, Layouts{c.Main.Layout, layout.IndexPage132})
	if err != nil {
		return nil, err
	}
	words := make([]int32, b.Plan.InputWords)
	if err := pass.Prepare(&b, attn.NewBlock(b.Plan, words)); err != nil {
		return nil, err
	}
	if err := kernel.WriteI32(r.dev, in.Block, words); err != nil {
		r.Fatal(err)
	}
	pass.Begin()
	return pass, r.list.Run()
}

// layer runs one layer of a pass that has begun.
func (r *rig) layer(p *Pass, layer int, w *Weights, c Cache, tap attn.Tap) error {
	r.Helper()
	p.Layer(layer, w, c, r.values(p.plan.Rows, hidden), r.values(p.plan.Rows, hidden), tap)
	return r.list.Run()
}

// run begins a pass and runs one layer over it.
func (r *rig) run(b attn.Batch, layer int, w *Weights, c Cache) error {
	r.Helper()
	p, err := r.begin(b, c)
	if err != nil {
		return err
	}
	return r.layer(p, layer, w, c, attn.Tap{})
}

func TestLayerRuns(t *testing.T) {
	r := newRig(t)
	if err := r.run(mixed(t, plan.Policy{KV: "fp8-656"}), 0, &r.w,
		r.cache(layout.FP8Row656, layout.IndexPage132)); err != nil {
		t.Error(err)
	}
}

// E27: a layer refuses a cache whose layout differs from the layout of the plan.
func TestLayerRefusesAnotherLayout(t *testing.T) {
	r := newRig(t)
	err := r.run(mixed(t, plan.Policy{KV: "fp8-656"}), 0, &r.w, r.cache(layout.FP8Row576, layout.IndexPage132))
	if !errors.Is(err, plan.E27) || !strings.Contains(err.Error(), "fp8-656") ||
		!strings.Contains(err.Error(), "fp8-576") {
		t.Errorf("got %v, want E27 naming both layouts", err)
	}
}

// E26: Prepare refuses a batch if the number of page tables differs from the number of requests.
func TestPrepareRefusesAnotherNumberOfTables(t *testing.T) {
	in := mixed(t, plan.Policy{KV: "bf16"})
	in.Tables = in.Tables[:3]
	if _, _, err := prepared(t, in); !errors.Is(err, plan.E26) {
		t.Errorf("three tables for four requests: got %v, want E26", err)
	}
	in = mixed(t, plan.Policy{KV: "bf16"})
	in.Tables = append(in.Tables, []int32{8})
	if _, _, err := prepared(t, in); !errors.Is(err, plan.E26) {
		t.Errorf("five tables for four requests: got %v, want E26", err)
	}
	in = mixed(t, plan.Policy{KV: "bf16"})
	in.Tables[3] = nil
	if _, _, err := prepared(t, in); !errors.Is(err, plan.E22) {
		t.Errorf("no pages for request 3: got %v, want E22", err)
	}
}

// E23: a shared layer needs the selection of the previous selecting layer in the same pass. Layers 2 and 3 share the
// selection of layer 1.
func TestSharedLayerNeedsASelection(t *testing.T) {
	r := newRig(t)
	c := r.cache(layout.BF16Row1152, layout.IndexPage132)
	shared := r.w
	shared.Index = nil
	in := mixed(t, plan.Policy{KV: "bf16"})
	err := r.run(in, 3, &shared, c)
	if !errors.Is(err, plan.E23) || !strings.Contains(err.Error(), "layer 3, which shares the indices of layer 1") {
		t.Errorf("got %v, want E23 naming layers 3 and 1", err)
	}
	if err := r.run(in, 1, &shared, c); err == nil || errors.Is(err, plan.E23) ||
		!strings.Contains(err.Error(), "indexer") {
		t.Errorf("a computing layer without weights: got %v", err)
	}
	p, err := r.begin(in, c)
	if err == nil {
		err = r.layer(p, 1, &r.w, c, attn.Tap{})
	}
	if err != nil {
		t.Fatal(err)
	}
	for layer := 2; layer < 4; layer++ {
		if err := r.layer(p, layer, &shared, c, attn.Tap{}); err != nil {
			t.Errorf("layer %d after layer 1: %v", layer, err)
		}
	}
	// A selection is not valid in the next pass, even if that pass has equal shapes and reuses the memory.
	p.Begin()
	if err := r.layer(p, 2, &shared, c, attn.Tap{}); !errors.Is(err, plan.E23) {
		t.Errorf("the next pass still finds a selection: %v", err)
	}
	// If every row is dense, no selection is needed.
	if err := r.run(batchOf(t, plan.Policy{KV: "bf16"}, plan.NewBatch(plan.ModeExtend, plan.ExtendRequest(4, 0)),
		[]int32{1}), 2, &shared, c); err != nil {
		t.Errorf("a dense pass in a shared layer: %v", err)
	}
}

func TestLayerNeedsAnIndexCache(t *testing.T) {
	r := newRig(t)
	c := r.cache(layout.BF16Row1152, layout.IndexPage132)
	c.Index = kernel.Pool{}
	if err := r.run(mixed(t, plan.Policy{KV: "bf16"}), 0, &r.w, c); err == nil ||
		!strings.Contains(err.Error(), "no index cache") {
		t.Errorf("got %v", err)
	}
}

// Selections are recorded as positions below the row's own position, in ascending order without repetition. They do
// not depend on conversions and gathers.
func TestSelectionsArePositions(t *testing.T) {
	const untouched = -9
	var first map[int][]int32
	for _, policy := range []plan.Policy{
		{KV: "fp8-576"},
		{KV: "fp8-576", Prefill: "sparse-block", Decode: "sparse-raw"},
		{KV: "fp8-576", Prefill: "sparse-flat", Decode: "sparse-raw"},
	} {
		r := newRig(t)
		c := r.cache(layout.FP8Row576, layout.IndexPage132)
		record, err := kernel.New(r.dev, kernel.I32, 12, 4)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := kernel.New(r.dev, kernel.I32, 12, 1)
		if err == nil {
			err = kernel.WriteI32(r.dev, rows, []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
		}
		if err != nil {
			t.Fatal(err)
		}
		p, err := r.begin(mixed(t, policy), c)
		if err == nil {
			err = kernel.WriteI32(r.dev, p.positions, slices.Repeat([]int32{untouched}, 48))
		}
		if err == nil {
			err = r.layer(p, 0, &r.w, c, attn.Tap{Rows: rows, Selected: record})
		}
		if err != nil {
			t.Fatal(err)
		}
		all := make([]int32, 48)
		if err := kernel.ReadI32(r.dev, all, record); err != nil {
			t.Fatal(err)
		}
		got := map[int][]int32{} // selections by row
		for row := range 12 {
			if v := all[4*row : 4*row+4]; v[0] != untouched {
				got[row] = v
			}
		}
		lens := []int32{5, 6, 6, 7, 8, 9, 6, 7} // lengths of rows 4 to 11; rows 0 to 3 are dense
		if len(got) != len(lens) {
			t.Errorf("%s: selections of %d rows, want %d", policy.Prefill, len(got), len(lens))
		}
		for i, n := range lens {
			last := int32(-1)
			for _, v := range got[4+i] {
				if v <= last || v >= n {
					t.Errorf("%s: row %d sees %d keys and selects %v", policy.Prefill, 4+i, n, got[4+i])
					break
				}
				last = v
			}
		}
		if first == nil {
			first = got
		}
		for row, want := range first {
			ints(t, policy.Prefill+": selection", got[row], want...)
		}
	}
}
