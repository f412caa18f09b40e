package llamacpp

import (
	"fmt"
	"slices"

	"sparrow/internal/model/config"
)

// v4Names maps tensor names in the file to the official names of DeepSeek-V4's tensors. A GGUF file of the model cannot
// contain the drafting block; llama.cpp's converter writes it to a separate file.
var v4Names = &names{
	prefix: "layers.%d.", experts: "ffn.experts.",
	outside: map[string]string{
		"token_embd.weight": "embed.weight", "output_norm.weight": "norm.weight", "output.weight": "head.weight",
		"output_hc_fn.weight": "hc_head_fn", "output_hc_base.weight": "hc_head_base",
		"output_hc_scale.weight": "hc_head_scale",
	},
	inLayer: map[string]string{
		"attn_norm.weight": "attn_norm.weight", "ffn_norm.weight": "ffn_norm.weight",
		"hc_attn_fn.weight": "hc_attn_fn", "hc_attn_base.weight": "hc_attn_base",
		"hc_attn_scale.weight": "hc_attn_scale", "hc_ffn_fn.weight": "hc_ffn_fn",
		"hc_ffn_base.weight": "hc_ffn_base", "hc_ffn_scale.weight": "hc_ffn_scale",
		"attn_sinks.weight": "attn.attn_sink",
		"attn_q_a.weight":   "attn.wq_a.weight", "attn_q_a_norm.weight": "attn.q_norm.weight",
		"attn_q_b.weight": "attn.wq_b.weight", "attn_kv.weight": "attn.wkv.weight",
		"attn_kv_a_norm.weight": "attn.kv_norm.weight", "attn_output_a.weight": "attn.wo_a.weight",
		"attn_output_b.weight":           "attn.wo_b.weight",
		"attn_compressor_kv.weight":      "attn.compressor.wkv.weight",
		"attn_compressor_gate.weight":    "attn.compressor.wgate.weight",
		"attn_compressor_ape.weight":     "attn.compressor.ape",
		"attn_compressor_norm.weight":    "attn.compressor.norm.weight",
		"indexer.attn_q_b.weight":        "attn.indexer.wq_b.weight",
		"indexer.proj.weight":            "attn.indexer.weights_proj.weight",
		"indexer_compressor_kv.weight":   "attn.indexer.compressor.wkv.weight",
		"indexer_compressor_gate.weight": "attn.indexer.compressor.wgate.weight",
		"indexer_compressor_ape.weight":  "attn.indexer.compressor.ape",
		"indexer_compressor_norm.weight": "attn.indexer.compressor.norm.weight",
		"ffn_gate_inp.weight":            "ffn.gate.weight",
		"exp_probs_b.bias":               "ffn.gate.bias",
		"ffn_gate_tid2eid.weight":        "ffn.gate.tid2eid",
		"ffn_gate_shexp.weight":          "ffn.shared_experts.w1.weight",
		"ffn_up_shexp.weight":            "ffn.shared_experts.w3.weight",
		"ffn_down_shexp.weight":          "ffn.shared_experts.w2.weight",
	},
	fused: map[string]string{"ffn_gate_exps.weight": "w1", "ffn_up_exps.weight": "w3", "ffn_down_exps.weight": "w2"},
}

// rootGate is the value for routing by the square root of softplus in GGUF metadata.
const rootGate = 4

