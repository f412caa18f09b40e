package verify_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/cuda/op"
	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/model/synth"
	"sparrow/internal/step"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
	"sparrow/plan"
)

// slice returns DeepSeek-V3.2 at its full width with three layers, 16 experts and random weights that the device
// generates.
func slice(t *testing.T) *family.Source {
	t.Helper()
	text, err := synth.PresetConfig("v32-slice")
	if err != nil {
		t.Fatal(err)
	}
	small := strings.NewReplacer(`"num_hidden_layers": 6`, `"num_hidden_layers": 3`, `"n_routed_experts": 64`,
		`"n_routed_experts": 16`).Replace(string(text))
	c, err := synth.New("v32-slice", []byte(small), synth.Options{DType: synth.FP8, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if c.Config().Layers != 3 {
		t.Fatalf("%d layers, want 3", c.Config().Layers)
	}
	src, err := c.Dummy("v32-slice")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	return src
}

// sliced holds the results of a slice: logits, and the keys that rows of the first layer select.
type sliced struct {
	logits   [][]float32
	selected [][]int32
}

// runSlice computes two sequences, each with a prompt longer than a selection and then decodes. If requests are
// divided, each sequence is on its own rank.
func runSlice(t *testing.T, m model.Model) sliced {
	t.Helper()
	hw, err := model.Hardware(m.Device())
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: "fp8"})
	if err != nil {
		t.Fatal(err)
	}
	const prompt, decodes, logits = 2500, 6, 64
	pages := (prompt+decodes)/cfg.Page + 1
	if err := m.Allocate(&cfg, 2*pages); err != nil {
		t.Fatal(err)
	}
	record := plan.Record{Selections: true}
	r, err := step.New(m, cfg, step.Limits{Rows: prompt, Requests: 2, Context: prompt + decodes, PromptLogits: logits,
		Record: record})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	work := func(i int, w step.Work) step.Work {
		first := int32(i * pages)
		if cfg.Model.ByRequests() {
			w.Rank = i
			first = int32(2 * i * pages) // first page of the rank
		}
		for p := range int32(pages) {
			w.Pages = append(w.Pages, first+p)
		}
		w.Record, w.RecordTo = record, w.Logits
		return w
	}
	var out sliced
	run := func(works ...step.Work) {
		t.Helper()
		res, err := r.Run(works)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, w := range works {
			for range w.Logits {
				out.logits = append(out.logits, slices.Clone(res.Row(n)))
				out.selected = append(out.selected, slices.Sorted(slices.Values(res.Selected(0, n))))
				n++
			}
		}
	}
	text := func(seed, n int) []int32 {
		list := make([]int32, n)
		for i := range list {
			list[i] = int32((i*i*7 + i*31*seed + seed*977 + 2) % 129280)
		}
		return list
	}
	for i := range 2 {
		run(work(i, step.Work{Kind: plan.ModeExtend, Tokens: text(i, prompt), Logits: logits}))
	}
	for n := range decodes {
		run(work(0, step.Work{Kind: plan.ModeDecode, Tokens: text(3+n, 1), Cached: prompt + n, Logits: 1}),
			work(1, step.Work{Kind: plan.ModeDecode, Tokens: text(30+n, 1), Cached: prompt + n, Logits: 1}))
	}
	return out
}

// A slice of DeepSeek-V3.2 at its full width on two ranks of one GPU agrees with the GPU alone: the keys that the first
// layer selects are equal, because no sum over ranks has rounded its inputs. Logits agree except for rounding and for
// expert choices that rounding changes.
func TestGPURanksOfASlice(t *testing.T) {
	if err := cuda.Available(); err != nil {
		t.Skipf("needs a Hopper GPU: %v", err)
	}
	src := slice(t)
	var want sliced
	t.Run("one", func(t *testing.T) {
		dev, err := op.Open(0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Close() })
		m, err := src.Load(dev, nil)
		if err != nil {
			t.Fatal(err)
		}
		want = runSlice(t, m)
	})
	for _, how := range []plan.Division{plan.ByHeads, plan.ByRequests} {
		t.Run(how.String(), func(t *testing.T) {
			got := runSlice(t, onRanks(t, src, 2, how, func() (kernel.Device, error) { return op.Open(0) }))
			var cosines []float64
			same := 0
			for i, row := range want.logits {
				cosines = append(cosines, cosineOf(got.logits[i], row))
				if largest(got.logits[i]) == largest(row) {
					same++
				}
				if !slices.Equal(got.selected[i], want.selected[i]) {
					t.Errorf("row %d of the first layer selects other keys", i)
				}
			}
			slices.Sort(cosines)
			t.Logf("cosine of %d rows of logits: least %.5f, median %.5f; %d have the same most likely token",
				len(cosines), cosines[0], cosines[len(cosines)/2], same)
			if median := cosines[len(cosines)/2]; !(median > 0.99) {
				t.Errorf("median cosine of logits %.4f, want above 0.99", median)
			}
		})
	}
}

func largest(v []float32) int {
	best := 0
	for i := range v {
		if v[i] > v[best] {
			best = i
		}
	}
	return best
}

func cosineOf(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab, aa, bb = ab+float64(a[i])*float64(b[i]), aa+float64(a[i])*float64(a[i]), bb+float64(b[i])*float64(b[i])
	}
	return ab / math.Sqrt(aa*bb)
}
