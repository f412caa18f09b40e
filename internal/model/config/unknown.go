package config

import (
	"reflect"
	"slices"
	"strings"
)

// harmless lists fields of released configs that do not affect the computation, or repeat another field.
var harmless = []string{"architectures", "attention_dropout", "auto_map", "aux_loss_alpha", "compress_rates",
	"compression_config", "dtype",
	"ep_size", "expert_dtype", "head_dim", "image_token_id", "initializer_range", "layer_types", "model_type",
	"moe_router_dtype", "num_experts", "partial_rotary_factor", "pretraining_tp", "qk_head_dim", "quantization_config",
	"rope_parameters", "router_aux_loss_coef", "router_jitter_noise", "router_z_loss_coef", "seq_aux", "torch_dtype",
	"transformers_version", "use_cache", "vision_config"}

// unrelated lists fields of every transformers config for generation and other tasks, and fields of vision towers,
// which are not run.
var unrelated = []string{"_name_or_path", "add_cross_attention", "chunk_size_feed_forward", "diversity_penalty",
	"do_sample", "early_stopping", "encoder_no_repeat_ngram_size", "id2label", "ignore_index", "is_decoder",
	"is_encoder_decoder", "label2id", "length_penalty", "max_length", "media_placeholder_token_id", "min_length",
	"no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences", "output_attentions",
	"output_hidden_states", "output_scores", "projection_hidden_size", "projection_layer_norm_eps", "pruned_heads",
	"remove_invalid_values", "repetition_penalty", "return_dict", "return_dict_in_generate", "temperature",
	"tf_legacy_loss", "tie_encoder_decoder", "tokenizer_class", "top_k", "top_p", "torchscript", "typical_p",
	"use_bfloat16", "use_unified_vision_chunk", "video_placeholder", "video_token_id", "vision_end_token_id",
	"vision_start_token_id"}

// arithmetic lists prefixes of names of fields that describe the network. An unknown field with such a prefix may
// affect the computation.
var arithmetic = []string{"attn_", "attention_", "compress", "dspark_", "engram", "hc_", "hyper_", "index", "kda_",
	"kv_", "linear_", "mla_", "moe_", "n_", "ngram", "norm_", "num_", "o_", "oe_", "q_", "qk_", "rms_", "rope",
	"router", "routed_", "scoring_", "sliding_", "swiglu", "topk_", "v_head", "zero_expert"}

// unknownFields adds a problem for each unknown field whose name has a prefix in arithmetic. Other unknown fields are
// added to Losses as ignored.
func (b *builder) unknownFields(d Description) {
	var read []reflect.Type
	switch d.(type) {
	case *V4:
		read = []reflect.Type{reflect.TypeFor[rawV4]()}
	case *V41:
		read = []reflect.Type{reflect.TypeFor[rawV4](), reflect.TypeFor[rawV41]()}
	case *Next:
		read = []reflect.Type{reflect.TypeFor[rawNext]()}
	default:
		read = []reflect.Type{reflect.TypeFor[raw]()}
	}
	known := slices.Concat(harmless, unrelated)
	for _, t := range read {
		for _, f := range reflect.VisibleFields(t) {
			known = append(known, f.Tag.Get("json"))
		}
	}
	var ignored []string
	for name, value := range b.fields {
		switch {
		case slices.Contains(known, name) || string(value) == "null" || string(value) == "false":
		case slices.ContainsFunc(arithmetic, func(p string) bool { return strings.HasPrefix(name, p) }):
			b.addProblem("%s is %s: this field is unknown and may change the network; remove it if it does not: "+
				"released models of the family do not have it", name, clip(value))
		case !strings.HasPrefix(name, "_"):
			ignored = append(ignored, name)
		}
	}
	slices.Sort(b.problems)
	if len(ignored) > 0 {
		slices.Sort(ignored)
		b.losses = append(b.losses, "ignored fields of config.json: "+strings.Join(ignored, ", "))
	}
}
