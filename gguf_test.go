package sparrow

import (
	"context"
	"path/filepath"
	"testing"

	"sparrow/builtin"
	"sparrow/model/llamacpp"
)

// A GGUF file gives the model its name, without the number of a part.
func TestGGUFFilesNameTheModel(t *testing.T) {
	for path, want := range map[string]string{
		"a/bi.gguf": "bi", "a/bi-00002-of-00003.gguf": "bi", "DeepSeek-V3.2/": "DeepSeek-V3.2", "m.bin": "m.bin",
		"": builtin.Name,
	} {
		if got := (Config{Model: path}).withDefaults().Name; got != want {
			t.Errorf("%q: the model is called %q, want %q", path, got, want)
		}
	}
}

// A GGUF file of the built-in model, in eight and in four bits, answers as the model does: config, vocabulary, chat
// template and weights come from the file alone.
func TestGGUFFilesAnswer(t *testing.T) {
	notUnderRace(t)
	want := generate(t, start(t, Config{}), Request{Chat: ask(garden), Sampling: greedy()}).Choices[0].Text
	source, err := builtin.Source()
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	m := &llamacpp.Model{Name: builtin.Name, Config: source.Model, Weights: source.Weights,
		Tokenizer: builtin.TokenizerJSON(), TokenizerConfig: builtin.TokenizerConfig()}
	for _, mix := range []llamacpp.Mix{llamacpp.MixQ8_0, llamacpp.MixQ4KM} {
		path := filepath.Join(t.TempDir(), "tiny.gguf")
		if err := llamacpp.Write(context.Background(), path, m, mix, nil); err != nil {
			t.Fatal(err)
		}
		e := start(t, Config{Model: path})
		if got := generate(t, e, Request{Chat: ask(garden), Sampling: greedy()}).Choices[0].Text; got != want {
			t.Errorf("%s: the answer is %q, want %q", mix, got, want)
		}
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
