package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sparrow/builtin"
	"sparrow/internal/model/estimate"
	"sparrow/internal/model/family"
	"sparrow/internal/model/inspect"
	"sparrow/internal/model/llamacpp"
	"sparrow/internal/model/synth"
	"sparrow/internal/model/usage"
	"sparrow/weight"
)

const oracle = "../../testdata/oracle/"

// inspect prints these numbers of parameters for the small checkpoints, by the shapes of section 4.2 of the v32 spec
// (hidden 128, vocabulary 640, q_lora 96, 8 experts of 64):
//
//	V3.2 attention   96*128 + 96 + 384*96 + 576*128 + 512 + 512*512 + 128*256 = 418400
//	GLM attention    96*128 + 96 + 512*96 + 576*128 + 512 + 896*512 + 128*512 = 660064
//	indexer          512*96 + 128*128 + 4*128 + 2*128                         =  66304
//	dense block      3*256*128 = 98304; experts 8*128 + 8 + 8*3*64*128 = 197640; shared expert 3*64*128 = 24576
//	V3.2             2*640*128 + 128 + 3*(418400 + 66304 + 256) + 98304 + 2*222216           = 2161584
//	GLM              2*640*128 + 128 + 3*(660064 + 256) + 2*66304 + 98304 + 2*222216         = 2820272
//	active           without the embedding (81920) and 6 of 8 experts of two layers (294912)
func TestInspectOracle(t *testing.T) {
	for _, c := range []struct {
		name                      string
		tensors, indexLayers      int
		total, active, cacheToken int64
		types                     map[string]int
	}{
		{"deepseek_v32-1", 106, 3, 2161584, 1784752, 3*1152 + 3*132, map[string]int{"BF16": 101, "F32": 5}},
		{"deepseek_v32-fp8-1", 184, 3, 2161584, 1784752, 3*1152 + 3*132,
			map[string]int{"BF16": 23, "F32": 83, "F8_E4M3": 78}},
		{"glm_moe_dsa-1", 101, 2, 2820272, 2443440, 3*1152 + 2*132, map[string]int{"BF16": 97, "F32": 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, stdout, stderr := invoke("inspect", oracle+c.name, "--json", "--memory", "1,0.001")
			if status != 0 {
				t.Fatal(stdout, stderr)
			}
			var s inspect.Summary
			if err := json.Unmarshal([]byte(stdout), &s); err != nil {
				t.Fatal(err)
			}
			if s.Tensors != c.tensors || s.IndexLayers != c.indexLayers || s.Layers != 3 {
				t.Errorf("%d tensors, %d of %d layers with an indexer; want %d, %d of 3", s.Tensors, s.IndexLayers,
					s.Layers, c.tensors, c.indexLayers)
			}
			if p := s.Parameters; p.Total != c.total || p.Main != c.total || p.NextN != 0 || p.Active != c.active {
				t.Errorf("parameters %+v, want %d, %d active", p, c.total, c.active)
			}
			if want := tensorBytes(t, c.name); s.TotalBytes != want {
				t.Errorf("%d bytes, the file holds %d", s.TotalBytes, want)
			}
			sum := int64(0)
			for _, b := range s.Bytes {
				sum += b.Bytes
				if b.Tensors != c.types[b.Type] {
					t.Errorf("%d tensors of type %s, want %d", b.Tensors, b.Type, c.types[b.Type])
				}
			}
			if sum != s.TotalBytes || len(s.Bytes) != len(c.types) {
				t.Errorf("%d types sum up to %d bytes of %d", len(s.Bytes), sum, s.TotalBytes)
			}
			b := s.Cache[0]
			if b.Layout != "bf16-1152" || b.TokenBytes != c.cacheToken {
				t.Errorf("%s takes %d bytes a token, want %d", b.Layout, b.TokenBytes, c.cacheToken)
			}
			if want := (1<<30 - s.TotalBytes) / c.cacheToken; b.Fits[0].Tokens != want || b.Fits[1].Tokens != 0 {
				t.Errorf("tokens that fit: %+v, want %d in 1 GiB and none in 0.001", b.Fits, want)
			}
		})
	}
}

