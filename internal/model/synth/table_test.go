package synth_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"testing"

	"sparrow/internal/model/config"
	"sparrow/internal/model/family"
	"sparrow/internal/model/synth"
	"sparrow/internal/testkit/table"
)

var numbers = regexp.MustCompile(`\d+`)

// The tensors of checkpoints of every family in every type, and of releases in every format, equal those of the golden
// table: names with # for the numbers of layers and experts, how many there are, types, shapes and distributions, and
// the values of tensors that have some.
func TestTableOfTensors(t *testing.T) {
	var lines []string
	list := func(src *family.Source) {
		counts := map[string]int{}
		var order []string
		for _, name := range src.Weights.Names() {
			x, _ := src.Weights.Tensor(name)
			line := fmt.Sprintf("%s %v %v", numbers.ReplaceAllString(name, "#"), x.DType, x.Shape)
			if d := x.Drawn; d != nil && d.Spread != 0 {
				line += fmt.Sprintf(" mean %.4g, spread %.4g", d.Mean, d.Spread)
			}
			if len(x.Data) > 0 && len(x.Data) <= 16 {
				line += fmt.Sprintf(" %x", x.Data)
			}
			if counts[line]++; counts[line] == 1 {
				order = append(order, line)
			}
		}
		for _, line := range order {
			lines = append(lines, fmt.Sprintf("    %d x %s", counts[line], line))
		}
	}
	for _, preset := range []string{"v32-tiny", "glm-tiny", "v3-tiny", "v4-tiny", "v4-dspark-tiny", "v41-tiny",
		"glm53f-tiny"} {
		text, err := synth.PresetConfig(preset)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []synth.DType{synth.BF16, synth.FP8, synth.Int4} {
			lines = append(lines, fmt.Sprintf("%s in %v", preset, kind))
			c, err := synth.New("config.json", text, synth.Options{DType: kind, Seed: 1})
			if err != nil {
				lines = append(lines, "  refused "+table.Facts(err.Error()))
				continue
			}
			lines = append(lines, fmt.Sprintf("  %+v", c.Size()))
			src, err := c.Dummy(preset)
			if err != nil {
				t.Fatal(err)
			}
			list(src)
		}
		var whole map[string]any
		if err := json.Unmarshal(text, &whole); err != nil {
			t.Fatal(err)
		}
		if preset != "v32-tiny" && preset != "v4-tiny" {
			continue
		}
		for i, q := range []string{
			`null`, `{"quant_method":"fp8","weight_block_size":[128,128]}`,
			`{"quant_method":"modelopt","quant_algo":"NVFP4"}`, `{"quant_method":"mxfp4"}`,
			`{"quant_method":"modelopt","quant_algo":"FP8","ignore":["lm_head","*self_attn*"]}`,
			`{"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":
			{"a":{"targets":["Linear"],"weights":{"num_bits":4,"type":"int","strategy":"group","group_size":32}}}}`,
			`{"quant_method":"compressed-tensors","format":"float-quantized","config_groups":
			{"a":{"targets":["Linear"],"weights":{"num_bits":8,"type":"float","strategy":"channel"}}}}`,
			`{"quant_method":"awq","bits":4,"group_size":64,"version":"gemm"}`,
			`{"quant_method":"gptq","bits":8,"group_size":-1,"sym":true}`,
		} {
			if i > 2 && preset == "v4-tiny" {
				break // the others have the same tensors in both families
			}
			whole["quantization_config"] = json.RawMessage(q)
			edited, err := json.Marshal(whole)
			if err != nil {
				t.Fatal(err)
			}
			src, assumed, err := synth.Described(preset, config.Release{File: "config.json", Config: edited})
			if err != nil {
				lines = append(lines, fmt.Sprintf("%s of %.60q: refused %s", preset, q, table.Facts(err.Error())))
				continue
			}
			lines = append(lines, fmt.Sprintf("%s of %.60q, assumed %v: %s, %+v", preset, q, assumed != "",
				src.Config.Format, src.Weights.Scheme))
			list(src)
		}
	}
	table.Check(t, "tensors.txt", lines)
}

// Every preset has a config.json of a family that is supported. ReleaseNames has exactly the presets that name a
// release, in alphabetical order.
func TestPresetsAndTheirReleases(t *testing.T) {
	var released []string
	for _, p := range synth.Presets() {
		text, err := synth.PresetConfig(p.Name)
		if err == nil {
			_, err = config.Describe(p.Name, text)
		}
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if p.Release != "" {
			released = append(released, p.Name)
		}
	}
	slices.Sort(released)
	if got := synth.ReleaseNames(); !slices.Equal(got, released) || !slices.Contains(got, "deepseek-v3.2") {
		t.Errorf("releases %v, want %v", got, released)
	}
	if _, err := synth.PresetConfig("deepseek-v3.3"); !errors.Is(err, synth.ErrPreset) {
		t.Errorf("an unknown preset: %v", err)
	}
}
