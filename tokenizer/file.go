package tokenizer

import (
	"encoding/json"
	"fmt"

	"sparrow/internal/jsonscan"
)

// file is tokenizer.json, divided into its parts. Vocabulary and merges are parsed last, because their format depends
// on the pre-tokenizer, which may be at the end of the file.
type file struct {
	added         []addedToken
	normalizer    json.RawMessage
	preTokenizer  json.RawMessage
	postProcessor json.RawMessage
	decoder       json.RawMessage
	model         modelFile
}

// modelFile is the "model" object of tokenizer.json.
type modelFile struct {
	options modelOptions
	vocab   json.RawMessage // {"token": id, ...}
	merges  json.RawMessage // ["a b", ...] or [["a", "b"], ...]
}

// modelOptions holds the small fields of the model object.
type modelOptions struct {
	Type         string   `json:"type"`
	Dropout      *float64 `json:"dropout"`
	Unknown      *string  `json:"unk_token"`
	WordPrefix   *string  `json:"continuing_subword_prefix"`
	WordSuffix   *string  `json:"end_of_word_suffix"`
	FuseUnknown  bool     `json:"fuse_unk"`
	ByteFallback bool     `json:"byte_fallback"`
	IgnoreMerges bool     `json:"ignore_merges"`
}

// parseFile divides data into parts and parses the small ones.
func parseFile(data []byte) (*file, error) {
	var f file
	if at := jsonscan.InvalidUTF8(data); at >= 0 {
		return nil, malformed("byte %d (0x%02x) is not valid UTF-8", at, data[at])
	}
	r := jsonscan.Scanner{Text: data, Name: "file"}
	err := r.Object(func(key []byte, _ int) error {
		if string(key) == "model" {
			return f.model.read(&r)
		}
		name := string(key)
		value, err := r.Raw()
		if err != nil {
			return err
		}
		switch name {
		case "added_tokens":
			return decodeJSON(name, value, &f.added)
		case "normalizer":
			f.normalizer = orNil(value)
		case "pre_tokenizer":
			f.preTokenizer = orNil(value)
		case "post_processor":
			f.postProcessor = orNil(value)
		case "decoder":
			f.decoder = orNil(value)
		}
		return nil // version, truncation and padding do not affect tokens
	})
	if err == nil {
		err = r.End("the end of the file")
	}
	if err != nil {
		return nil, asMalformed(err)
	}
	if f.model.vocab == nil || f.model.merges == nil {
		return nil, malformed("the file has no model with vocab and merges")
	}
	return &f, f.model.options.check()
}

// read reads the model object.
func (m *modelFile) read(r *jsonscan.Scanner) error {
	small := map[string]json.RawMessage{}
	err := r.Object(func(key []byte, _ int) error {
		name := string(key)
		value, err := r.Raw()
		if err != nil {
			return err
		}
		switch name {
		case "vocab":
			m.vocab = value
		case "merges":
			m.merges = value
		default:
			small[name] = value
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Join the small fields to one object, whose types encoding/json checks.
	object, err := json.Marshal(small)
	if err != nil {
		return malformed("model: %v", err)
	}
	return decodeJSON("model", object, &m.options)
}

// check returns an error for models and options with which tokens would differ from those of the reference.
func (o *modelOptions) check() error {
	if o.Type != "BPE" && o.Type != "" { // older files have no type
		return unsupported("model", o.Type, "BPE")
	}
	if o.Dropout != nil && *o.Dropout != 0 {
		return fmt.Errorf("%w: model dropout %v makes encoding random; supported: null, 0", ErrUnsupported, *o.Dropout)
	}
	if o.WordPrefix != nil && *o.WordPrefix != "" {
		return unsupported("continuing_subword_prefix", *o.WordPrefix, "null", `""`)
	}
	if o.WordSuffix != nil && *o.WordSuffix != "" {
		return unsupported("end_of_word_suffix", *o.WordSuffix, "null", `""`)
	}
	return nil
}

// decodeJSON unmarshals one named part of the file.
func decodeJSON(name string, value json.RawMessage, into any) error {
	if err := json.Unmarshal(value, into); err != nil {
		return malformed("%s: %v", name, err)
	}
	return nil
}

// orNil returns the value, or nil for JSON null.
func orNil(value json.RawMessage) json.RawMessage {
	if string(value) == "null" {
		return nil
	}
	return value
}

// maxNesting is the maximum nesting depth of sequences.
const maxNesting = 16

// eachComponent calls visit with the component of a part of tokenizer.json or, if it is a Sequence, with the components
// in its list, in order. A nil value has no components.
func eachComponent(part, list string, value json.RawMessage,
	visit func(kind string, value json.RawMessage) error) error {
	var walk func(value json.RawMessage, depth int) error
	walk = func(value json.RawMessage, depth int) error {
		var c struct {
			Type string `json:"type"`
		}
		if err := decodeJSON(part, value, &c); err != nil {
			return err
		}
		if c.Type != "Sequence" {
			return visit(c.Type, value)
		}
		if depth == maxNesting {
			return malformed("%s: sequences nested deeper than %d", part, maxNesting)
		}
		var fields map[string]json.RawMessage
		var members []json.RawMessage
		if err := decodeJSON(part, value, &fields); err != nil {
			return err
		}
		if err := decodeJSON(part+" Sequence "+list, fields[list], &members); err != nil {
			return err
		}
		for _, m := range members {
			if err := walk(m, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	if value == nil {
		return nil
	}
	return walk(value, 0)
}

// patternFile is a pattern in tokenizer.json: one of the two fields is set.
type patternFile struct {
	String *string
	Regex  *string
}
