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

// Tokenizer encodes and decodes with one checkpoint's vocabulary. It is safe for concurrent use and immutable, except
// for its cache of recent pieces, which changes no result.
type Tokenizer struct {
	model       bpe
	out         *vocab   // tokens by the bytes that they represent
	longest     int      // bytes of the longest token
	raw, normed addedSet // added tokens that are searched for before (raw) and after (normed) normalisation
	normalizers []normalizer
	pieces      *pipeline
	detok       *detok
	frame       frame

	added    map[string]int32 // ids of added tokens by content
	special  []bool           // [size] whether the token is special
	specials []int32          // ids of special tokens, ascending

	bos, eos     int32 // tokens that begin and end a text; -1 if there is none
	chatTemplate string

	scratch sync.Pool // buffers (*scratch)
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

// readVocabulary returns tokenizer.json of a folder, or its equivalent.
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

// New makes a tokenizer from the contents of tokenizer.json and
// tokenizer_config.json; the latter may be nil. Neither is kept.
func New(tokenizerJSON, tokenizerConfigJSON []byte) (*Tokenizer, error) {
	t, err := build(tokenizerJSON, tokenizerConfigJSON)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return t, nil
}

// VocabSize returns the largest token id plus one. A model's own vocabulary can be larger: ids beyond are padding and
// represent nothing.
func (t *Tokenizer) VocabSize() int { return t.out.size() }

// Bytes returns the bytes that a token represents, which need not be whole characters. The slice is shared and must not
// be changed; it is nil if there is no such token.
func (t *Tokenizer) Bytes(id int32) []byte { return t.out.bytes(id) }

// Text returns Bytes as a string, without a copy.
func (t *Tokenizer) Text(id int32) string { return t.out.str(id) }

// TokenID returns the token that represents exactly this text: an added token, or else one of the vocabulary. Spaces
// are written as spaces.
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

// IsSpecial reports whether id is a special token: one that Decode can omit.
func (t *Tokenizer) IsSpecial(id int32) bool { return t.out.has(id) && t.special[id] }

// IsAdded reports whether id is an added token, special or not: text becomes such a token only with
// EncodeOptions.ParseSpecial. DeepSeek's <｜User｜> is added but not special.
func (t *Tokenizer) IsAdded(id int32) bool { return t.out.has(id) && t.model.added[id] }

// BOS returns the token that begins a text, if the configuration defines one.
func (t *Tokenizer) BOS() (id int32, ok bool) { return t.bos, t.bos >= 0 }

// EOS returns the token that ends a text, if the configuration defines one. A model's generation configuration can list
// more.
func (t *Tokenizer) EOS() (id int32, ok bool) { return t.eos, t.eos >= 0 }

// ChatTemplate returns the checkpoint's Jinja template, "" if it has none.
func (t *Tokenizer) ChatTemplate() string { return t.chatTemplate }
