package config

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sparrow/weight"
)

// released holds the values of a release's config files (testdata/released).
type released struct {
	Name     string          `json:"name"`
	Config   json.RawMessage `json:"config"`
	ModelOpt json.RawMessage `json:"hf_quant_config"`
}

// verdict is the expected result for a release.
type verdict struct {
	After     string  `json:"after"`
	AfterName *string `json:"after_name"`
}

// Every released checkpoint gets the expected verdict: it runs, or it is refused with the name of the unsupported
// feature and the nearest checkpoint that runs.
func TestVerdicts(t *testing.T) {
	const dir = "testdata/released"
	var verdicts map[string]verdict
	readJSON(t, filepath.Join(dir, "verdicts.json"), &verdicts)
	if len(verdicts) < 31 {
		t.Fatalf("%d verdicts", len(verdicts))
	}
	for name, v := range verdicts {
		t.Run(name, func(t *testing.T) {
			var r released
			readJSON(t, filepath.Join(dir, name+".json"), &r)
			want, named := v.After, v.AfterName
			d, err := Release{File: "config.json", Config: r.Config, ModelOpt: r.ModelOpt}.Describe()
			if want == "accept" && err != nil {
				t.Fatalf("refused: %v", err)
			}
			if want == "refuse" && err == nil {
				t.Fatalf("accepted as %s", d.Common().Format)
			}
			if err == nil {
				return
			}
			if !errors.Is(err, ErrFamily) && !errors.Is(err, ErrFormat) {
				t.Errorf("refused for another reason: %v", err)
			}
			text := strings.ToLower(err.Error())
			if named != nil && !strings.Contains(text, strings.ToLower(*named)) {
				t.Errorf("%v does not name %s", err, *named)
			}
			if !strings.Contains(text, "want one of") || !strings.Contains(text, "the nearest checkpoint that runs") {
				t.Errorf("%v does not say what is supported and what runs", err)
			}
		})
	}
}

// A quantisation format is recognised by any of the fields that may name it, and the error names the field and the
// value.
func TestFormats(t *testing.T) {
	block := fields{"quant_method": "fp8", "weight_block_size": []int{128, 128}}
	for _, c := range []struct {
		name  string
		quant any
		file  string
		names []string
		want  []string // parts of the error; nil if the format is supported
	}{
		{name: "plain"},
		{name: "FP8", quant: block},
		{name: "an empty file of modelopt", quant: block, file: `{"quantization":{}}`},
		{name: "blocks of 32", quant: fields{"quant_method": "fp8", "weight_block_size": []int{32, 32}}},
		{name: "no blocks", quant: fields{"quant_method": "fp8"}},
		{"blocks of nothing", fields{"quant_method": "fp8", "weight_block_size": []int{0, 128}}, "", nil,
			[]string{"weight_block_size is [0 128]"}},
		{"three sizes of blocks", fields{"quant_method": "fp8", "weight_block_size": []int{1, 2, 3}}, "", nil,
			[]string{"weight_block_size is [1 2 3]"}},
		{name: "GPTQ", quant: fields{"quant_method": "gptq", "bits": 4, "group_size": 64}},
		{"GPTQ of 3 bits", fields{"quant_method": "gptq", "bits": 3, "group_size": 64}, "", nil,
			[]string{"quantization_config.bits is 3", "GPTQ: int3 in groups of 64"}},
		{"reordered GPTQ", fields{"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": true}, "", nil,
			[]string{"desc_act is true", "reordered columns"}},
		{"GPTQ for Marlin", fields{"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, "", nil,
			[]string{"checkpoint_format", "marlin"}},
		{"GPTQ of many sizes", fields{"quant_method": "gptq", "bits": 4, "dynamic": fields{"+:.*down": 8}},
			"", nil, []string{"dynamic", "+:.*down"}},
		{name: "GPTQ of some modules", quant: fields{"quant_method": "gptq", "bits": 4,
			"dynamic": fields{"-:.*attn": 0}}},
		{"AWQ of another order", fields{"quant_method": "awq", "bits": 4, "version": "gemv"}, "", nil,
			[]string{"version", "gemv"}},
		{"AutoRound of its own", fields{"quant_method": "auto-round", "bits": 4, "group_size": 128}, "", nil,
			[]string{"packing_format", "auto-round: int4 in groups of 128"}},
		{"another method", fields{"quant_method": "bitsandbytes"}, "", nil, []string{`"bitsandbytes"`}},
		{"rotated activations", compressedConfig(fields{"transform_config": fields{"R1": 1}}), "", nil,
			[]string{"transform_config", "R1"}},
		{name: "sparsity that is dense", quant: compressedConfig(fields{"sparsity_config": fields{"format": "dense"}})},
		{"sparse weights", compressedConfig(fields{"format": "marlin-24"}), "", nil, []string{"format", "marlin-24"}},
		{"int3", compressedConfig(fields{"config_groups": fields{"group_0": fields{"weights": fields{"num_bits": 3,
			"type": "int", "strategy": "group", "group_size": 32}}}}), "", nil, []string{"int3"}},
		{name: "modelopt alone", file: `{"quantization":{"quant_algo":"NVFP4"}}`},
		{name: "modelopt that leaves some modules as they are", file: `{"quantization":{"quant_algo":` +
			`"MIXED_PRECISION","quantized_layers":{"a":{"quant_algo":"nvfp4"},"b":{"quant_algo":"None"}}}}`},
		{name: "modelopt that leaves all as it is", file: `{"quantization":{"quant_algo":"none"}}`},
		{"modelopt that changes inputs", nil, `{"quantization":{"quant_algo":"NVFP4_AWQ"}}`, nil,
			[]string{"hf_quant_config.json: quantization.quant_algo", "NVFP4_AWQ"}},
		{"modelopt by modules", block, `{"quantization":{"quant_algo":"MIXED_PRECISION","quantized_layers":` +
			`{"a":{"quant_algo":"nvfp4_svd"},"b":{"quant_algo":"FP8"}}}}`, nil,
			[]string{"quantized_layers", "FP8 and NVFP4_SVD"}},
		{name: "names of NVFP4", names: []string{"a.weight", "a.weight_scale_2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Release{File: "config.json", Config: text(t, v32(fields{"quantization_config": c.quant})),
				Tensors: c.names}
			if c.file != "" {
				r.ModelOpt = []byte(c.file)
			}
			_, err := r.Describe()
			if (err != nil) != (c.want != nil) || err != nil && !errors.Is(err, ErrFormat) {
				t.Fatalf("%v", err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v lacks %q", err, w)
				}
			}
		})
	}
}

