package step_test

import (
	"fmt"
	"strings"
	"testing"

	"sparrow/internal/cuda/op"
	"sparrow/internal/model"
	"sparrow/internal/model/synth"
	"sparrow/internal/step"
	"sparrow/kernel/cuda"
	"sparrow/plan"
)

// nextLayers is a configuration of GLM-5.3-Flash with few layers and narrow experts; its heads have the released sizes.
const nextLayers = `{
	"architectures": ["Glm5NextForConditionalGeneration"], "model_type": "glm5_next",
	"vocab_size": 640, "hidden_size": 256, "intermediate_size": 256, "moe_intermediate_size": 128,
	"num_hidden_layers": %d, "layer_types": [%s], "first_k_dense_replace": 1,
	"num_attention_heads": 64, "num_key_value_heads": 64, "q_lora_rank": 256, "kv_lora_rank": 512,
	"qk_nope_head_dim": 256, "qk_rope_head_dim": 0, "v_head_dim": 256,
	"n_routed_experts": 288, "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 1, "topk_group": 1,
	"routed_scaling_factor": 1.5, "swiglu_limit": 10.0,
	"index_n_heads": 32, "index_head_dim": 128, "index_topk": 2048, "index_kpool": 4,
	"linear_attn_config": {"num_heads": 64, "head_dim": 128, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0},
	"hc_mult": 4, "hc_sinkhorn_iters": 4, "hc_eps": 1e-06, "rms_norm_eps": 1e-05, "max_position_embeddings": 65536,
	"num_nextn_predict_layers": 0, "attention_bias": false, "tie_word_embeddings": false, "hidden_act": "silu",
	"bos_token_id": 0, "eos_token_id": 1
}`

// The GPU has a kernel for every operation of GLM-5.3-Flash, in a prompt pass and in a decode pass. The test also
// checks the number of launches of each kind of layer.
func TestDecodeLayerLaunchesNext(t *testing.T) {
	base := launchesOfNext(t, "linear_attention", "deepseek_sparse_attention")
	for kind, want := range map[string]int64{"linear_attention": 21, "deepseek_sparse_attention": 33} {
		more := launchesOfNext(t, "linear_attention", "deepseek_sparse_attention", kind)
		for kv, n := range more {
			if took := n - base[kv]; took != want { // fewer launches would be better
				t.Errorf("%s rows, %s: %d launches of a layer, want %d", kv, kind, took, want)
			}
		}
	}
}

// launchesOfNext returns, for each cache layout, the number of launches of one decode pass after 15 pages.
func launchesOfNext(t *testing.T, kinds ...string) map[string]int64 {
	t.Helper()
	config := fmt.Sprintf(nextLayers, len(kinds), `"`+strings.Join(kinds, `", "`)+`"`)
	c, err := synth.New("layers", []byte(config), synth.Options{Seed: 1, DType: synth.FP8})
	if err != nil {
		t.Fatal(err)
	}
	src, err := c.Dummy("layers")
	if err != nil {
		t.Fatal(err)
	}
	dev, err := op.On(cuda.OpenDetached(cuda.H200))
	if err != nil {
		t.Fatal(err)
	}
	m, err := src.Load(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close(); src.Close() })
	took := map[string]int64{}
	for _, kv := range []string{"fp8", "bf16"} {
		took[kv] = decodeOfNext(newBench(t, m, plan.Policy{KV: kv}), dev.Launches)
	}
	return took
}

// decodeOfNext returns the number of launches of a decode pass with one cache layout.
func decodeOfNext(b *bench, launches func() int64) int64 {
	b.Helper()
	b.run.Close()
	var err error
	limits := step.Limits{Rows: 256, Requests: 1, Context: 8192, GraphBytes: -1}
	if b.run, err = step.New(b.m, b.cfg, limits); err != nil {
		b.Fatal(err)
	}
	defer b.run.Close()
	const cached = 15 * 256
	pages := make([]int32, cached/256+1)
	restore := b.m.(interface {
		Restore(n int, windows []int32) (model.State, error)
	}).Restore
	state, err := restore(cached, pages)
	if err != nil {
		b.Fatal(err)
	}
	defer state.Release()
	tokens := make([]int32, 127)
	b.step(step.Work{Kind: plan.ModeExtend, Tokens: tokens, Cached: cached, Pages: pages, State: state, Logits: 1})
	before := launches()
	b.step(step.Work{Kind: plan.ModeDecode, Tokens: []int32{7}, Cached: cached + 127, Pages: pages, State: state,
		Logits: 1})
	return launches() - before
}
