package config

import (
	"encoding/json"
	"maps"
	"testing"
)

// fields holds the fields of a config.json that a test writes.
type fields = map[string]any

// v32 returns the released config of DeepSeek-V3.2 in the older spelling (v32 spec, 1.1 and 1.2), with changes.
func v32(changes ...fields) fields {
	f := fields{
		"model_type": "deepseek_v32", "architectures": []string{"DeepseekV32ForCausalLM"},
		"vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
		"num_hidden_layers": 61, "first_k_dense_replace": 3, "moe_layer_freq": 1,
		"num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
		"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
		"n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4,
		"scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": true, "routed_scaling_factor": 2.5,
		"index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048,
		"rms_norm_eps": 1e-6, "max_position_embeddings": 163840, "rope_theta": 10000,
		"rope_scaling":             yarn(),
		"num_nextn_predict_layers": 1, "attention_bias": false, "tie_word_embeddings": false, "hidden_act": "silu",
		"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
	}
	return change(f, changes)
}

// yarn returns the released scaling of V3.2.
func yarn(changes ...fields) fields {
	return change(fields{"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
		"beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}, changes)
}

// glm returns the released config of GLM-5 in the newer spelling, with changes.
func glm(changes ...fields) fields {
	f := v32(fields{
		"model_type": "glm_moe_dsa", "architectures": []string{"GlmMoeDsaForCausalLM"},
		"vocab_size": 154880, "hidden_size": 6144, "intermediate_size": 12288, "num_hidden_layers": 78,
		"num_attention_heads": 64, "num_key_value_heads": 64, "q_lora_rank": 2048, "qk_nope_head_dim": 192,
		"v_head_dim": 256, "n_group": 1, "topk_group": 1, "index_n_heads": 32, "rms_norm_eps": 1e-5,
		"max_position_embeddings": 202752, "rope_theta": absent, "rope_scaling": absent,
		"rope_parameters": fields{"rope_theta": 1e6, "rope_type": "default"}, "rope_interleave": true,
		"indexer_rope_interleave": true, "bos_token_id": nil, "eos_token_id": []int{154820, 154827, 154829},
		"pad_token_id": 154820,
	})
	return change(f, changes)
}

// absent, as a changed value, removes a field.
var absent = new(int)

func change(f fields, changes []fields) fields {
	out := maps.Clone(f)
	for _, c := range changes {
		for k, v := range c {
			if v == absent {
				delete(out, k)
			} else {
				out[k] = v
			}
		}
	}
	return out
}

func text(t testing.TB, f fields) []byte {
	t.Helper()
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parse(t testing.TB, f fields) *DSA {
	t.Helper()
	c, err := Parse("config.json", text(t, f))
	if err != nil {
		t.Fatal(err)
	}
	return c
}