// compressedConfig returns a quantization_config of compressed-tensors with some changes.
func compressedConfig(change fields) fields {
	out := fields{"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": fields{
		"group_0": fields{"weights": fields{"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}}}}
	maps.Copy(out, change)
	return out
}

// A supported format is reported with the group size of its tensors and with the tensors that are not used.
func TestFormatOfGroups(t *testing.T) {
	q := compressedConfig(fields{"kv_cache_scheme": fields{"num_bits": 8}})
	d, err := Release{File: "config.json", Config: text(t, v32(fields{"quantization_config": q}))}.Describe()
	if err != nil {
		t.Fatal(err)
	}
	c := d.Common()
	if c.Format != "compressed-tensors: int4 in groups of 32" ||
		!slices.Equal(c.Scheme.Groups, []weight.Group{{Bits: 4, Size: 32}}) {
		t.Errorf("%q, %+v", c.Format, c.Scheme)
	}
	for _, want := range []string{"kv_cache_scheme"} {
		if !slices.ContainsFunc(c.Losses, func(l string) bool { return strings.Contains(l, want) }) {
			t.Errorf("%q do not name %s", c.Losses, want)
		}
	}
}

// Older GPTQ releases state their format in a separate file.
func TestOlderGPTQ(t *testing.T) {
	r := Release{File: "config.json", Config: text(t, v32()), Older: []byte(`{"bits":4,"group_size":-1,"sym":true}`)}
	d, err := r.Describe()
	if err != nil {
		t.Fatal(err)
	}
	want := weight.Scheme{Method: "gptq", Groups: []weight.Group{{Bits: 4}}, Symmetric: true}
	if c := d.Common(); c.Format != "GPTQ: int4 with a scale for each row" || !reflect.DeepEqual(c.Scheme, want) {
		t.Errorf("%q, %+v", c.Format, c.Scheme)
	}
	r.Older = []byte(`{"bits":4,"group_size":128,"desc_act":true}`)
	_, err = r.Describe()
	if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "quantize_config.json.desc_act") {
		t.Errorf("%v", err)
	}
}

// The stages of a DSpark head are the drafting layers of its checkpoint. A damaged description of a head is refused.
func TestDSpark(t *testing.T) {
	head := fields{"dspark_block_size": 5, "dspark_markov_rank": 256, "dspark_noise_token_id": 128799,
		"dspark_target_layer_ids": []int{40, 41, 42}}
	ratios := v4()["compress_ratios"].([]int)[:43]
	head["compress_ratios"] = append(slices.Clone(ratios), 0, 0, 0)
	c, err := ParseV4("config.json", text(t, v4(head)))
	if err != nil {
		t.Fatal(err)
	}
	want := DSpark{Block: 5, Rank: 256, Noise: 128799, Taps: []int{40, 41, 42}, Stages: 3}
	if d := c.DSpark; d == nil || d.Block != want.Block || d.Rank != want.Rank || d.Noise != want.Noise ||
		!slices.Equal(d.Taps, want.Taps) || d.Stages != want.Stages {
		t.Errorf("%+v, want %+v", c.DSpark, want)
	}
	if c.NextN != 3 || len(c.Losses) != 0 {
		t.Errorf("%d drafting layers, losses %q; want 3 and none", c.NextN, c.Losses)
	}
	for _, x := range []struct {
		change fields
		want   string
	}{
		{fields{"dspark_block_size": absent}, "dspark_block_size is missing"},
		{fields{"dspark_noise_token_id": absent}, "dspark_noise_token_id is missing"},
		{fields{"dspark_noise_token_id": 1 << 20}, "dspark_noise_token_id is 1048576"},
		{fields{"dspark_target_layer_ids": []int{40, 40}}, "dspark_target_layer_ids"},
		{fields{"dspark_target_layer_ids": []int{43}}, "dspark_target_layer_ids"},
		{fields{"compress_ratios": ratios}, "for each stage"},
		{fields{"dspark_block_size": 8}, "dspark_block_size is 8"},
		{fields{"dspark_markov_head_type": "gated"}, "dspark_markov_head_type is \"gated\""},
		{fields{"enable_confidence_head": false}, "enable_confidence_head is false"},
		{fields{"confidence_head_with_markov": false}, "confidence_head_with_markov is false"},
		{fields{"sample_from_anchor": false}, "sample_from_anchor is false"},
		{fields{"dspark_n_routed_experts": 64}, "dspark_n_routed_experts is 64"},
	} {
		if _, err := ParseV4("config.json", text(t, v4(head, x.change))); err == nil ||
			!strings.Contains(err.Error(), x.want) {
			t.Errorf("%v: %v, want %q", x.change, err, x.want)
		}
	}
	names := func(list ...string) []string { return list }
	for _, x := range []struct {
		change fields
		names  []string
		want   string
	}{
		{head, names("mtp.0.main_proj.weight"), ""},
		{head, names("layers.0.attn.wkv.weight"), ""}, // the checkpoint lacks the stages
		{head, names("mtp.0.e_proj.weight"), "describes a DSpark draft head"},
		{nil, names("mtp.0.main_proj.weight"), "has no dspark_ fields"},
		{nil, names("mtp.0.e_proj.weight"), ""},
	} {
		_, err := Release{File: "config.json", Config: text(t, v4(x.change)), Tensors: x.names}.Describe()
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%v: %v, want %q", x.names, err, x.want)
		}
	}
}

// DraftTensors accepts the tensors of a DSpark head and no others.
func TestDSparkTensors(t *testing.T) {
	d := &DSpark{Stages: 3}
	for _, name := range []string{"mtp.0.main_proj.weight", "mtp.0.main_proj.scale", "mtp.0.main_norm.weight",
		"mtp.1.attn.wq_a.weight", "mtp.2.ffn.experts.7.w1.scale", "mtp.2.markov_head.markov_w1.weight",
		"mtp.2.confidence_head.proj.weight", "mtp.2.hc_head_fn", "mtp.2.norm.weight", "mtp.1.hc_attn_base"} {
		if !d.DraftTensors(name) {
			t.Errorf("%s is not among them", name)
		}
	}
	for _, name := range []string{"mtp.3.attn.wq_a.weight", "mtp.1.main_proj.weight",
		"mtp.0.markov_head.markov_w1.weight",
		"mtp.0.e_proj.weight", "layers.0.attn.wq_a.weight", "mtp.0.bias", "mtp.00.attn.wkv.weight", "mtp.0"} {
		if d.DraftTensors(name) {
			t.Errorf("%s is among them", name)
		}
	}
}

// An unknown field that names a part of the network is refused. Any other unknown field is ignored and reported.
func TestUnknownFields(t *testing.T) {
	for _, name := range []string{"index_local_tokens", "moe_topk", "mla_scale_q_lora", "rope_local_theta"} {
		_, err := Parse("config.json", text(t, v32(fields{name: 2})))
		var p *Problems
		if !errors.As(err, &p) || len(p.List) != 1 || !strings.Contains(p.List[0], name+" is 2") {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, err := Parse("config.json", text(t, v32(fields{"made_by": "someone", "index_extra": nil, "moe_extra": false})))
	if err != nil || len(c.Losses) != 1 || !strings.Contains(c.Losses[0], "made_by") {
		t.Errorf("%v, %+v", err, c)
	}
}

// The description of the text network may be inside text_config.
func TestNestedConfig(t *testing.T) {
	inner := v32()
	c, err := Parse("config.json", text(t, fields{"model_type": "deepseek_v32_vl", "text_config": inner,
		"vision_config": fields{"depth": 3}}))
	if err != nil || c.Layers != 61 || c.Family != DeepseekV32 {
		t.Errorf("%+v, %v", c, err)
	}
}

func readJSON(t *testing.T, file string, to any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		t.Fatal(err)
	}
}
