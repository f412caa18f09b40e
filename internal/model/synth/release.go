package synth

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// alias is a release with the shape of a preset. types are those of its weights, if they differ from the preset's.
type alias struct {
	preset string
	types  releaseTypes
}

// releaseTypes are the types of weights in the name of a release.
type releaseTypes uint8

const (
	asPreset   releaseTypes = iota
	allBF16                 // nothing is quantised
	allFP8                  // blocks of 128 x 128
	fp8Experts              // DeepSeek-V4 with FP8 experts instead of FP4 experts
	int4Experts
)

// aliases holds releases by the last part of their names on Hugging Face, in lower case.
var aliases = map[string]alias{
	"deepseek-v3-0324": {preset: "deepseek-v3"}, "deepseek-v3-base": {preset: "deepseek-v3"},
	"deepseek-r1": {preset: "deepseek-v3"}, "deepseek-r1-0528": {preset: "deepseek-v3"},
	"deepseek-v3.1": {preset: "deepseek-v3"}, "deepseek-v3.1-base": {preset: "deepseek-v3"},
	"deepseek-v3.1-terminus": {preset: "deepseek-v3"}, "deepseek-v3.2-exp": {preset: "deepseek-v3.2"},
	"deepseek-v3.2-speciale": {preset: "deepseek-v3.2"}, "deepseek-v4-flash-base": {"deepseek-v4-flash", fp8Experts},
	"deepseek-v4-flash-dspark": {preset: "deepseek-v4-flash-0731"}, "glm-5-fp8": {"glm-5", allFP8},
	"glm-5.1": {preset: "glm-5"}, "glm-5.1-fp8": {"glm-5", allFP8}, "glm-5.2-fp8": {"glm-5.2", allFP8},
	"glm-5.3": {"glm-5.2", allFP8}, "glm-5.3-flash": {"glm-5.3-flash", allFP8},
	"kimi-k2-instruct": {preset: "kimi-k2"}, "kimi-k2-instruct-0905": {preset: "kimi-k2"},
	"kimi-k2-base": {preset: "kimi-k2"}, "kimi-k2-thinking": {"kimi-k2", int4Experts},
}

// String returns the types as text for messages.
func (t releaseTypes) String() string {
	switch t {
	case allBF16:
		return "BF16 weights"
	case allFP8:
		return "FP8 weights in blocks of 128 x 128"
	case fp8Experts:
		return "FP8 experts"
	case int4Experts:
		return "int4 experts"
	case asPreset:
	}
	return "weights in the types of that release"
}

// IsRelease reports whether ReleaseConfig supports a name.
func IsRelease(name string) bool {
	_, _, ok := releaseOf(name)
	return ok
}

// releaseOf returns the shape and the types of a model by its name: NAME or OWNER/NAME, where NAME is a preset or an
// alias, followed by -FP8 or -BF16 for a copy in that type. listed is true if the publisher of the preset has a release
// with this name; otherwise the model may have other types.
func releaseOf(name string) (a alias, listed, ok bool) {
	owner, base, owned := strings.Cut(strings.ToLower(name), "/")
	if !owned {
		owner, base = "", owner
	} else if owner == "" || strings.Trim(owner, ".") == "" {
		return alias{}, false, false // a path
	}
	find := func(base string) bool {
		if a, ok = aliases[base]; !ok && slices.Contains(PresetNames(), base) {
			a, ok = alias{preset: base}, true
		}
		return ok
	}
	listed = find(base)
	for end, types := range map[string]releaseTypes{"-fp8": allFP8, "-bf16": allBF16} {
		if stem, cut := strings.CutSuffix(base, end); cut && !ok && find(stem) {
			a.types = types
		}
	}
	publisher := a.publisher()
	if owned && publisher == "" { // shapes without a release have no owner
		return alias{}, false, false
	}
	return a, listed && (!owned || owner == publisher), ok
}

// publisher returns the owner of the release of the alias's preset.
func (a alias) publisher() string {
	for _, p := range Presets() {
		if p.Name == a.preset {
			owner, _, _ := strings.Cut(p.Release, "/")
			return owner
		}
	}
	return ""
}

// Unlisted returns a text about why the types of a model may differ from those of ReleaseConfig: its name is not that
// of a release of the model's publisher. It is empty for releases and for names that ReleaseConfig does not support.
func Unlisted(name string) string {
	a, listed, ok := releaseOf(name)
	if !ok || listed {
		return ""
	}
	text := fmt.Sprintf("%s is not a known release", name)
	if publisher := a.publisher(); publisher != "" {
		text += " of " + publisher
	}
	text += fmt.Sprintf("; this is the built-in description of %s with %s. The types of the repository are known only "+
		"from its config.json: ", a.preset, a.types)
	if strings.Contains(name, "/") {
		return text + fmt.Sprintf("'sparrow pull --dry-run %s' reads it, or give the file to 'sparrow inspect'", name)
	}
	return text + "give 'sparrow pull --dry-run' the name with its owner, or give the file to 'sparrow inspect'"
}

// ReleaseConfig returns a config.json with the fields of a release on which sizes depend. For the name of a copy
// (Unlisted), it has the types in the name.
func ReleaseConfig(name string) ([]byte, error) {
	a, _, ok := releaseOf(name)
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
