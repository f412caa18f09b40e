package v4_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"sparrow/internal/model/synth"
	"sparrow/internal/model/v4"
	"sparrow/internal/step"
	"sparrow/internal/testkit/steps"
	"sparrow/internal/testkit/testflag"
	"sparrow/plan"
)

// speckConfig is the smallest config of DeepSeek-V4, with one layer of each ratio and one head.
const speckConfig = `{
	"architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4",
	"vocab_size": 64, "hidden_size": 32, "moe_intermediate_size": 32,
	"num_hidden_layers": 2, "compress_ratios": [4, 128], "num_hash_layers": 1,
	"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64,
	"q_lora_rank": 32, "o_lora_rank": 32, "o_groups": 1, "sliding_window": 128,
	"n_routed_experts": 2, "n_shared_experts": 1, "num_experts_per_tok": 1, "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc",
	"norm_topk_prob": true, "routed_scaling_factor": 1.5, "swiglu_limit": 10.0,
	"index_n_heads": 1, "index_head_dim": 128, "index_topk": 16,
	"hc_mult": 4, "hc_sinkhorn_iters": 2, "hc_eps": 1e-06, "rms_norm_eps": 1e-06,
	"max_position_embeddings": 65536, "rope_theta": 10000, "compress_rope_theta": 160000,
	"rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1},
	"num_nextn_predict_layers": 0, "attention_bias": false, "tie_word_embeddings": false, "hidden_act": "silu",
	"bos_token_id": 0, "eos_token_id": 1
}`

func speck(t *testing.T) string {
	t.Helper()
	c, err := synth.New("speck", []byte(speckConfig), synth.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "speck")
	if err := c.Write(context.Background(), dir, nil, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

var long = testflag.Long

// A prompt of 32,768 tokens runs in one step over the workspace, and one of 16,640 tokens runs in place in launches
// that fit a small reserve. Every row has the same bits in both.
func TestAChunkOf32768Tokens(t *testing.T) {
	if !*long {
		t.Skip("make long runs it")
	}
	m := steps.Open[*v4.Model](t, speck(t), "cpu")
	var want [][]float32
	for _, c := range []struct {
		prefill  string
		n        int
		reserve  int64
		launches string // launches of the rows that are scored
	}{{"v4-flat", 32768, 0, "[32701]"}, {"v4-paged", 16640, 12 << 20, "[14282 2291]"}} {
		n := c.n
		hw, err := plan.HardwareFor("cpu")
		if err != nil {
			t.Fatal(err)
		}
		cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: "fp8", Prefill: c.prefill, MaxTransient: c.reserve})
		if err != nil {
			t.Fatal(err)
		}
		b := steps.Of(t, m, cfg, step.Limits{Rows: n, Requests: 1, Prompts: 1, Context: n, PromptLogits: n})
		if err := m.AllocateWindows(&cfg, n/cfg.Page, n/cfg.Page); err != nil {
			t.Fatal(err)
		}
		s := b.Sequence(1, n)
		for i := range s.Pages {
			s.Pages[i] = int32(i)
		}
		res, err := b.Runner.Run([]step.Work{s.Work(plan.ModeExtend, n)})
		if err != nil {
			t.Fatal(err)
		}
		var rows []int
		scored := res.Plan.Segments[len(res.Plan.Segments)-1]
		for _, l := range scored.Launches {
			rows = append(rows, l.Rows)
		}
		if got := fmt.Sprint(rows); got != c.launches || scored.Row != plan.RowSparsePrefill {
			t.Errorf("%s: launches of %v rows %v; want %s", c.prefill, scored.Row, got, c.launches)
		}
		var got [][]float32
		for i := range n {
			got = append(got, append([]float32(nil), res.Row(i)...))
		}
		if want == nil {
			want = got
			continue
		}
		b.SameBits(c.prefill, got, want[:n])
	}
}

// Tokens before the end of the first group have an empty compressed stream. In a launch with sequences that have
// entries, these tokens read no entry.
func TestAnEmptyStreamBesideAFullOne(t *testing.T) {
	m := steps.Open[*v4.Model](t, speck(t), "cpu")
	for _, prefill := range []string{"v4-flat", "v4-paged"} {
		b := steps.New(t, m, plan.Policy{KV: "fp8", Prefill: prefill})
		lengths := []int{1, 600, 2, 3, 700}
		var want [][]float32
		for i, n := range lengths {
			b.Reset()
			want = append(want, b.Chunks(b.Sequence(i, n), 0)...)
		}
		b.Reset()
		var works []step.Work
		for i, n := range lengths {
			works = append(works, b.Sequence(i, n).Work(plan.ModeExtend, n))
		}
		b.SameBits(prefill, b.Step(works...), want)
	}
}
