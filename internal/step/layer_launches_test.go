package step_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/synth"
	"sparrow/internal/step"
	"sparrow/internal/testmodel"
	"sparrow/plan"
)

// maxLayerLaunches is the maximum number of GPU launches of a decode layer of DeepSeek-V3.2 with experts.
const maxLayerLaunches = 25

// The test counts the launches of decode passes with different numbers of layers; the difference is the number of
// launches of one layer. The widths are small multiples of a scale block (released widths are multiples too), and
// contexts exceed index_topk.
func TestDecodeLayerLaunches(t *testing.T) {
	for _, c := range []struct {
		name  string
		dense func(layers int) int
		want  int64 // current number of launches; fewer would be better
	}{
		{"deepseek_v32, experts", func(int) int { return 1 }, 23},
		{"deepseek_v32, dense", func(layers int) int { return layers }, 19},
	} {
		batches := []int{1, 16, 64, 128}
		more, less := launchesOf(t, 3, c.dense(3), batches), launchesOf(t, 2, c.dense(2), batches)
		for i, batch := range batches {
			if took := more[i] - less[i]; took > maxLayerLaunches || took != c.want {
				t.Errorf("%s, %d sequences: %d launches of a layer, want %d and at most %d", c.name, batch, took,
					c.want, maxLayerLaunches)
			}
		}
	}
}

// The test counts the launches of a decode layer of DeepSeek-V4 for each compression ratio.
func TestDecodeLayerLaunchesV4(t *testing.T) {
	base := launchesOfV4(t, "0, 4, 128", 3)
	for ratio, want := range map[string]int64{"0": 21, "4": 29, "128": 22} { // current numbers of launches
		if took := launchesOfV4(t, "0, 4, 128, "+ratio, 4) - base; took != want {
			t.Errorf("ratio %s: %d launches of a layer, want %d", ratio, took, want)
		}
	}
}

// launchesOfV4 returns the number of launches of one decode pass after 15 pages.
func launchesOfV4(t *testing.T, ratios string, layers int) int64 {
	t.Helper()
	config := strings.NewReplacer(`"num_hidden_layers": 3, "compress_ratios": [0, 4, 128]`,
		fmt.Sprintf(`"num_hidden_layers": %d, "compress_ratios": [%s]`, layers, ratios),
		`"o_lora_rank": 32`, `"o_lora_rank": 128`, `"hc_mult"`, `"expert_dtype": "fp4", "hc_mult"`,
		`"hidden_size": 64`, `"hidden_size": 512`).Replace(testmodel.V4Config)
	c, err := synth.New("layers", []byte(config), synth.Options{Seed: 1, DType: synth.FP8})
	dir := t.TempDir()
	if err == nil {
		err = c.Write(context.Background(), dir, nil, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	m, dev := detached(t, dir)
	b := newBench(t, m, plan.Policy{KV: "fp8"})
	const cached = 15 * 256
	pages := make([]int32, cached/256+1)
	state, err := m.(interface {
		Restore(n int, windows []int32) (model.State, error)
	}).Restore(cached, pages)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Release()
	before := dev.Launches()
	b.step(step.Work{Kind: plan.ModeDecode, Tokens: []int32{7}, Cached: cached, Pages: pages, State: state, Logits: 1})
	return dev.Launches() - before
}

// layersOf writes a checkpoint with the configuration v32Layers and a drafting layer.
func layersOf(t *testing.T, layers, dense, topK int, kind synth.DType) string {
	t.Helper()
	one := 1
	c, err := synth.New("layers", []byte(fmt.Sprintf(v32Layers, layers, dense, topK)),
		synth.Options{Seed: 1, DType: kind, NextN: &one})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := c.Write(context.Background(), dir, nil, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// launchesOf returns the number of launches of one decode pass for each number of sequences.
func launchesOf(t *testing.T, layers, dense int, batches []int) (took []int64) {
	t.Helper()
	m, dev := detached(t, layersOf(t, layers, dense, 2048, synth.FP8))
	b := newBench(t, m, plan.Policy{KV: "fp8-656"})
	pages := make([]int32, 64)
	for _, batch := range batches {
		b.run.Close()
		var err error
		if b.run, err = step.New(m, b.cfg, step.Limits{Rows: 256, Requests: batch, Context: 4096,
			GraphBytes: -1}); err != nil {
			t.Fatal(err)
		}
		var works []step.Work
		for range batch {
			works = append(works, step.Work{Kind: plan.ModeDecode, Tokens: []int32{7}, Cached: 4000, Pages: pages,
				Logits: 1})
		}
		before := dev.Launches()
		b.step(works...)
		took = append(took, dev.Launches()-before)
	}
	b.run.Close()
	return took
}

// v32Layers is a configuration of DeepSeek-V3.2 in which the numbers of layers and of dense layers are parameters.
const v32Layers = `{
	"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32",
	"vocab_size": 640, "hidden_size": 256, "intermediate_size": 256, "moe_intermediate_size": 128,
	"num_hidden_layers": %d, "first_k_dense_replace": %d, "moe_layer_freq": 1,
	"num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 128, "kv_lora_rank": 512,
	"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
	"n_routed_experts": 16, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2,
	"scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": true, "routed_scaling_factor": 2.5,
	"index_n_heads": 64, "index_head_dim": 128, "index_topk": %d,
	"rms_norm_eps": 1e-06, "max_position_embeddings": 8192, "rope_theta": 10000,
	"num_nextn_predict_layers": 0, "attention_bias": false, "tie_word_embeddings": false, "hidden_act": "silu",
	"bos_token_id": 0, "eos_token_id": 1
}`
