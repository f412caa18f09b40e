package tokenizer

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// charFile returns a character-level tokenizer with byte fallback, like those of SentencePiece models: ▁ stands for a
// space, one ▁ is added before the text, and <0xNN> stands for a byte of a character that is not a token.
func charFile() object {
	vocab := object{"<unk>": 0}
	for b := range 256 {
		vocab[fallbackName(byte(b))] = 1 + b
	}
	for i, word := range []string{"▁", "a", "b", "é", "ab", "▁ab"} {
		vocab[word] = 300 + i
	}
	return object{
		"normalizer": object{"type": "Sequence", "normalizers": []any{
			object{"type": "Prepend", "prepend": "▁"},
			object{"type": "Replace", "pattern": object{"String": " "}, "content": "▁"}}},
		"decoder": object{"type": "Sequence", "decoders": []any{
			object{"type": "Replace", "pattern": object{"String": "▁"}, "content": " "},
			object{"type": "ByteFallback"}, object{"type": "Fuse"},
			object{"type": "Strip", "content": " ", "start": 1, "stop": 0}}},
		"added_tokens": []any{object{"id": 400, "content": "<s>", "special": true}},
		"model": object{"type": "BPE", "vocab": vocab, "byte_fallback": true, "unk_token": "<unk>",
			"merges": []string{"a b", "▁ ab"}},
	}
}

func TestCharacterLevelWithByteFallback(t *testing.T) {
	tok := newSmall(t, charFile(), nil)
	for _, c := range []struct {
		text string
		ids  []int32
	}{
		{"ab ab", []int32{305, 305}},
		{"é", []int32{300, 303}},
		{"🚀", []int32{300, 1 + 0xf0, 1 + 0x9f, 1 + 0x9a, 1 + 0x80}},
		{"\xffa", []int32{300, 1 + 0xff, 301}},
		{"  a", []int32{300, 300, 300, 301}},
		{"", nil},
	} {
		if got := encode(t, tok, c.text, parse); !cmp.Equal(got, c.ids) {
			t.Errorf("Encode(%q) = %v, want %v", c.text, got, c.ids)
		}
		if got := tok.Decode(c.ids, false); got != c.text {
			t.Errorf("Decode(%v) = %q, want %q", c.ids, got, c.text)
		}
		dec := tok.NewDecoder(tok.IsSpecial)
		got := ""
		for _, id := range c.ids {
			got += dec.Next(id)
		}
		if got += dec.Flush(); got != validUTF8([]byte(c.text)) {
			t.Errorf("streamed %v = %q, want %q", c.ids, got, c.text)
		}
	}
	if got := string(tok.Bytes(1 + '\n')); got != "\n" {
		t.Errorf("<0x0A> stands for %q", got)
	}
	if id, ok := tok.TokenID(" ab"); !ok || id != 305 {
		t.Errorf("TokenID of \" ab\" = %d, %t, want 305", id, ok)
	}
}

func TestCharacterLevelWithoutByteFallback(t *testing.T) {
	for fuse, want := range map[bool][]int32{false: {300, 0, 0, 301}, true: {300, 0, 301}} {
		file := withModel(charFile(), object{"byte_fallback": false, "fuse_unk": fuse})
		if got := encode(t, newSmall(t, file, nil), "🚀ça"[:4]+"ça"[:2]+"a", parse); !cmp.Equal(got, want) {
			t.Errorf("fuse %t: %v, want %v", fuse, got, want)
		}
	}
}
