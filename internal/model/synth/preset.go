package synth

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"
)

//go:embed preset/*.json
var presetFiles embed.FS

// Preset is a named model shape.
type Preset struct {
	Name    string
	Summary string
	Release string // name on Hugging Face, with its owner; empty for a shape that was not released
}

// Presets lists the named shapes, the smallest first.
func Presets() []Preset {
	return []Preset{
		{"v32-tiny", "DeepSeek-V3.2, smallest size, 3 layers, vocabulary for the built-in tokenizer", ""},
		{"glm-tiny", "GLM-5, smallest size, 4 layers of which 1 shares its selection", ""},
		{"v4-tiny", "DeepSeek-V4, smallest size, 4 layers: window, ratio 4, ratio 128, vocabulary for the " +
			"built-in tokenizer", ""},
		{"v41-tiny", "DeepSeek-V4.1, smallest size, 7 layers: window, n-gram table, ratios 2 and 1, candidates, " +
			"vocabulary for the built-in tokenizer", ""},
		{"v4-dspark-tiny", "v4-tiny with a DSpark draft head: 3 stages, blocks of 5 tokens", ""},
		{"v3-tiny", "DeepSeek-V3, smallest size, 3 layers without an indexer, vocabulary for the built-in " +
			"tokenizer", ""},
		{"glm53f-tiny", "GLM-5.3-Flash, smallest size, 4 layers: 3 linear, 1 over pooled keys, vocabulary for the " +
			"built-in tokenizer", ""},
		{"v32-mini", "DeepSeek-V3.2 cut to 8 layers and 16 heads, whole vocabulary: the benchmark shape", ""},
		{"v32-slice", "DeepSeek-V3.2 at its full width, 6 layers and 64 experts: the benchmark shape of one GPU", ""},
		{"v32-slice256", "v32-slice with 256 experts", ""},
		{"v4-slice", "DeepSeek-V4-Flash at its full width, 1 layer of ratio 4 and 64 experts: the benchmark shape of " +
			"CPUs", ""},
		{"v41-eight", "DeepSeek-V4.1-Flash at its full width, 8 layers of every kind, an n-gram table of 2 GiB", ""},
		{"v4-dspark-mini", "DeepSeek-V4 with a DSpark draft head, cut to 24 layers of a quarter of the width and 32 " +
			"experts, whole vocabulary: the benchmark shape of drafts on CPUs", ""},
		{"v3-slice", "DeepSeek-V3 at its full width, 6 layers and 64 experts: v32-slice without an indexer", ""},
		{"kimi-slice", "Kimi-K2-Thinking at its full width, 4 layers, 64 heads and 384 experts in int4", ""},
		{"glm53f-twelve", "GLM-5.3-Flash at its full width, 12 layers in the released pattern", ""},
		{"glm-4.7-flash", "GLM-4.7-Flash as released, 30 billion parameters, without an indexer",
			"zai-org/GLM-4.7-Flash"},
		{"deepseek-v3.2", "DeepSeek-V3.2 as released, 685 billion parameters", "deepseek-ai/DeepSeek-V3.2"},
		{"glm-5", "GLM-5 as released, 754 billion parameters", "zai-org/GLM-5"},
		{"glm-5.2", "GLM-5.2 as released: selections shared by groups of layers", "zai-org/GLM-5.2"},
		{"glm-5.3-flash", "GLM-5.3-Flash as released, 321 billion parameters, without its vision tower",
			"zai-org/GLM-5.3-Flash"},
		{"deepseek-v3", "DeepSeek-V3 as released, 685 billion parameters, without an indexer",
			"deepseek-ai/DeepSeek-V3"},
		{"kimi-k2", "Kimi-K2 as released, 1 trillion parameters, without an indexer", "moonshotai/Kimi-K2-Instruct"},
		{"deepseek-v4-flash", "DeepSeek-V4-Flash as released, 284 billion parameters", "deepseek-ai/DeepSeek-V4-Flash"},
		{"deepseek-v4.1-flash", "DeepSeek-V4.1-Flash as released, 552 billion parameters and 197 billion in " +
			"n-gram tables", "deepseek-ai/DeepSeek-V4.1-Flash"},
		{"deepseek-v4-flash-0731", "DeepSeek-V4-Flash-0731 as released: deepseek-v4-flash with a DSpark draft head",
			"deepseek-ai/DeepSeek-V4-Flash-0731"},
		{"deepseek-v4-pro-0813", "DeepSeek-V4-Pro-0813 as released: deepseek-v4-pro with a DSpark draft head",
			"deepseek-ai/DeepSeek-V4-Pro-0813"},
		{"deepseek-v4-pro", "DeepSeek-V4-Pro as released, 1.6 trillion parameters", "deepseek-ai/DeepSeek-V4-Pro"},
	}
}

// PresetNames lists the names of Presets.
func PresetNames() []string {
	var names []string
	for _, p := range Presets() {
		names = append(names, p.Name)
	}
	return names
}

// ReleaseNames lists the names of Presets that were released, in alphabetical order.
func ReleaseNames() []string {
	var names []string
	for _, p := range Presets() {
		if p.Release != "" {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}

// PresetConfig returns the config.json of a preset.
func PresetConfig(name string) ([]byte, error) {
	for _, p := range Presets() {
		if p.Name == name {
			return presetFiles.ReadFile(path.Join("preset", name+".json"))
		}
	}
	return nil, fmt.Errorf("synth: %w %q; want one of %s, or a config.json", ErrPreset, name,
		strings.Join(PresetNames(), ", "))
}
