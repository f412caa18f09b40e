// Package spelling translates official names of DeepSeek-V4's tensors to the names in a checkpoint, which may have one
// of three spellings (v4 spec, 5).
package spelling

import (
	"fmt"
	"strings"
)

type kind uint8

const (
	official kind = iota // embed.weight, layers.N.attn.wq_a.weight
	mixed                // official names with the prefix model., with a few exceptions
	hugging              // module names of transformers
)

// Names translates the tensor names of one checkpoint.
type Names struct {
	has  func(name string) bool
	kind kind
}

// Of detects the spelling of a checkpoint from its tensor names; has reports whether the checkpoint has a tensor.
func Of(has func(name string) bool) Names {
	n := Names{has: has}
	switch {
	case has("embed.weight"):
		n.kind = official
	case has("model.layers.0.attn.wq_a.weight"):
		n.kind = mixed
	case has("model.embed_tokens.weight"):
		n.kind = hugging
	}
	return n
}

// Stacked reports whether the experts of a layer are in two tensors, "ffn.experts.gate_up_proj" and
// "ffn.experts.down_proj".
func (n Names) Stacked() bool { return n.kind == hugging }

// Global returns the name of a tensor outside of the layers.
func (n Names) Global(name string) string {
	if n.kind == official {
		return name
	}
	switch name {
	case "embed.weight":
		return "model.embed_tokens.weight"
	case "norm.weight":
		return "model.norm.weight"
	case "head.weight":
		if n.kind == hugging {
			return "lm_head.weight"
		}
		return name
	}
	return strings.Replace(name, "hc_head_", "model.hc_head.hc_", 1)
}

// Layer returns the name of a tensor of layer i.
func (n Names) Layer(i int, name string) string {
	switch n.kind {
	case official:
		return fmt.Sprintf("layers.%d.%s", i, name)
	case mixed:
		if name == "attn.kv_norm.weight" {
			name = "attn.norm.weight"
		}
		return fmt.Sprintf("model.layers.%d.%s", i, name)
	}
	prefix := fmt.Sprintf("model.layers.%d.", i)
	full := prefix + huggingName(name)
	if rest, ok := strings.CutPrefix(name, "attn.indexer.compressor."); ok && !n.has(full) {
		// Some versions have a separate module for the indexer's compressor.
		if other := prefix + "self_attn.compressor.indexer.compressor." + compressorName(rest); n.has(other) {
			return other
		}
	}
	return full
}

// huggingName returns the name in transformers for the official name of a layer's tensor.
func huggingName(name string) string {
	for _, r := range [...][2]string{
		{"attn.indexer.compressor.", "self_attn.compressor.indexer."},
		{"attn.compressor.", "self_attn.compressor."},
	} {
		if rest, ok := strings.CutPrefix(name, r[0]); ok {
			return r[1] + compressorName(rest)
		}
	}
	for _, r := range [...][2]string{
		{"attn.indexer.weights_proj.", "self_attn.compressor.indexer.scorer.weights_proj."},
		{"attn.indexer.wq_b.", "self_attn.compressor.indexer.q_b_proj."},
		{"attn.attn_sink", "self_attn.sinks"},
		{"attn.wq_a.", "self_attn.q_a_proj."},
		{"attn.q_norm.", "self_attn.q_a_norm."},
		{"attn.wq_b.", "self_attn.q_b_proj."},
		{"attn.wkv.", "self_attn.kv_proj."},
		{"attn.kv_norm.", "self_attn.kv_norm."},
		{"attn.wo_a.", "self_attn.o_a_proj."},
		{"attn.wo_b.", "self_attn.o_b_proj."},
		{"attn_norm.", "input_layernorm."},
		{"ffn_norm.", "post_attention_layernorm."},
		{"hc_attn_", "attn_hc."},
		{"hc_ffn_", "ffn_hc."},
		{"ffn.gate.bias", "mlp.gate.e_score_correction_bias"},
		{"ffn.shared_experts.w1.", "mlp.shared_experts.gate_proj."},
		{"ffn.shared_experts.w3.", "mlp.shared_experts.up_proj."},
		{"ffn.shared_experts.w2.", "mlp.shared_experts.down_proj."},
		{"ffn.", "mlp."},
	} {
		if rest, ok := strings.CutPrefix(name, r[0]); ok {
			return r[1] + rest
		}
	}
	return name
}

// compressorName returns the name in transformers for the last part of a compressor's tensor name.
func compressorName(name string) string {
	switch name {
	case "ape":
		return "position_bias"
	case "wkv.weight":
		return "kv_proj.weight"
	case "wgate.weight":
		return "gate_proj.weight"
	case "norm.weight":
		return "kv_norm.weight"
	}
	return name
}
