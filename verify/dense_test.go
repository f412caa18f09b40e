package verify_test

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/step"
	"sparrow/internal/testkit/archive"
	"sparrow/internal/testkit/gpu"
	"sparrow/internal/testkit/rounded"
	"sparrow/kernel"
	"sparrow/kernel/ref"
	"sparrow/plan"
	"sparrow/verify"
	"sparrow/weight"
)

// unpacked returns the folder of a reference checkpoint that is stored as an archive.
func unpacked(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(archive.Unpack(t, folder(name)+".tar.gz"), name)
}

// dense lists checkpoints without an indexer and the tolerances of their logits.
var dense = []struct {
	name  string
	logit float64
}{{"deepseek_v3-1", 2e-3}, {"deepseek_v3-plain-1", 2e-3}, {"kimi_k25-1", 1e-3}, {"glm4_moe_lite-1", 2e-3},
	{"kimi_k25-int4-1", 2e-3}}

// Models without an indexer give the results of the independent implementation. Prompts run whole and in chunks, in
// expanded form and in latent space. Decodes are in latent space at every length.
func TestDenseModels(t *testing.T) {
	for i, c := range dense {
		t.Run(c.name, func(t *testing.T) {
			dir := unpacked(t, c.name)
			// Integer products quantise rows to eight bits, unless exact products are required.
			m := openPath(t, dir, "cpu", kernel.Options{Precise: c.name == "kimi_k25-int4-1"})
			for j, x := range []struct {
				policy plan.Policy
				chunk  int
				form   string
			}{
				{plan.Policy{KV: "f32"}, 0, "dense-prefill: dense-mha by dense-ragged"},
				{plan.Policy{KV: "f32", DenseThreshold: 100}, 70, "latent-prefill: dense-mla by dense-latent"},
				{plan.Policy{KV: "bf16"}, 0, "decode: dense-mla by dense-latent over bf16-1152"},
				{plan.Policy{KV: "fp8-656", Dense: plan.SwitchOff}, 64, "latent-prefill: dense-mla"},
				{plan.Policy{KV: "fp8-576"}, 0, "decode: dense-mla by dense-latent over fp8-576"},
			} {
				if j >= 2 && (i+j)%3 != 0 && !*long {
					continue // these settings are tested with another checkpoint
				}
				golden := dir
				if i > 0 && j < 2 { // all checkpoints run these settings, the first one with its longest case
					golden = shorter(t, dir)
				}
				r := run(t, golden, m, x.policy, x.chunk)
				var text strings.Builder
				if err := r.Print(&text); err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(text.String(), x.form) || strings.Contains(text.String(), "sparse") {
					t.Errorf("%q is not among the forms:\n%s", x.form, &text)
				}
				for _, g := range r.Cases {
					if r.Exact && g.MaxError > c.logit {
						t.Errorf("%s: logits off by %.2e, want at most %.0e", g.Name, g.MaxError, c.logit)
					}
				}
			}
		})
	}
}

// Ranks that share a model without an indexer, by heads or by requests, agree with the independent implementation as
// one device does.
func TestDenseModelsOnRanks(t *testing.T) {
	for _, c := range []struct {
		name string
		how  plan.Division
	}{{"deepseek_v3-1", plan.ByHeads}, {"deepseek_v3-plain-1", plan.ByRequests}} {
		t.Run(fmt.Sprintf("%s %v", c.name, c.how), func(t *testing.T) {
			dir := unpacked(t, c.name)
			run(t, dir, openRanks(t, dir, "cpu", 2, c.how, kernel.Options{Precise: true}), plan.Policy{KV: "f32"}, 64)
		})
	}
}

// At the last rows of every prompt, the drafting layer of DeepSeek-V3 gives the logits of the independent
// implementation.
func TestDenseDraftingLayer(t *testing.T) {
	dir := unpacked(t, "deepseek_v3-1")
	for _, d := range denseDrafts(t, dir, openPath(t, dir, "cpu", kernel.Options{}), plan.Policy{KV: "f32"}) {
		for i, v := range d.got {
			if e := math.Abs(float64(v - d.want[i])); e > 2e-3 {
				t.Fatalf("%s: logit %d is off by %.2e", d.name, i, e)
			}
		}
	}
}

// On a GPU, the errors of the drafting layer's rows against the independent implementation are at most twice those of
// the reference with the same rounding, as verify requires. Rounding alone routes some rows of random weights to other
// experts.
func TestGPUOracleDenseDraftingLayer(t *testing.T) {
	gpu.Need(t)
	dir := unpacked(t, "deepseek_v3-1")
	for _, kv := range []string{"bf16", "fp8-656", "fp8-576"} {
		dev := gpu.Open(t)
		got := draftError(t, dir, dev, kv)
		own := draftError(t, dir, rounded.On(&ref.Device{Rounded: true}, dev.Hardware()), kv)
		if t.Logf("%s: rows are off by %.4f of their size, the reference by %.4f", kv, got, own); !(got <= 2*own) {
			t.Errorf("%s: rows are off by more than twice the reference's error", kv)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

// draftError returns the median distance of the drafting layer's rows from the rows of the independent implementation,
// relative to the norm of a row.
func draftError(t *testing.T, dir string, dev kernel.Device, kv string) float64 {
	t.Helper()
	src, err := family.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	m, err := src.Load(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	var errors []float64
	for _, d := range denseDrafts(t, dir, m, plan.Policy{KV: kv}) {
		off, size := 0.0, 0.0
		for i, v := range d.want {
			off, size = off+math.Pow(float64(d.got[i]-v), 2), size+math.Pow(float64(v), 2)
		}
		errors = append(errors, math.Sqrt(off/size))
	}
	slices.Sort(errors)
	return errors[len(errors)/2]
}

// draftRow holds logits of a drafting layer and the logits of the independent implementation.
type draftRow struct {
	name      string
	got, want []float32
}

// denseDrafts runs the drafting layer at the last rows of every prompt. The row of position t is computed from the
// target's hidden state and token t+1; after the last position that token is the first greedy token.
func denseDrafts(t *testing.T, dir string, m model.Model, p plan.Policy) (rows []draftRow) {
	t.Helper()
	hw, err := model.Hardware(m.Device())
	if err != nil {
		t.Fatal(err)
	}
	p.Speculation = plan.Speculation{Tokens: 2}
	cfg, _, err := plan.Resolve(hw, m.Facts(), p)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Allocate(&cfg, 8); err != nil {
		t.Fatal(err)
	}
	steps, err := step.New(m, cfg, step.Limits{Rows: 304, Requests: 1, Context: 512})
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
	pages := []int32{6, 1, 5, 2, 4}
	for _, g := range golden {
		at, _ := file.Tensor(g.Name + ".mtp_logits")
		want, err := weight.ReadF32(at)
		if err != nil {
			t.Fatal(err)
		}
		tokens := append(g.Input, g.Greedy[0])
		for row := range 4 {
			n := len(g.Input) - 3 + row
			if _, err := steps.Run([]step.Work{{Kind: plan.ModeExtend, Tokens: tokens[:n], Pages: pages}}); err != nil {
				t.Fatal(err)
			}
			res, err := steps.Draft([]step.Draft{{Kind: plan.ModeExtend, Tokens: tokens[1 : n+1], Pages: pages,
				Logits: true}}, false)
			if err != nil {
				t.Fatal(err)
			}
			got := slices.Clone(res.Row(0))
			rows = append(rows, draftRow{fmt.Sprintf("%s, row %d", g.Name, row), got, want[row*len(got):][:len(got)]})
		}
	}
	return rows
}
