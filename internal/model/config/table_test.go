package config_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/model/config"
	"sparrow/internal/testkit/table"
	"sparrow/internal/testkit/wiretable"
	"sparrow/weight"
)

// For every field of a released config.json, the table states how a changed value changes the description of the model
// or which error it gives. A field that is no longer read or checked changes a line of the table.
func TestTableOfFields(t *testing.T) {
	var lines []string
	values := []string{"-1", "0", "3", "1e10", `"x"`}
	for _, name := range []string{"deepseek-v3.2", "glm-5.2", "deepseek-v4-flash-dspark", "deepseek-v4.1-flash",
		"glm-5.3-flash"} {
		var r struct {
			Config json.RawMessage `json:"config"`
		}
		readFile(t, name, &r)
		var keys map[string]any
		if err := json.Unmarshal(r.Config, &keys); err != nil {
			t.Fatal(err)
		}
		objects := []wiretable.Object{{Names: scalars(keys), Only: values}}
		for _, inner := range []string{"rope_scaling", "rope_parameters", "quantization_config", "text_config"} {
			if m, ok := keys[inner].(map[string]any); ok {
				objects = append(objects, wiretable.Object{Path: []any{inner}, Names: scalars(m), Only: values})
			}
		}
		lines = append(lines, wiretable.Lines(t, name, string(r.Config), func(text []byte) (any, error) {
			return config.Describe("config.json", text)
		}, objects...)...)
	}
	table.Check(t, "fields.txt", lines)
}

// scalars returns the names of fields that are neither objects nor long lists.
func scalars(m map[string]any) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		switch v := m[name].(type) {
		case map[string]any:
		case []any:
			if len(v) < 8 {
				names = append(names, name)
			}
		default:
			names = append(names, name)
		}
	}
	return names
}

func readFile(t *testing.T, name string, to any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "released", name+".json"))
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The formats of released checkpoints, their unused parts, and the type of each kind of module are as in the table.
func TestTableOfReleases(t *testing.T) {
	files, err := filepath.Glob("testdata/released/*.json")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	describe := func(name string, r config.Release) {
		d, err := r.Describe()
		if err != nil {
			lines = append(lines, name+": refused "+table.Facts(err.Error()))
			return
		}
		c := d.Common()
		slices.SortFunc(c.Scheme.Groups, func(a, b weight.Group) int { return a.Bits - b.Bits })
		lines = append(lines, fmt.Sprintf("%s: %s, %s, scheme %+v, losses %s", name, c.Family, c.Format, c.Scheme,
			table.Facts(strings.Join(c.Losses, "; "))))
		m, err := r.Modules()
		if err != nil {
			lines = append(lines, "  "+err.Error())
			return
		}
		lines = append(lines, fmt.Sprintf("  base %s, assumed %v", m.Base, m.Assumed != ""))
		for _, module := range []string{"model.layers.3.self_attn.q_a_proj", "model.layers.3.self_attn.kv_b_proj",
			"model.layers.3.self_attn.indexer.wq_b", "model.layers.0.mlp.gate_proj", "model.layers.4.mlp.gate",
			"model.layers.4.mlp.experts.7.down_proj", "model.layers.4.mlp.shared_experts.up_proj",
			"model.layers.61.mlp.experts.0.up_proj", "layers.4.ffn.experts.7.w1", "layers.4.attn.wq_a", "lm_head"} {
			for _, linear := range []bool{true, false} {
				if kind, ok := m.Of(linear, module); ok {
					lines = append(lines, fmt.Sprintf("  %s, linear %v: %v %+v", module, linear, kind, kind))
				}
			}
		}
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		if name == "verdicts" {
			continue
		}
		var r struct {
			Config   json.RawMessage `json:"config"`
			ModelOpt json.RawMessage `json:"hf_quant_config"`
		}
		readFile(t, name, &r)
		describe(name, config.Release{File: "config.json", Config: r.Config, ModelOpt: r.ModelOpt})
	}
	var base struct {
		Config map[string]any `json:"config"`
	}
	readFile(t, "deepseek-v3.2", &base)
	for _, q := range []string{
		`{"quant_method":"modelopt","quant_algo":"FP8","ignore":["lm_head","*self_attn*"]}`,
		`{"quant_method":"modelopt","quant_algo":"MIXED_PRECISION","moe_quant_algo":"NVFP4"}`,
		`{"quant_method":"modelopt","quantized_layers":{"model.layers.4.mlp":{"quant_algo":"NVFP4"}},"moe_quant_algo":"FP8"}`,
		`{"quant_method":"modelopt","quant_algo":"INT4_AWQ"}`,
		`{"quant_method":"compressed-tensors","format":"pack-quantized","ignore":["re:.*self_attn.*"],"config_groups":
		{"a":{"targets":["Linear"],"weights":{"num_bits":4,"type":"int","strategy":"group","group_size":32}}}}`,
		`{"quant_method":"compressed-tensors","format":"float-quantized","config_groups":
		{"a":{"targets":["re:.*experts.*"],"weights":{"num_bits":8,"type":"float","strategy":"channel"}}}}`,
		`{"quant_method":"compressed-tensors","format":"float-quantized","config_groups":
		{"a":{"targets":["model.layers.4"],"weights":{"num_bits":8,"type":"float","strategy":"block",
		"block_structure":[128,128]}}}}`,
		`{"quant_method":"compressed-tensors","format":"marlin-24"}`,
		`{"quant_method":"compressed-tensors","format":"dense","sparsity_config":{"format":"sparse-24"}}`,
		`{"quant_method":"awq","bits":4,"group_size":128,"version":"gemm","modules_to_not_convert":["self_attn"]}`,
		`{"quant_method":"gptq","bits":8,"group_size":-1,"sym":true,"dynamic":{"-:.*shared.*":{}}}`,
		`{"quant_method":"gptq","bits":4,"group_size":64,"desc_act":true}`,
		`{"quant_method":"gptq","bits":4,"group_size":64,"checkpoint_format":"gptq_v2"}`,
		`{"quant_method":"auto-round","bits":4,"group_size":128,"packing_format":"auto_round:auto_awq"}`,
		`{"quant_method":"quark","global_quant_config":{"weight":{"dtype":"fp4","group_size":32}}}`,
		`{"quant_method":"quark","global_quant_config":{"weight":{"dtype":"fp4","group_size":16}}}`,
		`{"quant_method":"mxfp4"}`, `{"quant_method":"fp8"}`, `{"quant_method":"fp8","weight_block_size":[64,64]}`,
		`{"quant_method":"fp8","weight_block_size":[1,32]}`, `{"quant_method":"fp8","weight_block_size":[0,128]}`,
		`{"quant_method":"fp8","weight_block_size":[128,128],"kv_cache_scheme":{"type":"float"}}`,
		`{"quant_method":"bitsandbytes"}`,
	} {
		base.Config["quantization_config"] = json.RawMessage(q)
		text, err := json.Marshal(base.Config)
		if err != nil {
			t.Fatal(err)
		}
		describe(strings.Join(strings.Fields(q), ""), config.Release{File: "config.json", Config: text})
	}
	table.Check(t, "releases.txt", lines)
}
