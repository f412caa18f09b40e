package tokenizer

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Added tokens are found in the text before it is split. Their ids start at 300 here; each byte is a token whose id is
// its value.
func TestAddedTokens(t *testing.T) {
	const a, b, c = 300, 301, 302
	for _, test := range []struct {
		name   string
		tokens []object
		text   string
		want   []int32
	}{
		{"the longest at the leftmost place", []object{{"content": "<a>"}, {"content": "<a>b"}, {"content": "b<"}},
			"<a>b<a><a", []int32{b, a, '<', 'a'}},
		{"the leftmost wins over a longer one", []object{{"content": "xy"}, {"content": "yzzz"}},
			"xyzzz", []int32{a, 'z', 'z', 'z'}},
		{"a start that leads nowhere", []object{{"content": "aab"}}, "aaab", []int32{'a', a}},
		{"white space before", []object{{"content": "<a>", "lstrip": true}}, "x \t<a> y", []int32{'x', a, ' ', 'y'}},
		{"white space after", []object{{"content": "<a>", "rstrip": true}}, "x <a> \n\u3000y",
			[]int32{'x', ' ', a, 'y'}},
		{"white space is swallowed once", []object{{"content": "<a>", "lstrip": true, "rstrip": true}},
			"<a>  <a>  ", []int32{a, a}},
		{"white space inside the token before stays there", []object{{"content": "b "},
			{"content": "<a>", "lstrip": true}}, "b <a>", []int32{a, b}},
		{"only as a word", []object{{"content": "to", "single_word": true}},
			"to tor to_ (to) éto", []int32{a, ' ', 't', 'o', 'r', ' ', 't', 'o', '_', ' ', '(', a, ')', ' ', 0xc3, 0xa9,
				't', 'o'}},
		{"in raw text before normalised text",
			[]object{{"content": "ab", "normalized": true}, {"content": "bc", "normalized": false}}, "abc",
			[]int32{'a', b}},
		{"empty ones are never found", []object{{"content": ""}, {"content": "qq"}}, "pqq", []int32{'p', b}},
		{"whether special or not", []object{{"content": "<a>", "special": true}, {"content": "<b>"},
			{"content": "<c>", "special": true}},
			"<a><b><c>", []int32{a, b, c}},
	} {
		list := []any{}
		for i, tok := range test.tokens {
			list = append(list, with(tok, object{"id": 300 + i}))
		}
		tok := newSmall(t, with(smallFile(), object{"added_tokens": list}), nil)
		if got := encode(t, tok, test.text, parse); !cmp.Equal(got, test.want) {
			t.Errorf("%s: Encode(%q) = %v, want %v", test.name, test.text, got, test.want)
		}
	}
}

func TestNormalizedTokensAreFoundInNormalizedText(t *testing.T) {
	file := with(smallFile(), object{
		"normalizer": object{"type": "NFC"},
		"added_tokens": []any{
			object{"id": 300, "content": "e\u0301x", "normalized": true},
			object{"id": 301, "content": "o\u0301", "normalized": false},
		},
	})
	tok := newSmall(t, file, nil)
	for text, want := range map[string][]int32{
		"éx":       {300},
		"e\u0301x": {300},
		"o\u0301":  {301},
		"ó":        {0xc3, 0xb3},
		"u\u0301":  {0xc3, 0xba},
	} {
		if got := encode(t, tok, text, parse); !cmp.Equal(got, want) {
			t.Errorf("Encode(%+q) = %v, want %v", text, got, want)
		}
	}
}

func TestAddedTokensStandForTheirSpelling(t *testing.T) {
	file := with(smallFile(), object{"added_tokens": []any{
		object{"id": 300, "content": "éé"}, // in the byte-level alphabet this content would stand for two bytes
		object{"id": 301, "content": " two words"},
	}})
	tok := newSmall(t, file, nil)
	for _, text := range []string{"éé", " two words"} {
		id, ok := tok.TokenID(text)
		if got := tok.Decode([]int32{id}, false); !ok || got != text {
			t.Errorf("%q is token %d, which decodes to %q", text, id, got)
		}
	}
}

func TestSpecialAndAddedAreDifferentThings(t *testing.T) {
	tok := deepSeek(t)
	user, _ := tok.TokenID("<｜User｜>")
	bos, _ := tok.BOS()
	hello := int32(19923)
	for _, c := range []struct {
		id             int32
		special, added bool
	}{{user, false, true}, {bos, true, true}, {hello, false, false}, {-1, false, false}, {1 << 20, false, false}} {
		if tok.IsSpecial(c.id) != c.special || tok.IsAdded(c.id) != c.added {
			t.Errorf("token %d: special %t, added %t", c.id, tok.IsSpecial(c.id), tok.IsAdded(c.id))
		}
	}
	if got := tok.Decode([]int32{bos, user, hello}, true); got != "<｜User｜>Hello" {
		t.Errorf("Decode without special tokens = %q", got)
	}
}
