package config

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// flashRatios returns the released pattern of V4-Flash, with the draft layer's entry at the end.
func flashRatios() []int {
	out := []int{0, 0}
	for range 20 {
		out = append(out, 4, 128)
	}
	return append(out, 4, 0)
}

// v4 returns the released config of DeepSeek-V4-Flash in the official spelling (v4 spec, 1.1), with changes.
func v4(changes ...fields) fields {
	return change(fields{
		"model_type": "deepseek_v4", "architectures": []string{"DeepseekV4ForCausalLM"},
		"vocab_size": 129280, "hidden_size": 4096, "num_hidden_layers": 43, "max_position_embeddings": 1048576,
		"num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64,
		"q_lora_rank": 1024, "o_lora_rank": 1024, "o_groups": 8, "sliding_window": 128,
		"index_n_heads": 64, "index_head_dim": 128, "index_topk": 512,
		"n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 6, "moe_intermediate_size": 2048,
		"routed_scaling_factor": 1.5, "num_hash_layers": 3, "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc",
		"norm_topk_prob": true, "swiglu_limit": 10.0, "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6,
		"rms_norm_eps": 1e-6, "rope_theta": 10000, "compress_rope_theta": 160000,
		"rope_scaling": fields{"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536,
			"beta_fast": 32, "beta_slow": 1},
		"compress_ratios": flashRatios(), "num_nextn_predict_layers": 1, "expert_dtype": "fp4",
		"quantization_config": fields{"quant_method": "fp8", "fmt": "e4m3", "scale_fmt": "ue8m0",
			"weight_block_size": []int{128, 128}},
		"bos_token_id": 0, "eos_token_id": 1, "tie_word_embeddings": false, "attention_bias": false,
		"hidden_act": "silu",
	}, changes)
}

// v4HF returns the config of the same model in the transformers spelling.
func v4HF(changes ...fields) fields {
	types, mlp := []string{}, []string{}
	for i, m := range flashRatios()[:43] {
		types = append(types, map[int]string{0: windowLayer, 4: sparseLayer, 128: heavyLayer}[m])
		mlp = append(mlp, map[bool]string{true: "hash_moe", false: "moe"}[i < 3])
	}
	return change(v4(fields{
		"compress_ratios": absent, "num_hash_layers": absent, "rope_scaling": absent, "topk_method": absent,
		"expert_dtype": absent, "quantization_config": absent, "layer_types": types, "mlp_layer_types": mlp,
		"compress_rates": fields{sparseLayer: 4, heavyLayer: 128},
		"rope_parameters": fields{
			"main": fields{"rope_type": "default", "rope_theta": 10000, "partial_rotary_factor": 0.125},
			"compress": fields{"rope_type": "yarn", "rope_theta": 160000, "factor": 16,
				"original_max_position_embeddings": 65536, "beta_fast": 32, "beta_slow": 1, "attention_factor": 1.0},
		},
	}), changes)
}

func TestV4SpellingsAgree(t *testing.T) {
	official, err := ParseV4("config.json", text(t, v4()))
	if err != nil {
		t.Fatal(err)
	}
	hf, err := ParseV4("config.json", text(t, v4HF()))
	if err != nil {
		t.Fatal(err)
	}
	hf.Format, hf.Scheme = official.Format, official.Scheme // this spelling has no quantization_config
	if diff := cmp.Diff(official, hf); diff != "" {
		t.Errorf("the spellings give different configs:\n%s", diff)
	}
	a := official.Attention
	if official.Hidden != 4096 || a.Heads != 64 || a.OLora != 1024 || a.Groups != 8 || a.Window != 128 ||
		official.Indexer.TopK != 512 ||
		official.FFN.Experts != 256 || official.FFN.Limit != 10 || official.Hyper != (Hyper{4, 20, 1e-6}) ||
		official.NextN != 1 {
		t.Errorf("parsed %+v", official)
	}
	if !slices.Equal(a.Ratios, flashRatios()[:43]) {
		t.Errorf("ratios %v", a.Ratios)
	}
	if h := official.FFN.Hash; len(h) != 43 || !h[2] || h[3] {
		t.Errorf("hash layers %v", h)
	}
	if a.RopeAt(1).Yarn != nil || a.RopeAt(1).Theta != 10000 || a.RopeAt(2).Yarn == nil || a.RopeAt(3).Theta != 160000 {
		t.Errorf("rotations %+v %+v", a.RopeAt(1), a.RopeAt(2))
	}
}

// The rotation frequencies of V4 equal the table of the v4 spec, 2.3.
func TestV4Frequencies(t *testing.T) {
	c, err := ParseV4("config.json", text(t, v4()))
	if err != nil {
		t.Fatal(err)
	}
	plain, yarn := Rope{Theta: 160000}.InvFreq(64), c.Attention.Far.InvFreq(64)
	for _, w := range []struct {
		i           int
		plain, yarn float64
	}{
		{0, 1, 1}, {14, 5.2868563e-3, 5.2868563e-3}, {15, 3.6355386e-3, 3.6355386e-3}, {16, 2.5e-3, 2.265625e-3},
		{20, 5.590170e-4, 2.9697778e-4}, {24, 1.25e-4, 1.953125e-5}, {25, 8.595700e-5, 5.3723127e-6},
		{31, 9.0888465e-6, 5.6805290e-7},
	} {
		for _, v := range [][2]float64{{float64(plain[w.i]), w.plain}, {float64(yarn[w.i]), w.yarn}} {
			if d := v[0]/v[1] - 1; d > 1e-6 || d < -1e-6 {
				t.Errorf("pair %d: %v, want %v", w.i, v[0], v[1])
			}
		}
	}
}

