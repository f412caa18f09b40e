package dsa_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sparrow/attn"
	"sparrow/kernel"
	"sparrow/kernel/ref"
	"sparrow/layout"
	"sparrow/model"
	"sparrow/model/config"
	"sparrow/model/dsa"
	"sparrow/model/nn"
	"sparrow/plan"
	"sparrow/weight"
)

const oracle = "../../testdata/oracle/"

// scarce is the reference on a device with room for a number of allocations.
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

func load(t *testing.T, name string, dev kernel.Device) *dsa.Model {
	t.Helper()
	c, err := config.Open(oracle + name)
	if err != nil {
		t.Fatal(err)
	}
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
	if v.Family != plan.DeepSeekV32 || v.Heads != 2 || v.K != 128 || v.QKDim != 192 || v.VDim != 128 || v.Layers != 3 || !v.LayerSupportsDense || v.Share.Shared(2) {
		t.Errorf("facts of V3.2: %+v", v)
	}
	g := load(t, "glm_moe_dsa-1", &ref.Device{}).Facts()
	if g.Family != plan.GLMMoeDSA || g.QKDim != 256 || g.VDim != 256 || g.Share.Shared(1) || !g.Share.Shared(2) {
		t.Errorf("facts of GLM: %+v", g)
	}
}

// A page takes the rows of every layer and the indexer keys of those that have an indexer; what is said is what is allocated.
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
				if computes := m.Config().Indexer.Computes(i); p.Index.Mem.Given() != computes || computes && p.Index.Layout != c.index {
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

// Where memory ends in the middle, what was taken is given back and the error says how far it came.
func TestAllocateGivesBackOnFailure(t *testing.T) {
	dev := &scarce{left: 1 << 30}
	m := load(t, "glm_moe_dsa-1", dev)
	cfg := resolve(t, m, "bf16")
	dev.left, dev.freed = 3, 0 // main and index of layer 0, main of layer 1
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

// input is one prompt of n tokens.
func input(t *testing.T, cfg *plan.Config, n int, picks ...model.Pick) model.Input {
	t.Helper()
	b := plan.NewBatch(plan.ModeExtend, plan.ExtendRequest(n, 0))
	p, err := plan.Build(*cfg, b)
	if err != nil {
		t.Fatal(err)
	}
	pages := make([]int32, (n+cfg.Page-1)/cfg.Page)
	for i := range pages {
		pages[i] = int32(i)
	}
	return model.Input{Step: attn.Step{Plan: p, Config: cfg, Batch: &b, Tables: [][]int32{pages}, PageTokens: cfg.Page}, Tokens: [][]int32{make([]int32, n)}, Logits: picks}
}

func TestForwardRefuses(t *testing.T) {
	m := load(t, "glm_moe_dsa-1", &ref.Device{})
	cfg := resolve(t, m, "bf16")
	if _, err := m.Forward(input(t, &cfg, 3)); err == nil || !strings.Contains(err.Error(), "Allocate") {
		t.Errorf("without a cache: got %v", err)
	}
	if err := m.Allocate(&cfg, 2); err != nil {
		t.Fatal(err)
	}
	short := input(t, &cfg, 3)
	short.Tokens[0] = short.Tokens[0][:2]
	outside := input(t, &cfg, 3)
	outside.Tokens[0] = []int32{0, 640, 0}
	negative := input(t, &cfg, 3)
	negative.Tokens[0] = []int32{0, -1, 0}
	lost := input(t, &cfg, 3)
	lost.Tables[0] = []int32{7}
	for _, c := range []struct {
		name string
		in   model.Input
		want string
	}{
		{"a token less than planned", short, "request 0 has 2 new tokens"},
		{"a token outside the vocabulary", outside, "token 640 is outside the vocabulary of 640"},
		{"a negative token", negative, "token -1 is outside"},
		{"a page outside the pool", lost, "slot 448 of a pool of 128"},
		{"logits of a token that is not there", input(t, &cfg, 3, model.Pick{Request: 0, Token: 3}), "logits of new token 3 of request 0"},
	} {
		if _, err := m.Forward(c.in); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	if out, err := m.Forward(input(t, &cfg, 3)); err != nil || out.Given() {
		t.Errorf("no logits wanted: got %v, %v", out, err)
	}
	// After all the refusals the model still works.
	out, err := m.Forward(input(t, &cfg, 3, model.Pick{Token: 2}, model.Pick{Token: 0}))
	if err != nil || out.Rows != 2 || out.Cols != 640 {
		t.Errorf("got %v, %v", out, err)
	}
}

// watcher notes what it is told.
type watcher struct{ events []string }

func (w *watcher) Begin(r attn.Rows) error {
	w.events = append(w.events, fmt.Sprintf("begin %v %v", r.Request, r.Position))
	return nil
}

func (w *watcher) Selected(layer, first int, p kernel.Tensor) error {
	w.events = append(w.events, fmt.Sprintf("selected %d from %d: %v", layer, first, p))
	return nil
}

func (w *watcher) Hidden(layer int, h kernel.Tensor) error {
	w.events = append(w.events, fmt.Sprintf("hidden %d: %v", layer, h))
	return nil
}

// A decode of the 130th token after a prompt: layers 0 and 1 select, layer 2 shares.
func TestObserver(t *testing.T) {
	m := load(t, "glm_moe_dsa-1", &ref.Device{})
	cfg := resolve(t, m, "bf16")
	if err := m.Allocate(&cfg, 3); err != nil {
		t.Fatal(err)
	}
	b := plan.NewBatch(plan.ModeDecode, plan.DecodeRequest(130))
	p, err := plan.Build(cfg, b)
	if err != nil {
		t.Fatal(err)
	}
	in := model.Input{Step: attn.Step{Plan: p, Config: &cfg, Batch: &b, Tables: [][]int32{{0, 1, 2}}, PageTokens: cfg.Page}, Tokens: [][]int32{{5}}}
	w := &watcher{}
	m.Observe(w)
	if _, err := m.Forward(in); err != nil {
		t.Fatal(err)
	}
	want := []string{"begin [0] [129]", "selected 0 from 0: i32[1,128]", "hidden 0: f32[1,128]", "selected 1 from 0: i32[1,128]", "hidden 1: f32[1,128]", "hidden 2: f32[1,128]"}
	if !slices.Equal(w.events, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(w.events, "\n"), strings.Join(want, "\n"))
	}
	m.Observe(nil)
	if _, err := m.Forward(in); err != nil || len(w.events) != len(want) {
		t.Errorf("after Observe(nil): %v, %d events", err, len(w.events))
	}
}
