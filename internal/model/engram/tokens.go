package engram

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// TokenMap computes the map of tokens to keys from the text of a tokenizer.json: tokens have the same key if their
// texts differ only in case, diacritics, compatibility forms or surrounding space (v41 spec, 3.3). vocab is the size of
// the model's vocabulary, and every id must have a token.
func TokenMap(tokenizer []byte, vocab int) ([]int32, error) {
	var file struct {
		Model struct {
			Vocab map[string]int `json:"vocab"`
		} `json:"model"`
		Added []struct {
			ID      int    `json:"id"`
			Content string `json:"content"`
		} `json:"added_tokens"`
	}
	if err := json.Unmarshal(tokenizer, &file); err != nil {
		return nil, fmt.Errorf("engram: tokenizer.json: %w", err)
	}
	type token struct {
		name, text string
		given      bool
	}
	tokens := make([]token, vocab)
	for name, id := range file.Model.Vocab {
		if id >= 0 && id < vocab {
			tokens[id] = token{name, bytesOf(name), true}
		}
	}
	for _, a := range file.Added {
		if a.ID >= 0 && a.ID < vocab {
			tokens[a.ID] = token{a.Content, a.Content, true}
		}
	}
	keys, out := map[string]int32{}, make([]int32, vocab)
	for id, t := range tokens {
		if !t.given {
			return nil, fmt.Errorf("engram: tokenizer.json has no token %d of %d, but the n-gram tables need the "+
				"texts of all: use the tokenizer.json of the same release", id, vocab)
		}
		key := t.name
		if utf8.ValidString(t.text) && !strings.ContainsRune(t.text, utf8.RuneError) {
			if key = normalise(t.text); key == "" {
				key = t.text
			}
		}
		n, ok := keys[key]
		if !ok {
			n = int32(len(keys))
			keys[key] = n
		}
		out[id] = n
	}
	return out, nil
}

// PlainMap returns a token map for checkpoints without a tokenizer: adjacent tokens have the same key, and every key
// has a token.
func PlainMap(vocab, keys int) []int32 {
	out := make([]int32, vocab)
	for i := range out {
		out[i] = int32(int64(i) * int64(keys) / int64(vocab))
	}
	return out
}

// normalise returns the normalised text of a token; tokens with the same normalised text have the same key.
func normalise(text string) string {
	var b strings.Builder
	space := false // the previous rune was a space
	for _, r := range norm.NFD.String(norm.NFKC.String(text)) {
		if unicode.Is(unicode.M, r) {
			continue
		}
		switch r {
		case ' ', '\t', '\r', '\n':
			if !space {
				b.WriteByte(' ')
			}
			space = true
			continue
		}
		space = false
		lower(&b, r)
	}
	if b.String() == " " {
		return " "
	}
	return strings.TrimFunc(b.String(), unicode.IsSpace)
}

// lower writes a rune in lower case, independently of its neighbours. U+0130 has two runes in lower case.
func lower(b *strings.Builder, r rune) {
	if r == 'İ' { // U+0130 is i with a dot above; the dot was dropped earlier, with the other marks
		b.WriteString("i̇")
		return
	}
	b.WriteRune(unicode.ToLower(r))
}

// bytesOf returns the text that a name in the vocabulary of a byte-level tokenizer represents: a printable byte is the
// rune with its number, other bytes are runes from U+0100 on.
func bytesOf(name string) string {
	out := make([]byte, 0, len(name))
	for _, r := range name {
		b, ok := byteOf(r)
		if !ok {
			return name
		}
		out = append(out, b)
	}
	return string(out)
}

func byteOf(r rune) (byte, bool) {
	switch {
	case printable(r):
		return byte(r), true
	case r >= 0x100 && int(r-0x100) < len(unprintable):
		return unprintable[r-0x100], true
	}
	return 0, false
}

func printable(r rune) bool {
	return r >= '!' && r <= '~' || r >= 0xa1 && r <= 0xac || r >= 0xae && r <= 0xff
}

// unprintable are the bytes that have names from U+0100 on, in order.
var unprintable = func() (list []byte) {
	for b := rune(0); b < 256; b++ {
		if !printable(b) {
			list = append(list, byte(b))
		}
	}
	return list
}()
