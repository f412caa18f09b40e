package verify_test

import (
	"math"
	"path/filepath"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/model/llamacpp"
	"sparrow/internal/step"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/verify"
	"sparrow/weight"
)

const glmNext = "glm5_next-1"

// Linear attention with pooled selection gives the results of the independent implementation, whole and in chunks that
// end at the boundary of a pool, at a multiple of 64 positions, or elsewhere.
func TestNextExact(t *testing.T) {
	dir := unpacked(t, glmNext)
	for i, k := range kernels() {
		t.Run(k, func(t *testing.T) {
			chunks := []int{0, 3, 128}
			switch {
			case i == 0 && !*long:
				t.Skip("make long runs it")
			case i == 0:
				chunks = []int{0}
			case k == "cpu-go" && !plain() && !*long:
				t.Skip("make long runs it: this tier operation by operation against the reference")
			case i > 1:
				chunks = []int{127}
			case *long:
				chunks = []int{0, 1, 3, 64, 127, 128}
			}
			m := openPath(t, dir, k, kernel.Options{Precise: true})
			for _, c := range chunks {
				golden := dir
				if c == 3 { // so small chunks of the longest case are many passes
					golden = shorter(t, dir)
				}
				r := run(t, golden, m, plan.Policy{KV: "f32"}, c)
				if !r.Exact {
					t.Error("the report does not say that rows were exact")
				}
				for _, c := range r.Cases {
					if c.Selections != 8 || c.GreedyOf != 24 {
						t.Errorf("case %s compared %d selections and %d greedy tokens", c.Name, c.Selections,
							c.GreedyOf)
					}
				}
			}
		})
	}
}

// A GGUF file that is written from the checkpoint gives the results of the independent implementation when it is read.
func TestNextFromGGUF(t *testing.T) {
	dir := unpacked(t, glmNext)
	src, err := family.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	path := filepath.Join(t.TempDir(), "next.gguf")
	m := &llamacpp.Model{Name: glmNext, Config: src.Model, Weights: src.Weights}
	if _, err := llamacpp.Write(t.Context(), path, m, llamacpp.MixF32, nil); err != nil {
		t.Fatal(err)
	}
	again := openPath(t, path, "cpu", kernel.Options{Precise: true})
	if r := run(t, shorter(t, dir), again, plan.Policy{KV: "f32"}, 128); !r.Exact {
		t.Error("the report does not say that rows were exact")
	}
}

// At the last rows of every prompt, the drafting layer gives the logits of the independent implementation.
func TestNextDraftingLayer(t *testing.T) {
	dir := unpacked(t, glmNext)
	m := openPath(t, dir, "cpu", kernel.Options{})
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: "f32", Speculation: plan.Speculation{Tokens: 2}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Allocate(&cfg, 4); err != nil {
		t.Fatal(err)
	}
	steps, err := step.New(m, cfg, step.Limits{Rows: 424, Requests: 1, Context: 512})
	if err != nil {
		t.Fatal(err)
	}
	defer steps.Close()
	golden, err := verify.ReadGolden(dir)
	if err != nil {
		t.Fatal(err)
	}
	file, err := weight.OpenFile(filepath.Join(dir, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	pages := []int32{3, 1}
	for _, g := range golden {
		at, _ := file.Tensor(g.Name + ".mtp_logits")
		want, err := weight.ReadF32(at)
		if err != nil {
			t.Fatal(err)
		}
		tokens := append(g.Input, g.Greedy[0])
		for row := range 4 {
			if !*long && row%3 != 0 {
				continue // only the first and the last row are compared
			}
			n := len(g.Input) - 3 + row
			state, err := m.(model.Stateful).NewState()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := steps.Run([]step.Work{{Kind: plan.ModeExtend, Tokens: tokens[:n], Pages: pages,
				State: state}}); err != nil {
				t.Fatal(err)
			}
			res, err := steps.Draft([]step.Draft{{Kind: plan.ModeExtend, Tokens: tokens[1 : n+1], Pages: pages,
				State: state, Logits: true}}, false)
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range res.Row(0) {
				if e := math.Abs(float64(v - want[row*len(res.Row(0))+i])); e > 2e-3 {
					t.Fatalf("%s: row %d: logit %d is off by %.2e", g.Name, row, i, e)
				}
			}
			state.Release()
		}
	}
}

// Rounded rows are close to the independent implementation by the measures of tolerance.go, and the exact comparison
// rejects them.
func TestNextQuantised(t *testing.T) {
	dir := unpacked(t, glmNext)
	m := openPath(t, dir, "cpu", kernel.Options{})
	for _, p := range []plan.Policy{{KV: "bf16"}, {KV: "fp8"}, {KV: "fp8", Prefill: "sparse-flat"},
		{KV: "bf16", ExactIndex: true}} {
		r := run(t, dir, m, p, 100)
		for _, c := range r.Cases {
			if r.Exact || c.MaxError < 2e-3 {
				t.Errorf("%s: case %s: largest error %g; the comparison does not show rounding", p.KV, c.Name,
					c.MaxError)
			}
		}
	}
}
