package dsa_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/internal/model/dsa"
	"sparrow/internal/model/nn"
	"sparrow/internal/step"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/kernel/ref"
	"sparrow/layout"
	"sparrow/plan"
	"sparrow/weight"
)

const oracle = "../../../testdata/oracle/"

// scarce is the reference device with a limited number of allocations.
type scarce struct {
	ref.Device
	left, freed int
}

var errFull = errors.New("out of device memory")

func (s *scarce) Alloc(n int64) (kernel.Buffer, error) {
	if s.left--; s.left < 0 {
		return nil, errFull
	}
	return s.Device.Alloc(n)
}
func (s *scarce) Free(kernel.Buffer) { s.freed++ }

// described reads the config.json of a folder.
func described(t *testing.T, dir string) *config.DSA {
	t.Helper()
	c, err := config.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c.(*config.DSA)
}

func load(t *testing.T, name string, dev kernel.Device) *dsa.Model {
	t.Helper()
	c := described(t, oracle+name)
	w, err := weight.Open(oracle + name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	m, err := dsa.Load(c, nn.NewLoader(w, dev, nil), dev)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func resolve(t *testing.T, m *dsa.Model, kv string) plan.Config {
	t.Helper()
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: kv})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestFacts(t *testing.T) {
	v := load(t, "deepseek_v32-1", &ref.Device{}).Facts()
	if v.Family != plan.DeepSeekV32 || v.Heads != 2 || v.K != 128 || v.QKDim != 192 || v.VDim != 128 ||
		v.Layers != 3 || !v.LayerSupportsDense || v.Share.Shared(2) {
		t.Errorf("facts of V3.2: %+v", v)
	}
	g := load(t, "glm_moe_dsa-1", &ref.Device{}).Facts()
	if g.Family != plan.GLMMoeDSA || g.QKDim != 256 || g.VDim != 256 || g.Share.Shared(1) || !g.Share.Shared(2) {
		t.Errorf("facts of GLM: %+v", g)
	}
}

// A page has the rows of every layer and the indexer keys of the layers with an indexer; PageBytes equals the
// allocated bytes.
func TestCacheSizes(t *testing.T) {
	for _, c := range []struct {
		checkpoint, kv string
		main, index    layout.Kind
		tokenBytes     int64
	}{
		{"deepseek_v32-1", "bf16", layout.BF16Row1152, layout.IndexPage132, 3*1152 + 3*132},
		{"glm_moe_dsa-1", "bf16", layout.BF16Row1152, layout.IndexPage132, 3*1152 + 2*132},
		{"glm_moe_dsa-1", "fp8", layout.FP8Row656, layout.IndexPage132, 3*656 + 2*132},
		{"glm_moe_dsa-1", "fp8-576", layout.FP8Row576, layout.IndexPage132, 3*576 + 2*132},
		{"glm_moe_dsa-1", "f32", layout.F32Row2304, layout.IndexF32Row512, 3*2304 + 2*512},
	} {
		t.Run(c.checkpoint+" "+c.kv, func(t *testing.T) {
			m := load(t, c.checkpoint, &ref.Device{})
			cfg := resolve(t, m, c.kv)
			if got := m.PageBytes(&cfg); got != c.tokenBytes*int64(cfg.Page) {
				t.Errorf("a page takes %d bytes, want %d", got, c.tokenBytes*int64(cfg.Page))
			}
			const pages = 5
			if err := m.Allocate(&cfg, pages); err != nil {
				t.Fatal(err)
			}
			sum := int64(0)
			for i, p := range m.Caches() {
				if p.Main.Layout != c.main || p.Main.Pages() != pages || p.Main.Slots() != pages*cfg.Page {
					t.Errorf("layer %d: %d pages of %v", i, p.Main.Pages(), p.Main.Layout)
				}
				if computes := m.Config().Indexer.Computes(i); p.Index.Mem.Given() != computes ||
					computes && p.Index.Layout != c.index {
					t.Errorf("layer %d computes %v and has index keys %v", i, computes, p.Index.Layout)
				}
				for _, x := range []kernel.Tensor{p.Main.Mem, p.Index.Mem} {
					if x.Given() {
						sum += x.Buf.Len()
					}
				}
			}
			if sum != pages*m.PageBytes(&cfg) {
				t.Errorf("%d bytes are allocated for %d pages, want %d", sum, pages, pages*m.PageBytes(&cfg))
			}
		})
	}
}

// When an allocation fails, earlier ones are freed and the error names the layer.
func TestAllocateGivesBackOnFailure(t *testing.T) {
	dev := &scarce{left: 1 << 30}
	m := load(t, "glm_moe_dsa-1", dev)
	cfg := resolve(t, m, "bf16")
	dev.left, dev.freed = 3, 0 // enough for main and index of layer 0 and main of layer 1
	err := m.Allocate(&cfg, 4)
	if !errors.Is(err, errFull) || !strings.Contains(err.Error(), "4 pages for layer 1 of 3") {
		t.Errorf("got %v", err)
	}
	if dev.freed != 3 || len(m.Caches()) != 0 {
		t.Errorf("%d of 3 pools are freed, %d layers still have one", dev.freed, len(m.Caches()))
	}
	dev.left, dev.freed = 100, 0
	for range 2 {
		if err := m.Allocate(&cfg, 4); err != nil {
			t.Fatal(err)
		}
	}
	if dev.freed != 5 {
		t.Errorf("a second Allocate freed %d pools of the first, want 5", dev.freed)
	}
}

// rig runs passes of a model with an arena of its own.
type rig struct {
	*testing.T
	m     *dsa.Model
	cfg   plan.Config
	work  model.Workspace
	arena *kernel.Arena
	mark  int64
}

const rigRows = 160

func newRig(t *testing.T, m *dsa.Model, cfg plan.Config) *rig {
	t.Helper()
	arena, err := kernel.NewArena(m.Device(), 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	work := m.Bind(arena, rigRows)
	return &rig{T: t, m: m, cfg: cfg, work: work, arena: arena, mark: arena.Mark()}
}

// run runs a pass and returns its outputs.
func (r *rig) run(b plan.Batch, in model.Input) (*model.Outputs, error) {
	r.Helper()
	p, err := plan.Build(r.cfg, b)
	if err != nil {
		return nil, err
	}
	in.Plan, in.Config, in.Batch.Batch, in.PageTokens = p, &r.cfg, &b, r.cfg.Page
	r.arena.Reset(r.mark)
	pass, err := r.work.Arrange(p, &r.cfg, r.arena)
	if err != nil {
		return nil, err
	}
	if !r.arena.Fits() {
		r.Fatalf("the pass needs %d bytes", r.arena.High())
	}
	block := make([]int32, p.InputWords)
	if err := pass.Prepare(&in, block); err != nil {
		return nil, err
	}
	if err := kernel.WriteI32(r.m.Device(), pass.Inputs(), block); err != nil {
		r.Fatal(err)
	}
	program, err := pass.Program()
	if err == nil {
		err = program.Run(0, program.Len())
	}
	if pass.Ended(err); err != nil {
		return nil, err
	}
	return pass.Outputs(), nil
}

// prompt returns a batch of one prompt of n tokens that requests logits of the last tokens.
func (r *rig) prompt(n, logits int) (plan.Batch, model.Input) {
	b := plan.NewBatch(plan.ModeExtend, plan.ExtendRequest(n, 0))
	b.Requests[0].Logits = logits
	pages := make([]int32, (n+r.cfg.Page-1)/r.cfg.Page)
	for i := range pages {
		pages[i] = int32(i)
	}
	in := model.Input{Tokens: [][]int32{make([]int32, n)}}
	in.Tables = [][]int32{pages}
	return b, in
}

func TestPassRefuses(t *testing.T) {
	m := load(t, "glm_moe_dsa-1", &ref.Device{})
	r := newRig(t, m, resolve(t, m, "bf16"))
	if _, err := r.run(r.prompt(3, 0)); err == nil || !strings.Contains(err.Error(), "Allocate") {
		t.Errorf("without a cache: got %v", err)
	}
	if err := m.Allocate(&r.cfg, 2); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*plan.Batch, *model.Input)
		want   string
	}{
		{"a token less than planned", func(_ *plan.Batch, in *model.Input) { in.Tokens[0] = in.Tokens[0][:2] },
			"request 0 has 2 new tokens"},
		{"a token outside the vocabulary", func(_ *plan.Batch, in *model.Input) { in.Tokens[0] = []int32{0, 640, 0} },
			"token 640 is outside the vocabulary of 640"},
		{"a negative token", func(_ *plan.Batch, in *model.Input) { in.Tokens[0] = []int32{0, -1, 0} },
			"token -1 is outside"},
		{"a page outside the pool", func(_ *plan.Batch, in *model.Input) { in.Tables[0] = []int32{7} },
			"page 7 in a cache of 2 pages"},
		{"logits of a token that is not there", func(b *plan.Batch, _ *model.Input) { b.Requests[0].Logits = 4 },
			"request 0, which wants logits of 4 rows but has 3 new tokens"},
	} {
		b, in := r.prompt(3, 0)
		c.change(&b, &in)
		if _, err := r.run(b, in); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	if out, err := r.run(r.prompt(3, 0)); err != nil || out.Logits.Rows != 0 {
		t.Errorf("no logits wanted: got %v, %v", out, err)
	}
	// After the refused passes the model still works.
	out, err := r.run(r.prompt(3, 2))
	if err != nil || out.Logits.Rows != 2 || out.Logits.Cols != 640 {
		t.Errorf("got %v, %v", out, err)
	}
	if _, err := r.run(r.prompt(rigRows+1, 0)); err == nil || !strings.Contains(err.Error(), "holds 160 rows") {
		t.Errorf("more rows than the model has memory for: got %v", err)
	}
}

// A decode of the 130th token after a prompt records its selections: layers 0 and 1 select, and layer 2 shares the
// selection of layer 1.
func TestRecorded(t *testing.T) {
	m := load(t, "glm_moe_dsa-1", &ref.Device{})
	cfg := resolve(t, m, "bf16")
	if err := m.Allocate(&cfg, 3); err != nil {
		t.Fatal(err)
	}
	run := func(r plan.Record) step.Result {
		s, err := step.New(m, cfg, step.Limits{Rows: 8, Requests: 1, Context: 192, Record: r})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		res, err := s.Run([]step.Work{{Kind: plan.ModeDecode, Tokens: []int32{5}, Cached: 129,
			Pages: []int32{0, 1, 2}, Record: r, RecordTo: 1}})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	res := run(plan.Record{Hidden: true, Selections: true})
	var events []string
	for layer := range m.Config().Layers {
		if v := res.Selected(layer, 0); v != nil {
			events = append(events, fmt.Sprintf("selected %d: %d", layer, len(v)))
			last := int32(-1)
			for _, p := range v {
				if p <= last || p > 129 {
					t.Fatalf("layer %d selects %v", layer, v)
				}
				last = p
			}
		}
		h := res.Hidden(layer, 0)
		events = append(events, fmt.Sprintf("hidden %d: %d", layer, len(h)))
		if slices.Max(h) == slices.Min(h) {
			t.Errorf("layer %d: a residual row of %v alone", layer, h[0])
		}
	}
	want := []string{"selected 0: 128", "hidden 0: 128", "selected 1: 128",
		"hidden 1: 128", "hidden 2: 128"}
	if !slices.Equal(events, want) {
		t.Errorf("recorded\n%s\nwant\n%s", strings.Join(events, "\n"), strings.Join(want, "\n"))
	}
	if a, b := res.Hidden(0, 0), res.Hidden(2, 0); slices.Equal(a, b) {
		t.Error("the residual rows behind layers 0 and 2 are the same")
	}
	// Without options nothing is recorded.
	r := newRig(t, m, cfg)
	b, in := plan.NewBatch(plan.ModeDecode, plan.DecodeRequest(130)), model.Input{Tokens: [][]int32{{5}}}
	in.Tables = [][]int32{{0, 1, 2}}
	if out, err := r.run(b, in); err != nil || len(out.Recorded) != 0 || out.Block.Cols != 0 {
		t.Errorf("without options: %v, %d layers, %d bytes", err, len(out.Recorded), out.Block.Cols)
	}
}

// counting counts the allocations that are not yet freed.
type counting struct {
	ref.Device
	live map[*byte]bool
}

func (c *counting) Alloc(n int64) (kernel.Buffer, error) {
	b, err := c.Device.Alloc(n)
	c.live[&b.(kernel.HostBuffer)[0]] = true
	return b, err
}

func (c *counting) Free(b kernel.Buffer) {
	at := &b.(kernel.HostBuffer)[0]
	if !c.live[at] {
		panic("memory is given back twice, or was never taken")
	}
	delete(c.live, at)
}

// drafting loads GLM-5's tiny shape with a drafting layer and resolves a configuration that verifies drafts.
func drafting(t *testing.T, dev kernel.Device) (*dsa.Model, plan.Config) {
	t.Helper()
	dir := testmodel.GLMDraft(t)
	c := described(t, dir)
	w, err := weight.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	m, err := dsa.Load(c, nn.NewLoader(w, dev, nil), dev)
	if err != nil {
		t.Fatal(err)
	}
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: "bf16", Speculation: plan.Speculation{Tokens: 3}})
	if err != nil {
		t.Fatal(err)
	}
	return m, cfg
}

