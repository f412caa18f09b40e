package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// relative describes an unsupported architecture: the reason, and the most similar checkpoint that is supported.
type relative struct{ why, nearest string }

// relatives describes unsupported architectures that users are likely to try, by model_type, or by the class in
// architectures if a config has no model_type.
var relatives = map[string]relative{
	"deepseek_v2": {"DeepSeek-V2 routes by softmax, with weights that are not normalised", nearestV3},
	"deepseek_ref": {"it has the network of DeepSeek-V4 under another name, and lacks fields such as rms_norm_eps " +
		"and swiglu_limit", nearestV4Flash},
	"kimi_linear": {"Kimi-Linear has linear attention (KDA) in most layers", nearestKimi},
	"glm4_moe":    {"GLM-4.5 to 4.7 have grouped-query attention, without latents or an indexer", nearestGLMLite},
	"LongcatCausalLM": {"LongCat's indexer is shared by the two attentions of a layer, its index keys have another " +
		"norm, and it has n-gram embeddings and experts that copy", nearestV32},
	"longcat_flash": {"LongCat has two attentions a layer and experts that copy", nearestV32},
	"qwen3_moe":     {"Qwen has grouped-query attention, without latents or an indexer", nearestV32},
	"qwen3_next":    {"Qwen3-Next has linear attention and grouped-query attention", nearestV32},
	"minimax_m2":    {"MiniMax has grouped-query attention, without latents or an indexer", nearestV32},
}

// otherNames are further spellings of model_type: newer names of transformers, and names of text networks of models
// with a vision tower.
var otherNames = map[string]Family{"glm53_flash": GLM5Next, "glm53_flash_text": GLM5Next, "glm5_next_text": GLM5Next}

// Names of supported checkpoints, for error messages.
const (
	nearestV32     = "deepseek-ai/DeepSeek-V3.2"
	nearestV4Flash = "deepseek-ai/DeepSeek-V4-Flash"
	nearestV41     = "deepseek-ai/DeepSeek-V4.1-Flash"
	nearestV4Pro   = "deepseek-ai/DeepSeek-V4-Pro"
	nearestGLM     = "zai-org/GLM-5-FP8"
	nearestGLM52   = "zai-org/GLM-5.2-FP8"
	nearestV3      = "deepseek-ai/DeepSeek-V3.1"
	nearestKimi    = "moonshotai/Kimi-K2-Instruct-0905"
	nearestGLMLite = "zai-org/GLM-4.7-Flash"
	nearestNext    = "zai-org/GLM-5.3-Flash"
)

// nearestRelease names the release of the same model whose weight format is supported.
func nearestRelease(f Family, fields map[string]json.RawMessage) string {
	name := nearestV32
	switch {
	case f == DeepseekV4 && string(fields["hidden_size"]) == "4096":
		name = nearestV4Flash
	case f == DeepseekV4:
		name = nearestV4Pro
	case f == DeepseekV41:
		name = nearestV41
	case f == GLMMoeDSA && fields["indexer_types"] != nil:
		name = nearestGLM52
	case f == GLMMoeDSA:
		name = nearestGLM
	case f == DeepseekV3:
		name = nearestV3
	case f == KimiK2 || f == KimiK25:
		name = nearestKimi
	case f == GLM4MoeLite:
		name = nearestGLMLite
	case f == GLM5Next:
		name = nearestNext
	}
	return "the nearest checkpoint that runs is " + name
}

// familyOf finds the family by model_type. If text_config describes the text network and the outer name is unknown,
// it uses the model_type of text_config. It returns an error for families that are not supported.
func familyOf(fields map[string]json.RawMessage) (Family, error) {
	kind, known := word(fields["model_type"])
	if other, ok := otherNames[kind]; ok {
		kind = string(other)
	}
	if inner := fields["text_config"]; inner != nil && !slices.Contains(Families(), Family(kind)) {
		var text map[string]json.RawMessage
		if json.Unmarshal(inner, &text) == nil {
			if k, ok := word(text["model_type"]); ok && slices.Contains(Families(), Family(k)) {
				kind, known = k, true
			}
		}
	}
	if known && slices.Contains(Families(), Family(kind)) {
		return Family(kind), nil
	}
	asked := "no model_type"
	if text := fields["model_type"]; text != nil {
		asked = "model_type " + clip(text)
	}
	var classes []string
	if json.Unmarshal(fields["architectures"], &classes) == nil && len(classes) > 0 && !known {
		kind = classes[0]
		asked += fmt.Sprintf(", architectures %q", classes)
	}
	names := make([]string, 0, len(Families()))
	for _, f := range Families() {
		names = append(names, string(f))
	}
	why := ""
	r, ok := relatives[kind]
	if ok {
		why = " (" + r.why + ")"
	}
	text := fmt.Sprintf("; want one of %s", strings.Join(names, ", "))
	if ok {
		text += "; the nearest checkpoint that runs is " + r.nearest
	}
	return "", fmt.Errorf("%s: %w%s%s", asked, ErrFamily, why, text)
}

// word reads a JSON string; ok is false for any other JSON value.
func word(text json.RawMessage) (string, bool) {
	var s string
	if text == nil || json.Unmarshal(text, &s) != nil {
		return "", false
	}
	return s, true
}
