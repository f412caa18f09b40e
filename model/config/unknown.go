package config

import (
	"reflect"
	"slices"
	"strings"
)

// harmless are fields of released configs that change no arithmetic of inference, or repeat another field.
var harmless = []string{"architectures", "attention_dropout", "auto_map", "aux_loss_alpha", "compress_rates",
	"compression_config", "dtype",
	"ep_size", "expert_dtype", "head_dim", "image_token_id", "initializer_range", "layer_types", "model_type",
	"moe_router_dtype", "num_experts", "partial_rotary_factor", "pretraining_tp", "qk_head_dim", "quantization_config",
	"rope_parameters", "router_aux_loss_coef", "router_jitter_noise", "router_z_loss_coef", "seq_aux", "torch_dtype",
	"transformers_version", "use_cache", "vision_config"}

// arithmetic are how names of fields begin that describe the network. An unknown one may change its arithmetic.
var arithmetic = []string{"attn_", "attention_", "compress", "dspark_", "engram", "hc_", "hyper_", "index", "kda_",
	"kv_", "linear_", "mla_", "moe_", "n_", "ngram", "norm_", "num_", "o_", "oe_", "q_", "qk_", "rms_", "rope",
	"router", "routed_", "scoring_", "sliding_", "swiglu", "topk_", "v_head", "zero_expert"}

// unknownFields refuses fields that are not read and whose names are those of the network's arithmetic; other unknown
// fields are noted as ignored.
func (b *builder) unknownFields(d Description) {
	var read reflect.Type
	switch d.(type) {
	case *V4:
		read = reflect.TypeFor[rawV4]()
	default:
		read = reflect.TypeFor[raw]()
	}
	known := slices.Clone(harmless)
	for _, f := range reflect.VisibleFields(read) {
		known = append(known, f.Tag.Get("json"))
	}
	var ignored []string
	for name, value := range b.fields {
		switch {
		case slices.Contains(known, name) || string(value) == "null" || string(value) == "false":
		case slices.ContainsFunc(arithmetic, func(p string) bool { return strings.HasPrefix(name, p) }):
			b.addProblem("%s is %s: this field is not known and may change the network; released models of the family "+
				"do not have it", name, clip(value))
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