// tensorBytes returns the size of a safetensors file without its header.
func tensorBytes(t *testing.T, name string) int64 {
	t.Helper()
	data, err := os.ReadFile(oracle + name + "/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	return int64(len(data)) - 8 - int64(binary.LittleEndian.Uint64(data))
}

func TestInspectForPeople(t *testing.T) {
	status, stdout, stderr := invoke("inspect", oracle+"glm_moe_dsa-1", "--memory", "1,0.001")
	if status != 0 {
		t.Fatal(stdout, stderr)
	}
	for _, w := range []string{"glm_moe_dsa, 3 layers", "top 128, on 2 of 3 layers", "2.82 M", "2.44 M active",
		"101 tensors", "BF16", "bf16-1152", "fp8-656", "fp8-576", "3720", "tokens in 1 GiB", "weights do not fit"} {
		if !strings.Contains(stdout, w) {
			t.Errorf("%q is not in\n%s", w, stdout)
		}
	}
}

func TestInspectRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"inspect"}, "no model was given"},
		{[]string{"inspect", t.TempDir()}, "config.json"},
		{[]string{"inspect", oracle + "glm_moe_dsa-1", "--memory", "0"}, "--memory 0"},
		{[]string{"inspect", oracle + "glm_moe_dsa-1", "--memory", "-3"}, "--memory -3"},
		{[]string{"inspect", oracle + "glm_moe_dsa-1", "--memory", "NaN"}, "--memory NaN"},
		{[]string{"inspect", "deepseek-v4-flash", "--hw", "mi355x,128G"}, "known GPUs: h200"},
		{[]string{"inspect", "deepseek-v3.2", "--hw", "h200,128G"}, "are missing"},
		{[]string{"inspect", "deepseek-v4-flash", "--hw", "h200", "--gpu-memory", "much"}, "--gpu-memory"},
		{[]string{"inspect", "deepseek-v4-flash", "--hw", "h200,128G", "--gpu-memory", "300G"},
			"--gpu-memory 300.00 GiB is more than the 139.00 GiB"},
		{[]string{"inspect", "deepseek-v4-flash", "--hw", "h200,128G", "--gpu-memory", "5G"},
			"try a larger --gpu-memory"},
		{[]string{"inspect", "--usage", oracle + "glm_moe_dsa-1/config.json"}, "not a usage file"},
		{[]string{"inspect", "deepseek-ai/Nothing"}, "sparrow pull"},
		{[]string{"inspect", "deepseek-v4-flash", "--usage", usageFile(t)}, "add --hw"},
	} {
		if status, _, stderr := invoke(c.args...); status != 1 || !strings.Contains(stderr, c.want) ||
			strings.Contains(stderr, "--cache-tokens") { // this flag belongs to other commands
			t.Errorf("%v: status %d, %q; want %q", c.args, status, stderr, c.want)
		}
	}
}

// inspect works without weights: with the name of a model, with its config.json, and with a folder that contains only
// config.json.
func TestInspectWithoutWeights(t *testing.T) {
	dir := t.TempDir()
	text, err := synth.PresetConfig("deepseek-v4-flash")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "config.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"deepseek-v4-flash", "deepseek-ai/DeepSeek-V4-Flash", file, dir} {
		status, stdout, stderr := invoke("inspect", name, "--memory", "400", "--json")
		var s inspect.Summary
		if err := json.Unmarshal([]byte(stdout), &s); status != 0 || err != nil {
			t.Fatalf("%s: %v %s %s", name, err, stdout, stderr)
		}
		if !s.NoWeights || s.Files != 0 {
			t.Errorf("%s: %d files of weights", name, s.Files)
		}
		if p := s.Parameters.Main / 1e9; p != 284 || s.Layers != 43 || s.TotalBytes < 150e9 || s.TotalBytes > 170e9 {
			t.Errorf("%s: %d billion parameters, %d layers, %d bytes", name, p, s.Layers, s.TotalBytes)
		}
		status, stdout, stderr = invoke("inspect", name, "--hw", "h200,128G")
		if status != 0 || !strings.Contains(stdout, "experts in host memory are computed by the CPU") ||
			!strings.Contains(stdout, "nothing was run") {
			t.Errorf("%s: %s %s", name, stdout, stderr)
		}
	}
	status, stdout, stderr := invoke("inspect", "deepseek-v3.2", "--hw", "8xh200,128G", "--json")
	var f estimate.Fit
	if err := json.Unmarshal([]byte(stdout), &f); status != 0 || err != nil || f.GPUs != 8 || len(f.Speeds) != 3 {
		t.Errorf("%v %s %s", err, stdout, stderr)
	}
}

