package family

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"sparrow/internal/model/engram"
	"sparrow/internal/textfile"
	"sparrow/weight"
)

// TokenMapTensor is the name of the tensor with the map from tokens to keys of n-gram tables, for checkpoints without a
// tokenizer. It is among the weights, or in the file of golden outputs.
const TokenMapTensor = "engram.token_map"

// tokenMap returns the map of tokens to keys of the n-gram tables: from a tensor if there is one, otherwise derived
// from tokenizer.json.
func (s *Source) tokenMap(vocab, keys int) ([]int32, error) {
	if t, ok := s.Weights.Tensor(TokenMapTensor); ok {
		if t.Drawn != nil {
			return engram.PlainMap(vocab, keys), nil
		}
		return weight.ReadI32(t)
	}
	text, err := textfile.Read(filepath.Join(s.Name, "tokenizer.json"), textfile.Tokenizer)
	if err == nil {
		return engram.TokenMap(text, vocab)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if golden, err := weight.OpenFile(filepath.Join(s.Name, "golden.safetensors")); err == nil {
		defer golden.Close()
		if t, ok := golden.Tensor(TokenMapTensor); ok {
			return weight.ReadI32(t)
		}
	}
	return nil, fmt.Errorf("n-gram tables are looked up by the texts of tokens, but there is no tokenizer.json in "+
		"%s; use the tokenizer.json of the release", s.Name)
}
