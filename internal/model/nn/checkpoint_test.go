package nn_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/model/family"
	"sparrow/internal/model/nn"
	"sparrow/kernel/ref"
	"sparrow/weight"
)

const oracle = "../../../testdata/oracle/"

// copyOf writes a checkpoint again with changed tensors and a changed config, and returns the folder.
func copyOf(t *testing.T, checkpoint string, tensors func(map[string]weight.Source),
	config func(map[string]any)) string {
	t.Helper()
	dir := t.TempDir()
	w, err := weight.Open(oracle + checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	all := map[string]weight.Source{}
	for _, name := range w.Names() {
		x, _ := w.Tensor(name)
		all[name] = tensor(name, x.DType, slices.Clone(x.Data), x.Shape...)
	}
	if tensors != nil {
		tensors(all)
	}
	if err := weight.CreateSharded(dir, slices.Collect(maps.Values(all)), nil, 0); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(oracle + checkpoint + "/config.json")
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	if config != nil {
		config(fields)
	}
	if data, err = json.Marshal(fields); err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// load opens and loads a checkpoint. progress counts how often each tensor was reported.
func load(dir string) (progress map[string]int, err error) {
	src, err := family.Open(dir)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	progress = map[string]int{}
	_, err = src.Load(&ref.Device{}, func(name string) { progress[name]++ })
	return progress, err
}

func TestWholeCheckpointsLoad(t *testing.T) {
	for name, tensors := range map[string]int{"deepseek_v32-1": 106, "deepseek_v32-fp8-1": 184, "glm_moe_dsa-1": 101} {
		seen, err := load(oracle + name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(seen) != tensors {
			t.Errorf("%s: progress named %d tensors, want %d", name, len(seen), tensors)
		}
		for tensor, n := range seen {
			if n != 1 {
				t.Errorf("%s: progress named %s %d times", name, tensor, n)
			}
		}
	}
}

const attn1 = "model.layers.1.self_attn."

func zeros(name string, shape ...int) weight.Source {
	n := 2
	for _, d := range shape {
		n *= d
	}
	return tensor(name, weight.BF16, make([]byte, n), shape...)
}

func TestDamagedCheckpoints(t *testing.T) {
	for _, c := range []struct {
		name, checkpoint string
		tensors          func(map[string]weight.Source)
		config           func(map[string]any)
		want             []string // all lines of the report
	}{
		{"one tensor removed", "deepseek_v32-1", func(m map[string]weight.Source) { delete(m, attn1+"o_proj.weight") },
			nil, []string{"missing " + attn1 + "o_proj.weight, want shape [128 256]"}},
		{"one tensor renamed", "deepseek_v32-1", func(m map[string]weight.Source) {
			s := m["model.norm.weight"]
			delete(m, s.Name)
			s.Name = "model.final_norm.weight"
			m[s.Name] = s
		}, nil, []string{"missing model.norm.weight, want shape [128]",
			"unexpected model.final_norm.weight, shape [128]"}},
		{"one tensor reshaped", "glm_moe_dsa-1", func(m map[string]weight.Source) {
			m[attn1+"kv_a_proj_with_mqa.weight"] = zeros(attn1+"kv_a_proj_with_mqa.weight", 512, 128)
		}, nil, []string{attn1 + "kv_a_proj_with_mqa.weight has shape [512 128], want [576 128]"}},
		{"a scale removed", "deepseek_v32-fp8-1", func(m map[string]weight.Source) {
			delete(m, attn1+"kv_b_proj.weight_scale_inv")
		}, nil,
			[]string{`matrix "` + attn1 + `kv_b_proj.weight"`}},
		{"an fp8 weight removed, its scale left", "deepseek_v32-fp8-1", func(m map[string]weight.Source) {
			delete(m, attn1+"o_proj.weight")
		}, nil,
			[]string{"missing " + attn1 + "o_proj.weight, want shape [128 256]",
				"unexpected " + attn1 + "o_proj.weight_scale_inv, shape [1 2]"}},
		{"many at once", "deepseek_v32-1", func(m map[string]weight.Source) {
			delete(m, "lm_head.weight")
			delete(m, "model.layers.1.mlp.experts.3.up_proj.weight")
			delete(m, "model.layers.2.mlp.gate.e_score_correction_bias")
			m["model.embed_tokens.weight"] = zeros("model.embed_tokens.weight", 639, 128)
			m["stray"] = zeros("stray", 2)
		}, nil, []string{
			"missing lm_head.weight, want shape [640 128]",
			"missing model.layers.1.mlp.experts.3.up_proj.weight, want shape [64 128]",
			"missing model.layers.2.mlp.gate.e_score_correction_bias, want shape [8]",
			"model.embed_tokens.weight has shape [639 128], want [640 128]", "unexpected stray, shape [2]"}},
		{"a layer configured to compute its selection has no indexer", "glm_moe_dsa-1", nil, func(f map[string]any) {
			f["indexer_types"] = []string{"full", "full", "full"}
		},
			[]string{
				"missing model.layers.2.self_attn.indexer.k_norm.bias, want shape [128]",
				"missing model.layers.2.self_attn.indexer.k_norm.weight, want shape [128]",
				"missing model.layers.2.self_attn.indexer.weights_proj.weight, want shape [4 128]",
				"missing model.layers.2.self_attn.indexer.wk.weight, want shape [128 128]",
				"missing model.layers.2.self_attn.indexer.wq_b.weight, want shape [512 96]"}},
		{"a layer configured to share has an indexer", "glm_moe_dsa-1", nil, func(f map[string]any) {
			f["indexer_types"] = []string{"full", "shared", "shared"}
		},
			[]string{
				"unexpected " + attn1 + "indexer.k_norm.bias, shape [128]",
				"unexpected " + attn1 + "indexer.k_norm.weight, shape [128]",
				"unexpected " + attn1 + "indexer.weights_proj.weight, shape [4 128]",
				"unexpected " + attn1 + "indexer.wk.weight, shape [128 128]",
				"unexpected " + attn1 + "indexer.wq_b.weight, shape [512 96]"}},
		{"a config of other sizes", "deepseek_v32-1", nil, func(f map[string]any) { f["v_head_dim"] = 64 }, []string{
			"model.layers.0.self_attn.kv_b_proj.weight has shape [512 512], want [384 512]",
			"model.layers.0.self_attn.o_proj.weight has shape [128 256], want [128 128]",
			"model.layers.1.self_attn.kv_b_proj.weight has shape [512 512], want [384 512]",
			"model.layers.1.self_attn.o_proj.weight has shape [128 256], want [128 128]",
			"model.layers.2.self_attn.kv_b_proj.weight has shape [512 512], want [384 512]",
			"model.layers.2.self_attn.o_proj.weight has shape [128 256], want [128 128]"}},
		{"a tied head that is stored all the same", "deepseek_v32-1", nil, func(f map[string]any) {
			f["tie_word_embeddings"] = true
		},
			[]string{"unexpected lm_head.weight, shape [640 128]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copyOf(t, c.checkpoint, c.tensors, c.config)
			_, err := load(dir)
			if !errors.Is(err, nn.ErrTensors) {
				t.Fatalf("got %v, want ErrTensors", err)
			}
			head, list, _ := strings.Cut(err.Error(), "\n")
			if !strings.HasPrefix(head, dir) || !strings.Contains(head, fmt.Sprintf("%d problem", len(c.want))) {
				t.Errorf("the report begins with %q", head)
			}
			lines := strings.Split(list, "\n")
			if len(lines) != len(c.want) {
				t.Fatalf("%d lines, want %d:\n%v", len(lines), len(c.want), err)
			}
			for _, w := range c.want {
				if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, w) }) {
					t.Errorf("no line %q in\n%v", w, err)
				}
			}
		})
	}
}

