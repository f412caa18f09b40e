// Package testmodel writes small random checkpoints for tests of the engine: the smallest shapes with all parts of a
// family, so that tests of whole engines are fast enough under the race detector. Each is written once for all tests of
// a package.
package testmodel

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sparrow/internal/model/synth"
)

// v32 is DeepSeek-V3.2 with one layer and two heads, which two ranks can divide. The top-k of its indexer is below the
// length of the tests' prompts, and its cached rows have the released size.
const v32 = `{
	"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32",
	"vocab_size": 640, "hidden_size": 64, "intermediate_size": 64, "moe_intermediate_size": 64,
	"num_hidden_layers": 1, "first_k_dense_replace": 1, "moe_layer_freq": 1,
	"num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 64, "kv_lora_rank": 512,
	"qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 64,
	"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
	"scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": true, "routed_scaling_factor": 1.0,
	"index_n_heads": 2, "index_head_dim": 128, "index_topk": 16,
	"rms_norm_eps": 1e-06, "max_position_embeddings": 8192, "rope_theta": 10000,
	"num_nextn_predict_layers": 0, "attention_bias": false, "tie_word_embeddings": false, "hidden_act": "silu",
	"bos_token_id": 0, "eos_token_id": 1
}`

// v3 is DeepSeek-V3 in the same size: every row attends to every key.
var v3 = strings.NewReplacer(`"DeepseekV32ForCausalLM"`, `"DeepseekV3ForCausalLM"`, `"deepseek_v32"`, `"deepseek_v3"`,
	`"index_n_heads": 2, "index_head_dim": 128, "index_topk": 16,`, "").Replace(v32)

// V4Config is DeepSeek-V4 with one layer of each kind, two heads and pages of 256 tokens.
const V4Config = `{
	"architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4",
	"vocab_size": 640, "hidden_size": 64, "moe_intermediate_size": 32,
	"num_hidden_layers": 3, "compress_ratios": [0, 4, 128], "num_hash_layers": 1,
	"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64,
	"q_lora_rank": 64, "o_lora_rank": 32, "o_groups": 2, "sliding_window": 128,
	"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "scoring_func": "sqrtsoftplus",
		"topk_method": "noaux_tc",
	"norm_topk_prob": true, "routed_scaling_factor": 1.5, "swiglu_limit": 10.0,
	"index_n_heads": 2, "index_head_dim": 128, "index_topk": 16,
	"hc_mult": 4, "hc_sinkhorn_iters": 4, "hc_eps": 1e-06, "rms_norm_eps": 1e-06,
	"max_position_embeddings": 65536, "rope_theta": 10000, "compress_rope_theta": 160000,
	"rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 4096, "beta_fast": 32,
		"beta_slow": 1},
	"num_nextn_predict_layers": 0, "attention_bias": false, "tie_word_embeddings": false, "hidden_act": "silu",
	"bos_token_id": 0, "eos_token_id": 1
}`

// next is GLM-5.3-Flash with one layer of each kind, two heads and pages of 256 tokens.
const next = `{
	"architectures": ["Glm5NextForConditionalGeneration"], "model_type": "glm5_next",
	"vocab_size": 640, "hidden_size": 64, "intermediate_size": 64, "moe_intermediate_size": 32,
	"num_hidden_layers": 2, "layer_types": ["linear_attention", "deepseek_sparse_attention"],
		"first_k_dense_replace": 1,
	"num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 64, "kv_lora_rank": 512,
	"qk_nope_head_dim": 64, "qk_rope_head_dim": 0, "v_head_dim": 64,
	"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
	"routed_scaling_factor": 1.5, "swiglu_limit": 10.0,
	"index_n_heads": 2, "index_head_dim": 128, "index_topk": 64, "index_kpool": 4,
	"linear_attn_config": {"num_heads": 2, "head_dim": 128, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0},
	"hc_mult": 4, "hc_sinkhorn_iters": 4, "hc_eps": 1e-06, "rms_norm_eps": 1e-05, "max_position_embeddings": 65536,
	"num_nextn_predict_layers": 0, "attention_bias": false, "tie_word_embeddings": false, "hidden_act": "silu",
	"bos_token_id": 0, "eos_token_id": 1
}`

// V4SparkConfig is V4Config with a DSpark head: two stages that read all three layers.
var V4SparkConfig = strings.NewReplacer(`"compress_ratios": [0, 4, 128]`, `"compress_ratios": [0, 4, 128, 0, 0]`,
	`"num_nextn_predict_layers": 0`, `"num_nextn_predict_layers": 1, "dspark_block_size": 5, "dspark_markov_rank": 16,
	"dspark_noise_token_id": 7, "dspark_target_layer_ids": [0, 1, 2]`).Replace(V4Config)

