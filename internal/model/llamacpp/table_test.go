package llamacpp

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sparrow/internal/model/config"
	"sparrow/internal/testkit/table"
	"sparrow/weight/gguf"
)

// The type of each tensor in each mix is as in the table. It depends on the name, the layer and the length of the rows.
func TestTableOfMixes(t *testing.T) {
	var lines []string
	for _, m := range Mixes() {
		for _, name := range []string{"token_embd.weight", "output.weight", "blk.1.attn_q_a.weight",
			"blk.1.ffn_down_exps.weight", "blk.1.ffn_gate_exps.weight", "blk.1.ffn_down_shexp.weight",
			"blk.1.indexer.attn_k.weight", "blk.1.ffn_gate_inp.weight", "blk.1.hc_attn_fn.weight",
			"blk.1.x_ape.weight"} {
			text := ""
			for _, cols := range []int{7168, 128, 64, 32} {
				for _, layer := range []int{0, 7, 8, 10, 40, 56, 60} {
					text += fmt.Sprintf(" %v", m.typeOf(name, layer, 64, cols))
				}
				text += ";"
			}
			lines = append(lines, fmt.Sprintf("%s (%d, packed %v) %s:%s", m, m.fileType(), m.packed(), name, text))
		}
	}
	table.Check(t, "mixes.txt", lines)
}

// The metadata that is written for released models, and the configuration that is read from it, are as in the table.
func TestTableOfMetadata(t *testing.T) {
	var rules []map[string]string
	for _, p := range splits["deepseek-v3"] {
		rules = append(rules, map[string]string{"Regex": p})
	}
	pre, err := json.Marshal(rules)
	if err != nil {
		t.Fatal(err)
	}
	tokenizer := []byte(`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"12":2},"merges":["a b",["a","a"]]},
		"added_tokens":[{"id":3,"content":"<s>","special":true},{"id":4,"content":"<t>","special":false}],
		"pre_tokenizer":` + string(pre) + `}`)
	var lines []string
	for _, name := range []string{"deepseek-v3.2", "glm-5.2", "deepseek-v4-flash", "glm-5.3-flash", "deepseek-v3"} {
		text, err := os.ReadFile("../config/testdata/released/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var r struct {
			Config map[string]any `json:"config"`
		}
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		delete(r.Config, "quantization_config")
		if text, err = json.Marshal(r.Config); err != nil {
			t.Fatal(err)
		}
		d, err := config.Describe(name, text)
		if err != nil {
			t.Fatal(err)
		}
		m := &Model{Name: name, Config: d}
		lines = append(lines, name)
		pairs, err := m.metadata(MixQ4KM)
		if err != nil {
			lines = append(lines, "  refused "+table.Facts(err.Error()))
			continue
		}
		for _, p := range pairs {
			lines = append(lines, fmt.Sprintf("  %s %T %v", p.Key, p.Value, p.Value))
		}
		frame, err := m.frame(d.Common())
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "x.gguf")
		if _, err := gguf.Create(path, append(pairs, frame...), nil); err != nil {
			t.Fatal(err)
		}
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := readConfig(path, f.Metadata, nil)
		if err != nil {
			lines = append(lines, "  read: refused "+table.Facts(err.Error()))
		}
		var keys map[string]any
		if err == nil {
			if err := json.Unmarshal(got, &keys); err != nil {
				t.Fatal(err)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			lines = append(lines, fmt.Sprintf("  read %s %v", key, keys[key]))
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	m := &Model{Name: "v", Tokenizer: tokenizer, ChatTemplate: "T",
		TokenizerConfig: []byte(`{"add_bos_token":true,"add_eos_token":false}`)}
	bos, pad := 1, 4
	words, err := m.vocabulary(&config.Config{Vocab: 6, BOS: &bos, EOS: []int{2, 3, 5}, Pad: &pad})
	lines = append(lines, fmt.Sprintf("vocabulary, refused %v", err != nil))
	for _, p := range words {
		lines = append(lines, fmt.Sprintf("  %s %v", p.Key, p.Value))
	}
	if frame, err := m.frame(&config.Config{Vocab: 6, BOS: &bos, EOS: []int{2, 3, 5}, Pad: &pad}); err == nil {
		for _, p := range frame {
			lines = append(lines, fmt.Sprintf("  frame %s %v", p.Key, p.Value))
		}
	}
	for _, ends := range []map[string]any{{"eos": int64(2)}, {"eos": int64(2), "eot": int64(3), "eom": int64(5)},
		{"eos": int64(2), "eot": int64(2), "eom": int64(5)}, {}} {
		meta, c := gguf.Metadata{}, map[string]any{}
		for key, id := range ends {
			meta["tokenizer.ggml."+key+"_token_id"] = id
		}
		(&reader{meta: meta}).tokenIDs(c)
		lines = append(lines, fmt.Sprintf("ends %v: %v", ends, c))
	}
	table.Check(t, "metadata.txt", lines)
}