func TestTiedHeadLoads(t *testing.T) {
	dir := copyOf(t, "deepseek_v32-1", func(m map[string]weight.Source) { delete(m, "lm_head.weight") },
		func(f map[string]any) { f["tie_word_embeddings"] = true })
	if _, err := load(dir); err != nil {
		t.Error(err)
	}
}

// draftLayer adds a drafting layer: copies of the last layer's tensors under the next number, and its four additional
// tensors (v32 spec, 3.1).
func draftLayer(m map[string]weight.Source, also ...weight.Source) {
	for _, name := range slices.Collect(maps.Keys(m)) {
		if rest, ok := strings.CutPrefix(name, "model.layers.2."); ok {
			s := m[name]
			s.Name = "model.layers.3." + rest
			m[s.Name] = s
		}
	}
	p := "model.layers.3."
	for _, s := range append(also, zeros(p+"enorm.weight", 128), zeros(p+"hnorm.weight", 128),
		zeros(p+"eh_proj.weight", 128, 256), zeros(p+"shared_head.norm.weight", 128)) {
		m[s.Name] = s
	}
}

func TestDraftingLayer(t *testing.T) {
	one := func(f map[string]any) { f["num_nextn_predict_layers"] = 1 }
	t.Run("complete", func(t *testing.T) {
		dir := copyOf(t, "deepseek_v32-1", func(m map[string]weight.Source) { draftLayer(m) }, one)
		if _, err := load(dir); err != nil {
			t.Error(err)
		}
	})
	t.Run("with copies of embedding and head", func(t *testing.T) {
		dir := copyOf(t, "deepseek_v32-1", func(m map[string]weight.Source) {
			draftLayer(m, zeros("model.layers.3.embed_tokens.weight", 640, 128),
				zeros("model.layers.3.shared_head.head.weight", 640, 128))
		}, one)
		if _, err := load(dir); err != nil {
			t.Error(err)
		}
	})
	t.Run("declared, with some of its tensors", func(t *testing.T) {
		_, err := load(copyOf(t, "deepseek_v32-1", func(m map[string]weight.Source) {
			draftLayer(m)
			for _, name := range []string{"eh_proj.weight", "enorm.weight", "self_attn.indexer.wk.weight",
				"mlp.experts.7.down_proj.weight"} {
				delete(m, "model.layers.3."+name)
			}
		}, one))
		for _, w := range []string{"missing model.layers.3.eh_proj.weight, want shape [128 256]",
			"missing model.layers.3.enorm.weight, want shape [128]",
			"missing model.layers.3.self_attn.indexer.wk.weight",
			"missing model.layers.3.mlp.experts.7.down_proj.weight"} {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("no %q in %v", w, err)
			}
		}
	})
	// Some tools drop the drafting layer, but not its declaration, when they save a checkpoint. Such a model runs but
	// cannot draft.
	t.Run("declared, without tensors", func(t *testing.T) {
		if _, err := load(copyOf(t, "deepseek_v32-1", nil, one)); err != nil {
			t.Error(err)
		}
	})
	t.Run("tensors, not declared", func(t *testing.T) {
		_, err := load(copyOf(t, "deepseek_v32-1", func(m map[string]weight.Source) { draftLayer(m) }, nil))
		if !errors.Is(err, nn.ErrTensors) ||
			!strings.Contains(err.Error(), "unexpected model.layers.3.eh_proj.weight, shape [128 256]") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("misshapen", func(t *testing.T) {
		_, err := load(copyOf(t, "deepseek_v32-1", func(m map[string]weight.Source) {
			draftLayer(m, zeros("model.layers.3.embed_tokens.weight", 640, 64))
			m["model.layers.3.eh_proj.weight"] = zeros("model.layers.3.eh_proj.weight", 128, 128)
		}, one))
		for _, w := range []string{"eh_proj.weight has shape [128 128], want [128 256]",
			"embed_tokens.weight has shape [640 64], want [640 128]"} {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("no %q in %v", w, err)
			}
		}
	})
}

// A truncated file is refused with its name before anything is loaded, however many bytes are missing.
func TestTruncatedFile(t *testing.T) {
	dir := copyOf(t, "deepseek_v32-1", nil, nil)
	path := filepath.Join(dir, "model.safetensors")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{len(whole) - 1, len(whole) / 2, 4000, 9, 8, 7, 0} {
		if err := os.WriteFile(path, whole[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := load(dir)
		var fe *weight.FileError
		if !errors.Is(err, weight.ErrMalformed) || !errors.As(err, &fe) || fe.File != path {
			t.Errorf("%d of %d bytes: got %v, want a malformed %s", n, len(whole), err, path)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := load(dir); !errors.Is(err, weight.ErrNotFound) {
		t.Errorf("no file: got %v, want ErrNotFound", err)
	}
}