// V41Config is DeepSeek-V4.1 with two heads: a window, an n-gram table, entries of two tokens and of one, a layer that
// reads shared entries and selections, and a layer that selects inside 3 candidate blocks of 8 entries.
const V41Config = `{
	"architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41", "dtype": "bfloat16",
	"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
	"text_config": {
	"model_type": "deepseek_v41_text", "vocab_size": 640, "hidden_size": 64, "moe_intermediate_size": 32,
	"num_hidden_layers": 6, "compress_ratios": [0, 2, 2, 1, 1, 1], "kv_source_layer_ids": [1, 3],
	"index_source_layer_ids": [1, 3, 4], "candidate_source_layer_id": 3, "candidate_topk_blocks": 3,
	"candidate_block_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 512,
	"qk_rope_head_dim": 64, "q_lora_rank": 64, "o_lora_rank": 32, "o_groups": 2, "sliding_window": 128,
	"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "scoring_func": "sqrtsoftplus",
	"topk_method": "noaux_tc", "norm_topk_prob": true, "routed_scaling_factor": 1.5, "swiglu_limit": 10.0,
	"index_n_heads": 2, "index_head_dim": 128, "index_topk": 16,
	"hc_mult": 4, "hc_sinkhorn_iters": 4, "hc_eps": 1e-06, "rms_norm_eps": 1e-20,
	"max_position_embeddings": 65536, "rope_theta": 10000, "compress_rope_theta": 160000,
	"rope_scaling": {"rope_type": "yarn", "factor": 16, "original_max_position_embeddings": 4096, "beta_fast": 32,
		"beta_slow": 1},
	"engram_layer_ids": [0, 3], "engram_num_embeddings": [1916, 2148], "engram_max_ngram_size": 4,
	"engram_n_heads": 2, "engram_head_dim": 32, "engram_vocab_size": 300, "engram_compressed_vocab_size": 401,
	"engram_pad_token_id": 2,
	"num_nextn_predict_layers": 0, "attention_bias": false, "tie_word_embeddings": false, "hidden_act": "silu"},
	"vision_config": {}
}`

// V41SparkConfig is V41Config with a DSpark head of two stages, which have fewer experts.
var V41SparkConfig = strings.NewReplacer(`"compress_ratios": [0, 2, 2, 1, 1, 1]`,
	`"compress_ratios": [0, 2, 2, 1, 1, 1, 0, 0]`, `"num_nextn_predict_layers": 0`, `"num_nextn_predict_layers": 2,
	"dspark_block_size": 5, "dspark_markov_rank": 16, "dspark_noise_token_id": 7, "dspark_target_layer_ids": [3, 4, 5],
	"dspark_n_routed_experts": 3, "dspark_num_experts_per_tok": 1`).Replace(V41Config)

// root is the folder of the checkpoints of the running tests; Run creates and removes it.
var root string

