package step_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sparrow/internal/cuda/op"
	"sparrow/internal/model"
	"sparrow/internal/model/synth"
	"sparrow/internal/step"
	"sparrow/internal/testkit/launches"
	"sparrow/internal/testkit/table"
	"sparrow/internal/testmodel"
	"sparrow/kernel/cuda"
	"sparrow/plan"
)

// restorer is a model whose sequences have states.
type restorer interface {
	Restore(n int, windows []int32) (model.State, error)
}

// The launches of small passes, with the arguments of their kernels, are those of the golden table. Neighbouring
// operations share launches, so a launch that reads or writes another tensor than its operations, or that is missing,
// changes a line. Equal numbers after m are equal addresses.
func TestTableOfPasses(t *testing.T) {
	v4 := strings.NewReplacer(`"o_lora_rank": 32`, `"o_lora_rank": 128`, `"hc_mult"`,
		`"expert_dtype": "fp4", "hc_mult"`, `"hidden_size": 64`, `"hidden_size": 512`).Replace(testmodel.V4Config)
	next := strings.Replace(fmt.Sprintf(nextLayers, 2, `"linear_attention", "deepseek_sparse_attention"`),
		`"n_routed_experts": 288`, `"n_routed_experts": 16`, 1)
	decode := func(n, cached int) []step.Work {
		out := make([]step.Work, n)
		for i := range out {
			out[i] = step.Work{Kind: plan.ModeDecode, Tokens: []int32{7}, Cached: cached, Logits: 1}
		}
		return out
	}
	prompt := func(n, cached int) []step.Work {
		return []step.Work{{Kind: plan.ModeExtend, Tokens: make([]int32, n), Cached: cached, Logits: 1}}
	}
	verify := []step.Work{{Kind: plan.ModeVerify, Tokens: []int32{7, 8, 9}, Cached: 3000, Logits: 3}}
	var lines []string
	type pass struct {
		name  string
		works []step.Work
	}
	for _, m := range []struct {
		name, config string
		policy       plan.Policy
		passes       []pass
	}{
		{"deepseek_v32", fmt.Sprintf(v32Layers, 2, 1, 2048), plan.Policy{KV: "fp8-656"}, []pass{
			{"two decodes", decode(2, 4000)}, {"a short decode", decode(1, 100)}, {"a prompt", prompt(90, 2500)},
			{"drafts", verify}}},
		{"deepseek_v4", v4, plan.Policy{KV: "fp8"}, []pass{{"a decode", decode(1, 3840)},
			{"a prompt", prompt(130, 256)}}},
		{"glm5_next", next, plan.Policy{KV: "fp8"}, []pass{{"a decode", decode(1, 3840)},
			{"a prompt", prompt(90, 3840)}}},
		{"glm5_next", next, plan.Policy{KV: "fp8", Prefill: "sparse-flat"}, []pass{
			{"a prompt over gathered rows", prompt(90, 3840)}}},
	} {
		c, err := synth.New("layers", []byte(m.config), synth.Options{Seed: 1, DType: synth.FP8})
		dir := t.TempDir()
		if err == nil {
			err = c.Write(context.Background(), dir, nil, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		gpu := cuda.OpenDetached(cuda.H200)
		dev, err := op.On(gpu)
		if err != nil {
			t.Fatal(err)
		}
		b := newBench(t, loadOn(t, dir, dev), m.policy)
		b.run.Close()
		if b.run, err = step.New(b.m, b.cfg, step.Limits{Rows: 256, Requests: 4, Context: 8192,
			GraphBytes: -1}); err != nil {
			t.Fatal(err)
		}
		for _, p := range m.passes {
			lines = append(lines, m.name+", "+p.name)
			for i := range p.works {
				w := &p.works[i]
				w.Pages = make([]int32, (w.Cached+len(w.Tokens))/b.cfg.Page+1)
				if r, ok := b.m.(restorer); ok {
					if w.State, err = r.Restore(w.Cached, w.Pages); err != nil {
						t.Fatal(err)
					}
				}
			}
			numbers := map[cuda.Ptr]int{}
			gpu.Watch(func(kernel string, l cuda.Launch, args any) {
				lines = append(lines, fmt.Sprint("  ", kernel, " ", l.Grid, launches.Fields(args, numbers)))
			})
			b.step(p.works...)
			gpu.Watch(nil)
			for i := range p.works {
				if s := p.works[i].State; s != nil {
					s.Release()
				}
			}
		}
		b.run.Close()
	}
	table.Check(t, "passes.txt", lines)
}
