package sparrow

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"sparrow/model/synth"
)

// speckConfig is the smallest shape that has everything the engine cares about: an indexer whose top-k is shorter than the prompts of the tests, and pages
// of real rows. One layer and one head keep it affordable under the race detector.
const speckConfig = `{
	"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32",
	"vocab_size": 640, "hidden_size": 64, "intermediate_size": 64, "moe_intermediate_size": 64,
	"num_hidden_layers": 1, "first_k_dense_replace": 1, "moe_layer_freq": 1,
	"num_attention_heads": 1, "num_key_value_heads": 1, "q_lora_rank": 64, "kv_lora_rank": 512,
	"qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 64,
	"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
	"scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": true, "routed_scaling_factor": 1.0,
	"index_n_heads": 2, "index_head_dim": 128, "index_topk": 16,
	"rms_norm_eps": 1e-06, "max_position_embeddings": 8192, "rope_theta": 10000,
	"num_nextn_predict_layers": 0, "attention_bias": false, "tie_word_embeddings": false, "hidden_act": "silu",
	"bos_token_id": 0, "eos_token_id": 1
}`

// speckV4Config is the same of DeepSeek-V4: one layer of each kind, two heads, pages of 256 tokens.
const speckV4Config = `{
	"architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4",
	"vocab_size": 640, "hidden_size": 64, "moe_intermediate_size": 32,
	"num_hidden_layers": 3, "compress_ratios": [0, 4, 128], "num_hash_layers": 1,
	"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64,
	"q_lora_rank": 64, "o_lora_rank": 32, "o_groups": 2, "sliding_window": 128,
	"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc",
	"norm_topk_prob": true, "routed_scaling_factor": 1.5, "swiglu_limit": 10.0,
	"index_n_heads": 2, "index_head_dim": 128, "index_topk": 16,
	"hc_mult": 4, "hc_sinkhorn_iters": 4, "hc_eps": 1e-06, "rms_norm_eps": 1e-06,
	"max_position_embeddings": 65536, "rope_theta": 10000, "compress_rope_theta": 160000,
	"rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1},
	"num_nextn_predict_layers": 0, "attention_bias": false, "tie_word_embeddings": false, "hidden_act": "silu",
	"bos_token_id": 0, "eos_token_id": 1
}`

// speck is the folder of a checkpoint of that shape with random weights, written once for all tests.
func speck(t *testing.T) string {
	t.Helper()
	return folder(t, speckFolder)
}

// speckV4 is the same of speckV4Config.
func speckV4(t *testing.T) string {
	t.Helper()
	return folder(t, speckV4Folder)
}

func folder(t *testing.T, make func() (string, error)) string {
	t.Helper()
	dir, err := make()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var (
	speckFolder   = sync.OnceValues(func() (string, error) { return writeSpeck("speck", speckConfig) })
	speckV4Folder = sync.OnceValues(func() (string, error) { return writeSpeck("speck-v4", speckV4Config) })
)

func writeSpeck(name, config string) (string, error) {
	c, err := synth.New(name, []byte(config), synth.Options{Seed: 1})
	if err != nil {
		return "", err
	}
	dir := filepath.Join(testFolder, name)
	return dir, c.Write(context.Background(), dir, nil, nil)
}

// testFolder is removed when all tests are done.
var testFolder string

func TestMain(m *testing.M) {
	var err error
	if testFolder, err = os.MkdirTemp("", "sparrow-test-"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(testFolder)
	os.Exit(code)
}
