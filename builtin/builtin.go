// Package builtin embeds a small model in the binary: a complete DeepSeek-V3.2 checkpoint of 9.66 million parameters
// with its tokenizer, so that a first run needs no download. It reads nothing from disk.
package builtin

import (
	_ "embed"

	"sparrow/internal/model/config"
	"sparrow/internal/model/family"
	"sparrow/tokenizer"
	"sparrow/weight"
)

// Name is the model's name.
const Name = "sparrow-tiny"

//go:embed config.json
var configJSON []byte

//go:embed generation_config.json
var generationJSON []byte

//go:embed model.safetensors
var weights []byte

//go:embed tokenizer.json
var tokenizerJSON []byte

//go:embed tokenizer_config.json
var tokenizerConfigJSON []byte

// Source returns the embedded checkpoint.
func Source() (*family.Source, error) {
	c, err := config.Parse("built-in config.json", configJSON)
	if err != nil {
		return nil, err
	}
	w, err := weight.FromBytes("built-in model.safetensors", weights)
	if err != nil {
		return nil, err
	}
	return family.New(Name, c, w), nil
}

// Tokenizer returns the embedded tokenizer.
func Tokenizer() (*tokenizer.Tokenizer, error) {
	return tokenizer.New(tokenizerJSON, tokenizerConfigJSON)
}

// TokenizerJSON returns the embedded tokenizer.json, for checkpoints that reuse the tokenizer.
func TokenizerJSON() []byte { return tokenizerJSON }

// TokenizerConfig returns the embedded tokenizer_config.json, which holds the chat template.
func TokenizerConfig() []byte { return tokenizerConfigJSON }

// GenerationConfig returns the embedded generation_config.json.
func GenerationConfig() []byte { return generationJSON }