// usageFile writes a file of expert usage for DeepSeek-V4-Flash with 12 choices, and returns its path.
func usageFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "usage.json")
	u := usage.New("deepseek_v4", 44, 256, 6)
	u.Add(3, make([]uint64, 256))
	u.Counts[3][7] = 12
	if err := u.Save(file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestInspectUsage(t *testing.T) {
	file := usageFile(t)
	if status, stdout, stderr := invoke("inspect", "--usage", file); status != 0 ||
		!strings.Contains(stdout, "12 choices") {
		t.Errorf("%s %s", stdout, stderr)
	}
	if status, stdout, stderr := invoke("inspect", "deepseek-v4-flash", "--hw", "h200,128G", "--usage",
		file); status != 0 || !strings.Contains(stdout, "by counted use") {
		t.Errorf("%s %s", stdout, stderr)
	}
}

// inspect lists missing tensors for checkpoint folders and GGUF files and exits with status 1.
func TestInspectNamesMissingTensors(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "part")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(oracle + "glm_moe_dsa-1/config.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	all, err := family.Open(oracle + "glm_moe_dsa-1")
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	gone := func(name string) bool {
		return name == "model.norm.weight" || strings.Contains(name, "layers.2.mlp.experts.3.") ||
			strings.Contains(name, "layers.1.mlp.experts.")
	}
	var kept []weight.Source
	var missing []string
	for _, name := range all.Weights.Names() {
		if x, _ := all.Weights.Tensor(name); gone(name) {
			missing = append(missing, fmt.Sprintf("missing %s, want shape %v", name, x.Shape))
		} else {
			kept = append(kept, weight.SourceBytes(name, x.DType, x.Shape, x.Data))
		}
	}
	if err := weight.CreateSharded(dir, kept, nil, 0); err != nil {
		t.Fatal(err)
	}
	slices.Sort(missing)
	status, stdout, stderr := invoke("inspect", dir, "--json")
	var s inspect.Summary
	if err := json.Unmarshal([]byte(stdout), &s); err != nil || status != 1 || !slices.Equal(s.Problems, missing) {
		t.Errorf("status %d, %v, problems %q, want %q", status, err, s.Problems, missing)
	}
	for _, want := range []string{fmt.Sprintf("%d problems:\n  %s\n", len(missing), missing[0]),
		fmt.Sprintf("\n  and %d more", len(missing)-8), "download or convert it again"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%s lacks %q", stderr, want)
		}
	}

	// Nothing is written to this path.
	none := filepath.Join(t.TempDir(), "none.gguf")
	status, _, stderr = invoke("quantize", dir, none)
	if _, err := os.Stat(none); err == nil || status != 1 || !strings.Contains(stderr, missing[0]) {
		t.Errorf("quantize: status %d, %v, %s", status, err, stderr)
	}

	part := filepath.Join(t.TempDir(), "part.gguf")
	lacking(t, part, "model.layers.1.self_attn.kv_a_layernorm.weight")
	status, stdout, stderr = invoke("inspect", part)
	if status != 1 ||
		!strings.Contains(stderr, "1 problem:\n  missing model.layers.1.self_attn.kv_a_layernorm.weight,") ||
		!strings.Contains(stderr, "tensor names are those of safetensors files") ||
		!strings.Contains(stdout, "parameters: ") {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
}

// lacking writes the built-in model as a GGUF file without one of its tensors.
func lacking(t *testing.T, path, gone string) {
	t.Helper()
	changedGGUF(t, path, func(m *llamacpp.Model) {
		var kept []weight.Tensor
		for _, name := range m.Weights.Names() {
			if x, _ := m.Weights.Tensor(name); name != gone {
				kept = append(kept, *x)
			}
		}
		var err error
		if m.Weights, err = weight.FromTensors(m.Weights.Files(), kept, nil); err != nil {
			t.Fatal(err)
		}
	})
}

// changedGGUF writes the built-in model as a GGUF file after a change.
func changedGGUF(t *testing.T, path string, change func(*llamacpp.Model)) {
	t.Helper()
	src, err := builtin.Source()
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	m := &llamacpp.Model{Name: builtin.Name, Config: src.Model, Weights: src.Weights,
		Tokenizer: builtin.TokenizerJSON(), TokenizerConfig: builtin.TokenizerConfig()}
	change(m)
	if _, err := llamacpp.Write(context.Background(), path, m, llamacpp.MixQ8_0, nil); err != nil {
		t.Fatal(err)
	}
}

// For a model without an indexer, inspect counts no indexer keys, also in the drafting layer.
func TestInspectWithoutAnIndexer(t *testing.T) {
	status, stdout, stderr := invoke("inspect", "glm-4.7-flash", "--json")
	var s inspect.Summary
	if err := json.Unmarshal([]byte(stdout), &s); status != 0 || err != nil {
		t.Fatalf("status %d, %v, %s", status, err, stderr)
	}
	for _, c := range s.Cache {
		if c.IndexBytes != 0 || c.TokenBytes != int64(47*c.RowBytes) || c.DraftedTokenBytes != int64(48*c.RowBytes) {
			t.Errorf("%+v", c)
		}
	}
}

// On a machine without a GPU inspect prints which model fits, the bytes that a token reads, or a refusal with the
// numbers. If a GPU refuses a model, the message names hardware that inspect accepts.
func TestInspectOnACPU(t *testing.T) {
	for _, c := range []struct {
		args   string
		status int
		want   []string
	}{
		{"glm-4.7-flash --hw cpu,64G,stream=90G", 0, []string{"it fits", "56.97 GiB", "GB/s at most 12.6 tokens/s"}},
		{"glm-4.7-flash --hw cpu,64G", 0, []string{"a token reads 6.67 GiB", "stream=90G"}},
		{"deepseek-v4.1-flash --hw cpu,300G", 0, []string{"without n-gram tables of 188.83 GiB"}},
		{"v32-tiny --hw cpu", 0, []string{"it fits"}},
		{"glm-4.7-flash --hw cpu,48G", 1, []string{"weights 56.97 GiB", "the machine has 48.00 GiB"}},
		{"deepseek-v3.2 --hw cpu,64G --gpu-memory 3G", 1, []string{"no GPU; omit --usage and --gpu-memory"}},
	} {
		status, stdout, stderr := invoke(append([]string{"inspect"}, strings.Fields(c.args)...)...)
		for _, w := range c.want {
			if status != c.status || !strings.Contains(stdout+stderr, w) {
				t.Errorf("%s: status %d, no %q in\n%s%s", c.args, status, w, stdout, stderr)
			}
		}
	}
	status, stdout, _ := invoke("inspect", "glm-4.7-flash", "--hw", "cpu,64G,stream=90G", "--json")
	var h inspect.Host
	if err := json.Unmarshal([]byte(stdout), &h); status != 0 || err != nil || h.Memory != 64<<30 ||
		len(h.Parts) != 3 || h.Tokens < 12 || h.Tokens > 13 {
		t.Errorf("status %d, %v, %+v", status, err, h)
	}
}
