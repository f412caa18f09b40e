package sparrow

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"sparrow/builtin"
	"sparrow/chat"
	"sparrow/internal/device"
	"sparrow/internal/model/family"
	"sparrow/internal/model/llamacpp"
	"sparrow/kernel"
	"sparrow/weight"
)

// The name of a model is the name of its GGUF file without the part number.
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

// A GGUF file of the built-in model, with eight-bit or four-bit weights, gives the same answers as the safetensors
// checkpoint. The configuration, vocabulary, chat template and weights all come from the file.
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
		if _, err := llamacpp.Write(context.Background(), path, m, mix, nil); err != nil {
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

// A GGUF file that lacks one tensor is refused. The error names the tensor and where its name comes from.
func TestGGUFFilesWithoutATensorAreRefused(t *testing.T) {
	source, err := builtin.Source()
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	const gone = "model.layers.0.self_attn.kv_a_layernorm.weight"
	var tensors []weight.Tensor
	for _, name := range source.Weights.Names() {
		if tensor, _ := source.Weights.Tensor(name); name != gone {
			tensors = append(tensors, *tensor)
		}
	}
	part, err := weight.FromTensors(source.Weights.Files(), tensors, nil)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := device.Registry().Open("cpu", kernel.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	_, err = family.New("x.gguf", source.Model, part).Load(dev, nil)
	for _, want := range []string{"x.gguf: ", "missing " + gone, "tensor names are those of"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

// If the chat template of a file cannot be parsed, the error names the file and where the template is stored. Open
// fails. If the model is opened for plain prompts (PromptsOnly), Open succeeds and a chat request fails.
func TestGGUFFilesWithABrokenTemplateAreNamed(t *testing.T) {
	notUnderRace(t)
	source, err := builtin.Source()
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	settings := map[string]any{}
	if err := json.Unmarshal(builtin.TokenizerConfig(), &settings); err != nil {
		t.Fatal(err)
	}
	settings["chat_template"] = "{% for x in %}"
	text, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	m := &llamacpp.Model{Name: builtin.Name, Config: source.Model, Weights: source.Weights,
		Tokenizer: builtin.TokenizerJSON(), TokenizerConfig: text}
	path := filepath.Join(t.TempDir(), "broken.gguf")
	if _, err := llamacpp.Write(context.Background(), path, m, llamacpp.MixQ8_0, nil); err != nil {
		t.Fatal(err)
	}
	_, err = Open(context.Background(), Config{Model: path, Kernels: "cpu"})
	for _, want := range []string{"broken.gguf: chat template failed: line 1", "tokenizer.chat_template in a GGUF"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	e := start(t, Config{Model: path, Kernels: "cpu", PromptsOnly: true})
	defer e.Close(context.Background())
	r := generate(t, e, Request{Prompt: "A garden is", Sampling: greedy(), MaxTokens: 4})
	if len(r.Choices[0].Tokens) != 4 {
		t.Errorf("%+v", r)
	}
	_, asked := e.Generate(context.Background(), Request{Chat: ask(garden), Sampling: greedy()})
	var refused *RequestError
	if !errors.As(asked, &refused) || refused.Field != "messages" || !errors.Is(asked, chat.ErrTemplate) ||
		!strings.Contains(asked.Error(), err.Error()) {
		t.Errorf("a chat request: error %v", asked)
	}
}
