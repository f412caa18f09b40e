package tokenizer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"sparrow/internal/textfile"
)

// Tokenizer encodes and decodes with the vocabulary of a checkpoint. It is safe for concurrent use, and immutable
// except for its cache.
type Tokenizer struct {
	model       bpe
	out         *vocab   // tokens by the bytes that they represent
	longest     int      // bytes of the longest token
	raw, normed addedSet // added tokens that are matched before (raw) and after (normed) normalisation
	normalizers []normalizer
	pieces      *pipeline
	detok       *detok
	frame       frame

	added    map[string]int32 // ids of added tokens by content
	special  []bool           // [size] whether the token is special
	specials []int32          // ids of special tokens, ascending

	bos, eos     int32 // tokens that begin and end a text, or -1
	chatTemplate string

	scratch sync.Pool // *scratch
}

// Open reads the tokenizer of a checkpoint folder: tokenizer.json or, without it, tiktoken.model, and
// tokenizer_config.json and chat_template.jinja if they exist.
func Open(dir string) (*Tokenizer, error) {
	cfg, err := textfile.Optional(filepath.Join(dir, "tokenizer_config.json"), textfile.Config)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	data, err := readVocabulary(dir, cfg)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	template, err := textfile.Optional(filepath.Join(dir, "chat_template.jinja"), textfile.Config)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	t, err := New(data, cfg)
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, dir)
	}
	if template != nil {
		t.chatTemplate = string(template)
	}
	return t, nil
}

// Has reports whether a folder contains a tokenizer.
func Has(dir string) bool {
	for _, name := range []string{"tokenizer.json", RanksName} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

// readVocabulary returns the tokenizer.json of a folder, converted from tiktoken.model if necessary.
func readVocabulary(dir string, cfg []byte) ([]byte, error) {
	data, err := textfile.Read(filepath.Join(dir, "tokenizer.json"), textfile.Tokenizer)
	if !errors.Is(err, fs.ErrNotExist) {
		return data, err
	}
	ranks, other := textfile.Optional(filepath.Join(dir, RanksName), textfile.Tokenizer)
	if other != nil || ranks == nil {
		return nil, errors.Join(other, err)
	}
	if data, err = FromRanks(ranks, cfg); err != nil {
		err = fmt.Errorf("%w (in %s)", err, dir)
	}
	return data, err
}

// New returns the tokenizer for the contents of tokenizer.json and of tokenizer_config.json, which may be nil.
func New(tokenizerJSON, tokenizerConfigJSON []byte) (*Tokenizer, error) {
	t, err := build(tokenizerJSON, tokenizerConfigJSON)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return t, nil
}

// VocabSize returns the largest token id plus one. The vocabulary of the model may be larger; further ids are padding
// without text.
func (t *Tokenizer) VocabSize() int { return t.out.size() }

// Bytes returns the bytes that a token represents, which may begin or end inside a character. The slice must not be
// modified; it is nil if there is no such token.
func (t *Tokenizer) Bytes(id int32) []byte { return t.out.bytes(id) }

// Text returns Bytes as a string, without a copy.
func (t *Tokenizer) Text(id int32) string { return t.out.str(id) }

// TokenID returns the token with exactly this text: an added token, otherwise one of the vocabulary. A space in text is
// a space, not Ġ.
func (t *Tokenizer) TokenID(text string) (id int32, ok bool) {
	if id, ok := t.added[text]; ok {
		return id, true
	}
	if text == "" {
		return 0, false
	}
	if id, ok := lookup(t.out, text); ok {
		return id, true
	}
	return 0, false
}

// Special returns the ids of special tokens, ascending.
func (t *Tokenizer) Special() []int32 { return append([]int32(nil), t.specials...) }

// IsSpecial reports whether id is a special token, which Decode can omit.
func (t *Tokenizer) IsSpecial(id int32) bool { return t.out.has(id) && t.special[id] }

// IsAdded reports whether id is an added token, special or not. Encode produces it only with
// EncodeOptions.ParseSpecial. DeepSeek's <｜User｜> is added but not special.
func (t *Tokenizer) IsAdded(id int32) bool { return t.out.has(id) && t.model.added[id] }

// BOS returns the beginning-of-text token; ok is false if the configuration has none.
func (t *Tokenizer) BOS() (id int32, ok bool) { return t.bos, t.bos >= 0 }

// EOS returns the end-of-text token; ok is false if the configuration has none. generation_config.json may list more.
func (t *Tokenizer) EOS() (id int32, ok bool) { return t.eos, t.eos >= 0 }

// ChatTemplate returns the checkpoint's Jinja template, or "".
func (t *Tokenizer) ChatTemplate() string { return t.chatTemplate }