// Release frees every pool, including the pools of the drafting layer, and only once.
func TestReleaseGivesBackTheDraftingCache(t *testing.T) {
	dev := &counting{live: map[*byte]bool{}}
	m, cfg := drafting(t, dev)
	before := len(dev.live)
	if err := m.Allocate(&cfg, 2); err != nil {
		t.Fatal(err)
	}
	pools := 0
	for _, list := range m.Pools() {
		pools += len(list)
	}
	if taken := len(dev.live) - before; taken != pools+2 {
		t.Errorf("%d pools are allocated, want %d and two of the drafting layer", taken, pools)
	}
	m.Release()
	if left := len(dev.live) - before; left != 0 {
		t.Errorf("%d pools are not given back", left)
	}
	m.Release()
	// A drafting pass afterwards is refused because there is no cache, and does not use freed memory.
	r := newRig(t, m, cfg)
	b := plan.NewBatch(plan.ModeDraft, plan.DraftRequest(1, 5))
	b.Pass = plan.PassDraft
	in := model.Input{Tokens: [][]int32{{1}}, Hidden: [][]int32{{0}}}
	in.Tables = [][]int32{{0}}
	if _, err := r.run(b, in); err == nil || !strings.Contains(err.Error(), "no cache") {
		t.Errorf("a drafting pass after Release: %v", err)
	}
}

