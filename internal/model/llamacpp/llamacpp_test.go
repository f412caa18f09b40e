package llamacpp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sparrow/builtin"
	"sparrow/internal/block"
	"sparrow/internal/model/config"
	"sparrow/internal/model/family"
	"sparrow/internal/model/llamacpp"
	"sparrow/internal/testkit/archive"
	"sparrow/tokenizer"
	"sparrow/weight"
	"sparrow/weight/gguf"
)

// models returns the checkpoints that can be written: the built-in one, and reference checkpoints without a vocabulary.
func models(t *testing.T) map[string]*llamacpp.Model {
	out := map[string]*llamacpp.Model{}
	add := func(name string, s *family.Source, err error) *llamacpp.Model {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		out[name] = &llamacpp.Model{Name: name, Config: s.Model, Weights: s.Weights}
		return out[name]
	}
	s, err := builtin.Source()
	m := add("builtin", s, err)
	m.Tokenizer, m.TokenizerConfig = builtin.TokenizerJSON(), builtin.TokenizerConfig()
	for _, name := range []string{"deepseek_v32-1", "deepseek_v32-fp8-1", "glm_moe_dsa-1"} {
		s, err := family.Open(filepath.Join("../../../testdata/oracle", name))
		add(name, s, err)
	}
	for _, name := range []string{"deepseek_v3-1", "deepseek_v3-plain-1"} { // models without an indexer
		s, err := family.Open(filepath.Join(archive.Unpack(t, "../../../testdata/oracle/"+name+".tar.gz"), name))
		add(name, s, err)
	}
	return out
}

// DeepSeek-V2 files have the same architecture name as models without an indexer and are refused because of their
// routing. Kimi-K2 files are recognised by their tokenizer.
func TestDenseFilesAreToldApart(t *testing.T) {
	m := models(t)["deepseek_v3-1"]
	path := write(t, m, llamacpp.MixF32)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	gate := []byte("deepseek2.expert_gating_func")
	at := bytes.Index(data, gate)
	if at < 0 {
		t.Fatal("the file does not say how experts are chosen")
	}
	data[at+len(gate)+4] = 1 // the value is after the type
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := family.Open(path); err == nil || !strings.Contains(err.Error(), "expert_gating_func is 1") {
		t.Errorf("softmax routing: %v", err)
	}
}

func write(t *testing.T, m *llamacpp.Model, mix llamacpp.Mix) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.gguf")
	if _, err := llamacpp.Write(context.Background(), path, m, mix, nil); err != nil {
		t.Fatal(err)
	}
	return path
}

// A model written as float32 and read again has the same configuration and the same values.
func TestFloatsComeBack(t *testing.T) {
	for name, m := range models(t) {
		got, err := family.Open(write(t, m, llamacpp.MixF32))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer got.Close()
		if _, known := got.Weights.KnownDigest(); !known {
			t.Errorf("%s: the digest of the file is not kept beside it", name)
		}
		want := *m.Config.(*config.DSA)
		// The file has plain floats.
		want.FP8, want.Pow2Rows, want.Format, want.Losses = false, false, config.FormatGGUF, nil
		want.Scheme = weight.Scheme{}
		have := *got.Model.(*config.DSA)
		if name != "builtin" { // a file without a vocabulary names no tokens
			want.BOS, want.EOS, want.Pad = nil, nil, nil
			have.BOS, have.EOS, have.Pad = nil, nil, nil
		}
		if !reflect.DeepEqual(have, want) {
			t.Errorf("%s: config\n%+v\nwant\n%+v", name, have, want)
		}
		names := slices.DeleteFunc(m.Weights.Names(), func(n string) bool { return strings.HasSuffix(n, "_scale_inv") })
		if !slices.Equal(got.Weights.Names(), names) {
			t.Errorf("%s: %d tensors, want %d", name, len(got.Weights.Names()), len(names))
		}
		for _, n := range names {
			if !slices.Equal(values(t, got.Weights, n), values(t, m.Weights, n)) {
				t.Errorf("%s: values of %s differ", name, n)
			}
		}
	}
}