func TestV4ReportsAllProblemsAtOnce(t *testing.T) {
	f := v4(fields{
		"head_dim": 256, "qk_rope_head_dim": absent, "o_groups": 7, "compress_ratios": []int{0, 5},
		"num_hash_layers": 99, "scoring_func": "sigmoid", "norm_topk_prob": false, "swiglu_limit": 0, "hc_mult": 0,
		"hc_eps": 2, "rms_norm_eps": absent, "compress_rope_theta": absent, "rope_scaling": fields{"type": "linear"},
		"index_head_dim": 64, "num_key_value_heads": 2, "tie_word_embeddings": true, "attention_bias": true,
		"hidden_act": "gelu", "expert_dtype": "int3", "sliding_window": "wide", "num_experts_per_tok": 999,
		"num_nextn_predict_layers": 3, "dspark_block_size": 5,
	})
	_, err := ParseV4("x/config.json", text(t, f))
	var p *Problems
	if !errors.As(err, &p) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{
		"head_dim is 256", "qk_rope_head_dim is missing", "o_groups is 7, which does not divide 64",
		"compress_ratios has 2 entries", "num_hash_layers is 99, want 0 to 43", "scoring_func is \"sigmoid\"",
		"norm_topk_prob is false", "swiglu_limit is 0", "hc_mult is 0", "hc_eps is 2", "rms_norm_eps is missing",
		"compress_rope_theta is missing", "rope_scaling has type \"linear\"", "rope_scaling needs positive",
		"index_head_dim is 64", "num_key_value_heads is 2", "tie_word_embeddings", "attention_bias",
		"hidden_act is \"gelu\"", "expert_dtype is \"int3\"", "sliding_window is \"wide\", want a whole number",
		"num_experts_per_tok is 999, want 1 to 256", "num_nextn_predict_layers is 3",
		"dspark_markov_rank is missing", "dspark_noise_token_id is missing", "dspark_target_layer_ids is missing",
		"one more, 0, for each stage of the DSpark head",
	} {
		if !slices.ContainsFunc(p.List, func(l string) bool { return strings.Contains(l, want) }) {
			t.Errorf("no problem %q in\n%v", want, err)
		}
	}
	if len(p.List) != 27 {
		t.Errorf("%d problems, want 27:\n%v", len(p.List), err)
	}
}

func TestV4LayerNames(t *testing.T) {
	for name, c := range map[string]struct {
		change fields
		want   string
	}{
		"unknown layer type": {fields{"layer_types": slices.Repeat([]string{"linear_attention"}, 43)},
			`layer_types[42] is "linear_attention"`},
		"too few types": {fields{"layer_types": []string{windowLayer}}, "layer_types has 1 entries"},
		"other rate": {fields{"compress_rates": fields{sparseLayer: 8}},
			`compress_rates["compressed_sparse_attention"] is 8, want 4`},
		"no ratios":  {fields{"layer_types": absent}, "compress_ratios and layer_types are missing"},
		"no routing": {fields{"mlp_layer_types": absent}, "num_hash_layers and mlp_layer_types are missing"},
		"unknown routing": {fields{"mlp_layer_types": slices.Repeat([]string{"dense"}, 43)},
			`mlp_layer_types[0] is "dense"`},
		"rope is no object": {fields{"rope_parameters": 3}, "rope_parameters is 3, want an object"},
		"no compressed rope": {fields{"rope_parameters": fields{"main": fields{"rope_theta": 10000}}},
			"rope_parameters.compress is missing"},
		"factor of a word": {fields{"rope_parameters": fields{"main": fields{"rope_theta": "x"}}},
			`rope_parameters.main.rope_theta is "x", want a number`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseV4("config.json", text(t, v4HF(c.change)))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestOtherArchitecturesAreRefused(t *testing.T) {
	_, err := Describe("config.json", text(t, v4(fields{"model_type": "deepseek_v41"})))
	if err == nil || !strings.Contains(err.Error(), "deepseek_v41 has no text_config") {
		t.Errorf("V4.1 in the spelling of V4: %v", err)
	}
	if _, err := Parse("config.json", text(t, v4())); !errors.Is(err, ErrFamily) {
		t.Errorf("V4 as a DSA model: %v", err)
	}
	if _, err := ParseV4("config.json", text(t, v32())); !errors.Is(err, ErrFamily) {
		t.Errorf("V3.2 as a V4 model: %v", err)
	}
}

func TestDescribe(t *testing.T) {
	for want, f := range map[Family]fields{DeepseekV32: v32(), GLMMoeDSA: glm(), DeepseekV4: v4()} {
		d, err := Describe("config.json", text(t, f))
		if err != nil || d.Common().Family != want || d.Common().Vocab == 0 {
			t.Errorf("%s: %v, %v", want, d, err)
		}
	}
	if d, err := Describe("config.json", text(t, v4(fields{"vocab_size": 0}))); err == nil || d != nil {
		t.Errorf("a bad config gives %v, %v", d, err)
	}
}

// For any text, ParseV4 returns an error or a description in which every list has the right length.
func FuzzParseV4(f *testing.F) {
	f.Add(text(f, v4()))
	f.Add(text(f, v4HF()))
	f.Add(
		[]byte(
			`{"model_type":"deepseek_v4","num_hidden_layers":1e9,"compress_ratios":[1],"rope_parameters":{"main":[]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseV4("fuzz", data)
		if err != nil {
			if c != nil || err.Error() == "" {
				t.Fatalf("error %q with %v", err, c)
			}
			return
		}
		if len(c.Attention.Ratios) != c.Layers || len(c.FFN.Hash) != c.Layers {
			t.Fatalf("%d layers, %d ratios, %d routings", c.Layers, len(c.Attention.Ratios), len(c.FFN.Hash))
		}
	})
}
