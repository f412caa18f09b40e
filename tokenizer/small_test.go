package tokenizer

import (
	"encoding/json"
	"maps"
	"testing"
)

// object is a JSON object that a test builds.
type object = map[string]any

// spell returns the bytes of s in the byte-level alphabet.
func spell(s string) string {
	var out []rune
	for i := range len(s) {
		for r, b := range alphabetByte {
			if b == int16(s[i]) {
				out = append(out, rune(r))
			}
		}
	}
	return string(out)
}

// smallFile returns a byte-level tokenizer.json in which the 256 bytes have the ids 0 to 255, and the merges (pairs of
// texts) have the ids from 256 on. No pattern splits the text.
func smallFile(merges ...[2]string) object {
	vocab := object{}
	for b := range 256 {
		vocab[spell(string([]byte{byte(b)}))] = b
	}
	list := []any{}
	for i, m := range merges {
		vocab[spell(m[0]+m[1])] = 256 + i
		list = append(list, []string{spell(m[0]), spell(m[1])})
	}
	return object{
		"added_tokens":  []any{},
		"pre_tokenizer": object{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
		"decoder":       object{"type": "ByteLevel"},
		"model":         object{"type": "BPE", "vocab": vocab, "merges": list},
	}
}

// with returns file with some parts replaced.
func with(file, parts object) object {
	out := maps.Clone(file)
	maps.Copy(out, parts)
	return out
}

// withModel returns file with some fields of its model replaced.
func withModel(file, fields object) object {
	return with(file, object{"model": with(file["model"].(object), fields)})
}

func toJSON(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// newSmall returns a tokenizer made from a file and, unless it is nil, a configuration.
func newSmall(t testing.TB, file object, config any) *Tokenizer {
	t.Helper()
	var configJSON []byte
	if config != nil {
		configJSON = toJSON(t, config)
	}
	tok, err := New(toJSON(t, file), configJSON)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}