func values(t *testing.T, c *weight.Checkpoint, name string) []float32 {
	t.Helper()
	x, ok := c.Tensor(name)
	if !ok {
		t.Fatalf("no tensor %s", name)
	}
	if len(x.Shape) == 1 {
		v, err := weight.ReadF32(x)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	m, err := c.Matrix(name)
	if err != nil {
		t.Fatal(err)
	}
	v, err := m.ReadF32()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// The vocabulary and the chat template survive writing and reading: texts are encoded to the same tokens and decoded to
// the same texts.
func TestVocabularyComesBack(t *testing.T) {
	f, err := llamacpp.Open(write(t, models(t)["builtin"], llamacpp.MixQ4_0))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Weights.Close()
	got, err := tokenizer.New(f.Tokenizer, f.TokenizerConfig)
	if err != nil {
		t.Fatal(err)
	}
	want, err := builtin.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "Rolf plants 22 trees, 1234567 in all.", "naïve 東京 ½ \t\n\n  x",
		"<think>a</think>", "<｜User｜>hello<｜Assistant｜>", strings.Repeat("a b\n", 50)} {
		o := tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: true}
		a, err := got.Encode(text, o)
		b, wantErr := want.Encode(text, o)
		if err != nil || wantErr != nil || !slices.Equal(a, b) {
			t.Errorf("%q: tokens %v (%v), want %v (%v)", text, a, err, b, wantErr)
		}
	}
	if got.ChatTemplate() != want.ChatTemplate() || want.ChatTemplate() == "" {
		t.Error("the chat template did not come back")
	}
}

// Types of a file follow the mix; a matrix that the blocks of a type do not divide gets a type with smaller blocks.
func TestTypesOfAMix(t *testing.T) {
	f, err := gguf.Open(write(t, models(t)["builtin"], llamacpp.MixQ4KM))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	types := map[string]gguf.Type{}
	for _, x := range f.Tensors {
		types[x.Name] = x.Type
	}
	for name, want := range map[string]gguf.Type{
		"token_embd.weight": gguf.TypeOf(block.Q4_K), "output.weight": gguf.TypeOf(block.Q6_K),
		"output_norm.weight": gguf.F32, "blk.1.ffn_gate_inp.weight": gguf.F32, "blk.1.exp_probs_b.bias": gguf.F32,
		"blk.0.indexer.attn_k.weight": gguf.TypeOf(block.Q8_0), "blk.0.ffn_down.weight": gguf.TypeOf(block.Q4_K),
		"blk.1.ffn_gate_exps.weight": gguf.TypeOf(block.Q4_K),
		"blk.1.ffn_down_exps.weight": gguf.TypeOf(block.Q5_0), // rows have 128 values
		"blk.5.ffn_down_exps.weight": gguf.TypeOf(block.Q8_0), // six bits, but rows have 128 values
		"blk.0.attn_k_b.weight":      gguf.TypeOf(block.Q5_0), // rows have 64 values
	} {
		if types[name] != want {
			t.Errorf("%s is %v, want %v", name, types[name], want)
		}
	}
}

// In q2_k only experts have two bits; the report has the bytes, the error and the number of matrices of each class.
func TestReportOfAMix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.gguf")
	report, err := llamacpp.Write(context.Background(), path, models(t)["builtin"], llamacpp.MixQ2K, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	experts := 0
	for _, x := range f.Tensors {
		if strings.Contains(x.Name, "_exps.") {
			experts -= x.Shape[0]
		}
	}
	errs := map[string]float64{}
	for _, l := range report {
		if l.Class == "experts" {
			experts += l.Matrices
		}
		if l.Bytes <= 0 {
			t.Errorf("%+v", l)
		}
		errs[l.Class+" "+l.Type] = l.Error
	}
	if experts != 0 {
		t.Errorf("the report has %+d matrices of experts, compared with the file", experts)
	}
	if two, four := errs["experts Q2_K"], errs["attention Q4_K"]; !(two > 0.15 && two < 0.4) ||
		!(four > 0.03 && four < 0.1) {
		t.Errorf("%+v", report)
	}
}

