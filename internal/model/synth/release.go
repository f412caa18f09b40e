package synth

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
)

// alias is a release that has the shape of a preset, and the types of its weights if they differ from the preset's.
type alias struct {
	preset string
	types  releaseTypes
}

// releaseTypes is the type of weights that the name of a release states.
type releaseTypes uint8

const (
	asPreset   releaseTypes = iota
	allBF16                 // nothing is quantised
	allFP8                  // blocks of 128 x 128
	fp8Experts              // DeepSeek-V4 with FP8 experts instead of FP4 experts
	int4Experts
)

// aliases has releases by the last part of their names on hubs, in lower case.
var aliases = map[string]alias{
	"deepseek-v3-0324": {preset: "deepseek-v3"}, "deepseek-v3-base": {preset: "deepseek-v3"},
	"deepseek-r1": {preset: "deepseek-v3"}, "deepseek-r1-0528": {preset: "deepseek-v3"},
	"deepseek-v3.1": {preset: "deepseek-v3"}, "deepseek-v3.1-base": {preset: "deepseek-v3"},
	"deepseek-v3.1-terminus": {preset: "deepseek-v3"}, "deepseek-v3.2-exp": {preset: "deepseek-v3.2"},
	"deepseek-v3.2-speciale": {preset: "deepseek-v3.2"}, "deepseek-v4-flash-base": {"deepseek-v4-flash", fp8Experts},
	"deepseek-v4-flash-dspark": {preset: "deepseek-v4-flash-0731"}, "glm-5.1": {preset: "glm-5"},
	"glm-5.3": {"glm-5.2", allFP8}, "glm-5.3-flash": {"glm-5.3-flash", allFP8},
	"kimi-k2-instruct": {preset: "kimi-k2"}, "kimi-k2-instruct-0905": {preset: "kimi-k2"},
	"kimi-k2-base": {preset: "kimi-k2"}, "kimi-k2-thinking": {"kimi-k2", int4Experts},
}

// IsRelease reports whether ReleaseConfig has a name.
func IsRelease(name string) bool {
	_, ok := releaseOf(name)
	return ok
}

// releaseOf finds the shape and the types of a release: a preset or an alias, followed by -FP8 or -BF16 if the
// release is a copy in that type. Text before a slash is the owner.
func releaseOf(name string) (alias, bool) {
	name = strings.ToLower(path.Base(name))
	find := func(name string) (alias, bool) {
		a, ok := aliases[name]
		if !ok && slices.Contains(PresetNames(), name) {
			return alias{preset: name}, true
		}
		return a, ok
	}
	if a, ok := find(name); ok {
		return a, true
	}
	for end, types := range map[string]releaseTypes{"-fp8": allFP8, "-bf16": allBF16} {
		if stem, ok := strings.CutSuffix(name, end); ok {
			a, ok := find(stem)
			a.types = types
			return a, ok
		}
	}
	return alias{}, false
}

// ReleaseConfig returns the config.json of a release by its name, as far as sizes depend on it.
func ReleaseConfig(name string) ([]byte, error) {
	a, ok := releaseOf(name)
	if !ok {
		return nil, fmt.Errorf("synth: %w %q", ErrPreset, name)
	}
	text, err := PresetConfig(a.preset)
	if err != nil || a.types == asPreset {
		return text, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("synth: %s: %w", a.preset, err)
	}
	quantised := "quantization_config"
	switch a.types {
	case allBF16:
		delete(fields, quantised)
		delete(fields, "expert_dtype")
	case allFP8, fp8Experts:
		if fields[quantised] == nil {
			fields[quantised] = json.RawMessage(`{"quant_method": "fp8", "weight_block_size": [128, 128]}`)
		}
		if string(fields["model_type"]) == `"deepseek_v4"` {
			fields["expert_dtype"] = json.RawMessage(`"fp8"`)
		}
	case int4Experts:
		if fields[quantised], err = int4Config(); err != nil {
			return nil, fmt.Errorf("synth: %s: %w", a.preset, err)
		}
	case asPreset:
	}
	return json.Marshal(fields)
}
