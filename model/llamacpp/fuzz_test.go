package llamacpp_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sparrow/builtin"
	"sparrow/model/config"
	"sparrow/model/llamacpp"
	"sparrow/weight/gguf"
)

// FuzzMetadata opens any GGUF file that its reader accepts: an error, or the files of a checkpoint folder.
func FuzzMetadata(f *testing.F) {
	source, err := builtin.Source()
	if err != nil {
		f.Fatal(err)
	}
	defer source.Close()
	// The metadata of a whole model, without its tensors.
	whole := filepath.Join(f.TempDir(), "whole.gguf")
	m := &llamacpp.Model{Name: "builtin", Config: source.Model.(*config.DSA), Weights: source.Weights,
		Tokenizer: builtin.TokenizerJSON(), TokenizerConfig: builtin.TokenizerConfig()}
	if err := llamacpp.Write(f.Context(), whole, m, llamacpp.MixBF16, nil); err != nil {
		f.Fatal(err)
	}
	file, err := gguf.Open(whole)
	if err != nil {
		f.Fatal(err)
	}
	var pairs, plain []gguf.Pair
	for _, key := range slices.Sorted(maps.Keys(file.Metadata)) {
		p := gguf.Pair{Key: key, Value: file.Metadata[key]}
		list := false
		switch v := p.Value.(type) { // numbers were widened
		case int64:
			p.Value = uint32(v)
		case float64:
			p.Value = float32(v)
		case []int64:
			narrow := make([]int32, len(v))
			for i := range v {
				narrow[i] = int32(v[i])
			}
			p.Value, list = narrow, true
		case []string:
			list = true
		}
		if pairs = append(pairs, p); !list {
			plain = append(plain, p)
		}
	}
	for i, list := range [][]gguf.Pair{pairs, plain} {
		path := filepath.Join(f.TempDir(), string(rune('a'+i)))
		if err := gguf.Create(path, list, nil); err != nil {
			f.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	if err := file.Close(); err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(f.TempDir(), "fuzz.gguf")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		folder, err := llamacpp.Open(path)
		if err != nil {
			return
		}
		defer folder.Weights.Close()
		if _, err := config.Describe("fuzz", folder.Config); err != nil {
			return // a shape that no model has
		}
		if len(folder.Config) == 0 {
			t.Fatal("no configuration")
		}
	})
}