// Metadata that is missing or has another type is named in the error, all of it at once.
func TestMissingMetadataIsNamed(t *testing.T) {
	path := write(t, models(t)["deepseek_v32-1"], llamacpp.MixQ8_0)
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	edit := func(change func(m map[string]any)) error {
		m := maps.Clone(map[string]any(f.Metadata))
		change(m)
		return openEdited(t, f, m)
	}
	if err := edit(func(map[string]any) {}); err != nil {
		t.Fatalf("the unchanged file: %v", err)
	}
	type edits = func(m map[string]any)
	set := func(key string, v any) edits { return func(m map[string]any) { m[key] = v } }
	for want, change := range map[string]edits{
		`is "llama", want one of deepseek2, deepseek32, deepseek4, glm-dsa`: set("general.architecture", "llama"),
		"deepseek32.attention.kv_lora_rank is missing": func(m map[string]any) {
			delete(m, "deepseek32.attention.kv_lora_rank")
		},
		"deepseek32.expert_count is a string of 3 bytes": set("deepseek32.expert_count", "all"),
		"expert_gating_func is 1, want 2":                set("deepseek32.expert_gating_func", uint32(1)),
		`rope.scaling.type is "linear"`:                  set("deepseek32.rope.scaling.type", "linear"),
		`tokenizer.ggml.model is "llama"`:                set("tokenizer.ggml.model", "llama"),
	} {
		if err := edit(change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v\nwant %s", err, want)
		}
	}
}

// narrowed returns a metadata value in a type that GGUF files have, because reading widens numbers.
func narrowed(v any) any {
	switch v := v.(type) {
	case int64:
		return uint32(v)
	case float64:
		return float32(v)
	case []int64:
		out := make([]int32, len(v))
		for i := range v {
			out[i] = int32(v[i])
		}
		return out
	case []float64:
		out := make([]float32, len(v))
		for i := range v {
			out[i] = float32(v[i])
		}
		return out
	}
	return v
}

// openEdited writes the tensors of a file with other metadata and opens the result.
func openEdited(t *testing.T, f *gguf.File, meta map[string]any) error {
	t.Helper()
	var pairs []gguf.Pair
	for key, v := range meta {
		pairs = append(pairs, gguf.Pair{Key: key, Value: narrowed(v)})
	}
	var sources []gguf.Source
	for _, x := range f.Tensors {
		write := func(w io.Writer) error {
			_, err := w.Write(x.Data)
			return err
		}
		sources = append(sources, gguf.Source{Name: x.Name, Type: x.Type, Shape: x.Shape, Write: write})
	}
	path := filepath.Join(t.TempDir(), "edited.gguf")
	if _, err := gguf.Create(path, pairs, sources); err != nil {
		t.Fatal(err)
	}
	s, err := family.Open(path)
	if err == nil {
		s.Close()
	}
	return err
}

// An up-projection of latent rows whose shape differs from the configuration is refused by name, because splitting it
// into heads would give other values.
func TestAnUpProjectionOfAnotherShapeIsRefused(t *testing.T) {
	s, err := family.Open("../../../testdata/oracle/deepseek_v32-1")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	whole := s.Model.(*config.DSA).Attention
	for what, change := range map[string]func(*config.Attention){
		"rows":    func(a *config.Attention) { a.V /= 2 },
		"columns": func(a *config.Attention) { a.Latent /= 2 },
	} {
		c := *s.Model.(*config.DSA)
		change(&c.Attention)
		path := filepath.Join(t.TempDir(), "m.gguf")
		_, err := llamacpp.Write(t.Context(), path, &llamacpp.Model{Name: "m", Config: &c, Weights: s.Weights},
			llamacpp.MixF32, nil)
		a := c.Attention
		want := fmt.Sprintf("layers.0.self_attn.kv_b_proj.weight is [%d %d], want [%d %d]",
			a.Heads*(a.Nope+whole.V), whole.Latent, a.Heads*(a.Nope+a.V), a.Latent)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", what, err, want)
		}
	}
}

// A cancelled write leaves no file behind.
func TestCancelledWriteLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	path := filepath.Join(t.TempDir(), "m.gguf")
	_, err := llamacpp.Write(ctx, path, models(t)["builtin"], llamacpp.MixQ8_0, func(done, _ int, _ string) {
		if done == 3 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A tensor that no model of the family has is refused by name.
func TestUnknownTensorsAreRefused(t *testing.T) {
	f, err := gguf.Open(write(t, models(t)["deepseek_v32-1"], llamacpp.MixQ8_0))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Tensors[3].Name = "blk.0.ssm_a.weight"
	err = openEdited(t, f, f.Metadata)
	if err == nil || !strings.Contains(err.Error(), "blk.0.ssm_a.weight is unknown") {
		t.Errorf("got %v", err)
	}
}