// Run runs the tests of a package and removes the files that they wrote. TestMain of a package that uses checkpoints
// calls it.
func Run(m *testing.M) {
	var err error
	if root, err = os.MkdirTemp("", "sparrow-test-"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(root)
	os.Exit(code)
}

var (
	plainV32  = once("v32", v32, synth.Options{Seed: 1})
	plainV4   = once("v4", V4Config, synth.Options{Seed: 1})
	plainV41  = once("v41", V41Config, synth.Options{Seed: 1})
	plainNext = once("next", next, synth.Options{Seed: 1})
	draftNext = once("next-draft", next, withDrafting())
	draftV32  = once("v32-draft", v32, withDrafting())
	draftV4   = once("v4-draft", V4Config, withDrafting())
	sparkV41  = once("v41-dspark", V41SparkConfig, synth.Options{Seed: 5})
	sparkV4   = once("v4-dspark", V4SparkConfig, synth.Options{Seed: 5})
	sparkV8   = once("v4-dspark-eight", strings.Replace(V4SparkConfig, `"vocab_size": 640`, `"vocab_size": 8`, 1),
		synth.Options{Seed: 5})
	plainV3  = once("v3", v3, synth.Options{Seed: 1})
	draftV3  = once("v3-draft", v3, withDrafting())
	eightV3  = once("v3-eight", strings.Replace(v3, `"vocab_size": 640`, `"vocab_size": 8`, 1), withDrafting())
	eight    = once("v32-eight", strings.Replace(v32, `"vocab_size": 640`, `"vocab_size": 8`, 1), withDrafting())
	gpuEight = once("v32-eight-gpu", forGPU(strings.Replace(v32, `"vocab_size": 640`, `"vocab_size": 8`, 1)),
		withDrafting())
	gpuV32   = once("v32-gpu", forGPU(v32), synth.Options{Seed: 1})
	gpuDraft = once("v32-draft-gpu", forGPU(v32), withDrafting())
	draftGLM = sync.OnceValues(func() (string, error) {
		text, err := synth.PresetConfig("glm-tiny")
		if err != nil {
			return "", err
		}
		return write("glm-draft", string(text), withDrafting())
	})
)

// gpu states whether the checkpoints are for a GPU.
var gpu bool

// OnGPU makes V32, V32Draft and EightTokens, until the test ends, checkpoints whose top-k a GPU supports.
func OnGPU(t testing.TB) {
	gpu = true
	t.Cleanup(func() { gpu = false })
}

// dense reports whether the checkpoints have no indexer.
var dense bool

// WithoutIndexer makes V32, V32Draft and EightTokens, until the test ends, checkpoints of DeepSeek-V3 in the same size.
func WithoutIndexer(t testing.TB) {
	dense = true
	t.Cleanup(func() { dense = false })
}

// forGPU returns a configuration with the smallest top-k that the kernels of a GPU support.
func forGPU(config string) string {
	return strings.Replace(config, `"index_topk": 16`, `"index_topk": 64`, 1)
}

// V32 returns the folder of a DeepSeek-V3.2 checkpoint without a drafting layer.
func V32(t testing.TB) string { return choose(t, plainV32, gpuV32, plainV3) }

// choose returns the folder of the checkpoint for the device of the tests (OnGPU, WithoutIndexer).
func choose(t testing.TB, plain, onGPU, withoutIndexer func() (string, error)) string {
	switch {
	case dense:
		return must(t, withoutIndexer)
	case gpu:
		return must(t, onGPU)
	}
	return must(t, plain)
}

// V4 returns the folder of a DeepSeek-V4 checkpoint without a drafting block.
func V4(t testing.TB) string { return must(t, plainV4) }

// V41 returns the folder of a DeepSeek-V4.1 checkpoint.
func V41(t testing.TB) string { return must(t, plainV41) }

// Next returns the folder of a GLM-5.3-Flash checkpoint without a drafting layer.
func Next(t testing.TB) string { return must(t, plainNext) }

// NextDraft returns the folder of a checkpoint in the shape of Next with a drafting layer.
func NextDraft(t testing.TB) string { return must(t, draftNext) }

// V32Draft returns the folder of a checkpoint in the shape of V32 with a drafting layer.
func V32Draft(t testing.TB) string { return choose(t, draftV32, gpuDraft, draftV3) }

// V4Draft returns the folder of a checkpoint in the shape of V4 with a drafting block.
func V4Draft(t testing.TB) string { return must(t, draftV4) }

// V4Spark returns the folder of a checkpoint in the shape of V4 with a DSpark head.
func V4Spark(t testing.TB) string { return must(t, sparkV4) }

// V41Spark returns the folder of a checkpoint in the shape of V41 with a DSpark head.
func V41Spark(t testing.TB) string { return must(t, sparkV41) }

// V4SparkEight returns the folder of a checkpoint like V4Spark with a vocabulary of eight tokens.
func V4SparkEight(t testing.TB) string { return must(t, sparkV8) }

// V3Draft returns the folder of a DeepSeek-V3 checkpoint, which has no indexer, with a drafting layer.
func V3Draft(t testing.TB) string { return must(t, draftV3) }

// GLMDraft returns the folder of a GLM-5 checkpoint: layers that share selections, and a drafting layer without its own
// embedding and head.
func GLMDraft(t testing.TB) string { return must(t, draftGLM) }

// EightTokens returns the folder of a checkpoint like V32Draft with a vocabulary of eight tokens.
func EightTokens(t testing.TB) string { return choose(t, eight, gpuEight, eightV3) }

func withDrafting() synth.Options {
	one := 1
	return synth.Options{Seed: 5, NextN: &one}
}

func once(name, config string, o synth.Options) func() (string, error) {
	return sync.OnceValues(func() (string, error) { return write(name, config, o) })
}

func write(name, config string, o synth.Options) (string, error) {
	c, err := synth.New(name, []byte(config), o)
	if err != nil {
		return "", err
	}
	if root == "" {
		return "", errors.New("testmodel: no folder for checkpoints: TestMain of the package must call testmodel.Run")
	}
	dir := filepath.Join(root, name)
	return dir, c.Write(context.Background(), dir, nil, nil)
}

func must(t testing.TB, folder func() (string, error)) string {
	t.Helper()
	dir, err := folder()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
