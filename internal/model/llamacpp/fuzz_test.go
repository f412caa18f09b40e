package llamacpp_test

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"sparrow/builtin"
	"sparrow/internal/model/config"
	"sparrow/internal/model/family"
	"sparrow/internal/model/llamacpp"
	"sparrow/weight/gguf"
)

// FuzzMetadata opens any GGUF file that its reader accepts. The result is an error or the files of a checkpoint folder.
func FuzzMetadata(f *testing.F) {
	source, err := builtin.Source()
	if err != nil {
		f.Fatal(err)
	}
	defer source.Close()
	v4, err := family.Open("../../../testdata/oracle/deepseek_v4-1")
	if err != nil {
		f.Fatal(err)
	}
	defer v4.Close()
	addMetadata(f, &llamacpp.Model{Name: "builtin", Config: source.Model, Weights: source.Weights,
		Tokenizer: builtin.TokenizerJSON(), TokenizerConfig: builtin.TokenizerConfig()})
	addMetadata(f, &llamacpp.Model{Name: "v4", Config: v4.Model, Weights: v4.Weights})
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
			return // no model has this shape
		}
		if len(folder.Config) == 0 {
			t.Fatal("no configuration")
		}
	})
}

// addMetadata adds the metadata of a whole model without its tensors as seeds, once with lists and once without.
func addMetadata(f *testing.F, m *llamacpp.Model) {
	whole := filepath.Join(f.TempDir(), "whole.gguf")
	if _, err := llamacpp.Write(f.Context(), whole, m, llamacpp.MixBF16, nil); err != nil {
		f.Fatal(err)
	}
	file, err := gguf.Open(whole)
	if err != nil {
		f.Fatal(err)
	}
	defer file.Close()
	var pairs, plain []gguf.Pair
	for _, key := range slices.Sorted(maps.Keys(file.Metadata)) {
		p := gguf.Pair{Key: key, Value: narrowed(file.Metadata[key])}
		pairs = append(pairs, p)
		if reflect.TypeOf(p.Value).Kind() != reflect.Slice {
			plain = append(plain, p)
		}
	}
	for i, list := range [][]gguf.Pair{pairs, plain} {
		path := filepath.Join(f.TempDir(), string(rune('a'+i)))
		if _, err := gguf.Create(path, list, nil); err != nil {
			f.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
}