// A pass after a drafting pass records the same selections and hidden rows as the pass before it.
func TestRecordedAfterDrafting(t *testing.T) {
	m, cfg := drafting(t, &ref.Device{})
	if err := m.Allocate(&cfg, 8); err != nil {
		t.Fatal(err)
	}
	what := plan.Record{Hidden: true, Selections: true}
	run, err := step.New(m, cfg, step.Limits{Rows: 160, Requests: 1, Context: 256, Record: what})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	tokens, pages := make([]int32, 150), []int32{1, 3, 5}
	for i := range tokens {
		tokens[i] = int32(i * 7 % m.Config().Vocab)
	}
	const n = 140 // more tokens than index_topk
	if _, err := run.Run([]step.Work{{Kind: plan.ModeExtend, Tokens: tokens[:n], Pages: pages}}); err != nil {
		t.Fatal(err)
	}
	// decode returns the selection and the hidden rows of each layer in a decode of the same token.
	decode := func() (selected [][]int32, hidden [][]float32) {
		res, err := run.Run([]step.Work{{Kind: plan.ModeDecode, Tokens: tokens[n : n+1], Cached: n, Pages: pages,
			Logits: 1, Record: what, RecordTo: 1}})
		if err != nil {
			t.Fatal(err)
		}
		for layer := range m.Config().Layers {
			selected = append(selected, slices.Clone(res.Selected(layer, 0)))
			hidden = append(hidden, slices.Clone(res.Hidden(layer, 0)))
		}
		return selected, hidden
	}
	first, rows := decode()
	if len(first[0]) != m.Config().Indexer.TopK {
		t.Fatalf("layer 0 selects %v", first[0])
	}
	if _, err := run.Draft([]step.Draft{{Kind: plan.ModeDraft, Tokens: tokens[n+1 : n+2], Cached: n, Pages: pages,
		Logits: true}}, false); err != nil {
		t.Fatal(err)
	}
	second, again := decode()
	for layer := range first {
		if !slices.Equal(first[layer], second[layer]) || !slices.Equal(rows[layer], again[layer]) {
			t.Errorf("layer %d: after a drafting pass %v is selected, before it %v", layer, second[layer], first[layer])
		}
	}
}

func TestMain(m *testing.M) { testmodel.Run(m) }