// v4Config adds the fields of config.json of DeepSeek-V4, in the official spelling. A drafting block is ignored.
func (r *reader) v4Config(c map[string]any, s *shape) {
	s.experts = r.count("expert_count")
	for field, key := range map[string]string{
		"num_attention_heads": "attention.head_count", "head_dim": "attention.key_length",
		"qk_rope_head_dim": "rope.dimension_count", "q_lora_rank": "attention.q_lora_rank",
		"o_lora_rank": "attention.output_lora_rank", "o_groups": "attention.output_group_count",
		"sliding_window": "attention.sliding_window", "moe_intermediate_size": "expert_feed_forward_length",
		"n_shared_experts": "expert_shared_count", "num_experts_per_tok": "expert_used_count",
		"hc_mult": "hyper_connection.count", "hc_sinkhorn_iters": "hyper_connection.sinkhorn_iterations",
		"num_hash_layers": "hash_layer_count", "num_hidden_layers": "block_count",
	} {
		c[field] = r.count(key)
	}
	for field, key := range map[string]string{
		"hc_eps": "hyper_connection.epsilon", "rope_theta": "rope.freq_base",
		"compress_rope_theta": "attention.compress_rope_freq_base", "routed_scaling_factor": "expert_weights_scale",
	} {
		c[field] = r.float(key)
	}
	c["n_routed_experts"], c["scoring_func"] = s.experts, "sqrtsoftplus"
	r.gate(rootGate, "the root of softplus")
	if ratios, ok := r.meta.Ints(r.arch + ".attention.compress_ratios"); ok {
		c["compress_ratios"] = ratios
	} else {
		r.missing(r.arch+".attention.compress_ratios", "a number for each layer")
	}
	c["swiglu_limit"] = r.limit("swiglu_clamp_exp")
	if _, ok := r.meta[r.arch+".swiglu_clamp_shexp"]; ok && r.limit("swiglu_clamp_shexp") != c["swiglu_limit"] {
		r.problems = append(r.problems, r.arch+".swiglu_clamp_shexp differs from swiglu_clamp_exp; want the same limit")
	}
	r.ropeScaling(c)
}

// limit returns a number that must be the same for every layer; the metadata has one number, or a list with one for
// each layer.
func (r *reader) limit(name string) float64 {
	list, ok := r.meta.Floats(r.arch + "." + name)
	if !ok {
		return r.float(name)
	}
	if len(list) == 0 || slices.ContainsFunc(list, func(v float64) bool { return v != list[0] }) {
		r.missing(r.arch+"."+name, "the same number for all layers")
		return 0
	}
	return list[0]
}

func (p *pairs) v4(c *config.V4) error {
	a, f := c.Attention, c.FFN
	hashed := 0
	for hashed < len(f.Hash) && f.Hash[hashed] {
		hashed++
	}
	if slices.Contains(f.Hash[hashed:], true) {
		return fmt.Errorf("%w: a layer that chooses experts by token id follows layers that do not, which GGUF "+
			"cannot describe", ErrUnsupported)
	}
	p.count("block_count", c.Layers)
	p.count("embedding_length_out", c.Hidden*c.Hyper.Streams)
	p.count("attention.head_count", a.Heads)
	p.count("attention.key_length", a.Dim)
	p.count("attention.value_length", a.Dim)
	p.count("attention.q_lora_rank", a.QLora)
	p.count("attention.output_lora_rank", a.OLora)
	p.count("attention.output_group_count", a.Groups)
	p.count("attention.sliding_window", a.Window)
	ratios := make([]int32, c.Layers)
	for i, r := range a.Ratios {
		ratios[i] = int32(r)
	}
	p.add("attention.compress_ratios", ratios)
	p.number("attention.compress_rope_freq_base", a.Far.Theta)
	p.count("rope.dimension_count", a.Rope)
	p.number("rope.freq_base", a.Main.Theta)
	if a.Far.Yarn != nil {
		p.yarn(a.Far.Yarn)
	}
	p.count("hyper_connection.count", c.Hyper.Streams)
	p.count("hyper_connection.sinkhorn_iterations", c.Hyper.Rounds)
	p.number("hyper_connection.epsilon", float64(c.Hyper.Eps))
	p.count("hash_layer_count", hashed)
	p.count("expert_count", f.Experts)
	p.count("expert_used_count", f.TopK)
	p.count("expert_shared_count", f.Shared)
	p.count("expert_feed_forward_length", f.Inner)
	p.count("expert_gating_func", rootGate)
	p.number("expert_weights_scale", float64(f.Scale))
	p.add("expert_weights_norm", true)
	limits := slices.Repeat([]float32{f.Limit}, c.Layers)
	p.add("swiglu_clamp_exp", limits)
	p.add("swiglu_clamp_shexp", limits)
	return nil
}
