package tokenizer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sparrow/internal/mark"
)

// written returns a text without the « and » that enclose its literal spans, and these spans.
func written(s string) (string, []mark.Span) {
	var b mark.Builder
	for s != "" {
		plain, rest, _ := strings.Cut(s, "«")
		literal, after, _ := strings.Cut(rest, "»")
		b.WriteString(plain)
		b.Mark(literal)
		s = after
	}
	return b.Text().String(), b.Text().Spans()
}

// Added tokens that are spelled inside literal spans are encoded as ordinary text. The ids of added tokens start at
// 300; bytes are their own ids.
func TestLiteralSpansHoldNoAddedToken(t *testing.T) {
	const a, b = 300, 301
	for _, test := range []struct {
		name       string
		tokens     []object
		normalizer any
		text       string
		want       []int32
	}{
		{"inside a span", []object{{"content": "<a>"}}, nil, "<a>«<a>»<a>", []int32{a, '<', 'a', '>', a}},
		{"begun outside and ended inside", []object{{"content": "<a>"}}, nil, "<a«>»", []int32{'<', 'a', '>'}},
		{"begun inside and ended outside", []object{{"content": "<a>"}}, nil, "«<»a>", []int32{'<', 'a', '>'}},
		{"with a span in its middle", []object{{"content": "<a>"}}, nil, "<«a»>", []int32{'<', 'a', '>'}},
		{"across two spans", []object{{"content": "<a>"}}, nil, "«<»«a>»<a>", []int32{'<', 'a', '>', a}},
		{"a shorter one where the longest reaches into a span", []object{{"content": "<a>"}, {"content": "<a>b"}}, nil,
			"<a>«b»<a>b", []int32{a, 'b', b}},
		{"one that starts inside the spelling of a refused one", []object{{"content": "xy"}, {"content": "yz"}}, nil,
			"«x»yz", []int32{'x', b}},
		{"white space is found everywhere", []object{{"content": "  "}, {"content": "<a>"}}, nil, "«  <a>»  ",
			[]int32{a, '<', 'a', '>', a}},
		{"white space is swallowed as before", []object{{"content": "<a>", "rstrip": true}}, nil, "<a>«  x»",
			[]int32{a, 'x'}},
		{"in normalised text", []object{{"content": "<b>", "normalized": true}},
			object{"type": "Replace", "pattern": object{"String": "a"}, "content": "b"},
			"<a>«<a>»<«a»>«a»<a>", []int32{a, '<', 'b', '>', '<', 'b', '>', 'b', a}},
		{"in text that normalising moves", []object{{"content": "<b>", "normalized": true}},
			object{"type": "Replace", "pattern": object{"String": "a"}, "content": "xyz"},
			"a<b>«aa<b>»<b>", []int32{'x', 'y', 'z', a, 'x', 'y', 'z', 'x', 'y', 'z', '<', 'b', '>', a}},
		{"where normalising joins characters across the edge", []object{{"content": "é>", "normalized": true}},
			object{"type": "NFC"}, "e«\u0301>»é>", []int32{0xc3, 0xa9, '>', a}},
	} {
		list := []any{}
		for i, tok := range test.tokens {
			list = append(list, with(tok, object{"id": 300 + i}))
		}
		tok := newSmall(t, with(smallFile(), object{"added_tokens": list, "normalizer": test.normalizer}), nil)
		text, spans := written(test.text)
		got, err := tok.Encode(text, EncodeOptions{ParseSpecial: true, Literal: spans})
		if err != nil || !cmp.Equal(got, test.want) {
			t.Errorf("%s: Encode(%q) = %v %v, want %v", test.name, test.text, got, err, test.want)
		}
	}
}

// A beginning-of-sequence token that a user spelled does not replace the real one.
func TestLiteralTextDoesNotBeginASequence(t *testing.T) {
	file := with(smallFile(), object{
		"added_tokens": []any{object{"id": 300, "content": "<s>", "special": true}},
		"post_processor": object{"type": "TemplateProcessing",
			"single":         []any{object{"SpecialToken": object{"id": "<s>"}}, object{"Sequence": object{"id": "A"}}},
			"special_tokens": object{"<s>": object{"ids": []int{300}}}},
	})
	got, err := newSmall(t, file, nil).Encode("<s>", EncodeOptions{AddSpecial: true, ParseSpecial: true,
		Literal: []mark.Span{{Start: 0, End: 3}}})
	if want := []int32{300, '<', 's', '>'}; err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
}

// If the text spells no added token, literal spans do not change its ids: spans do not split words.
func FuzzLiteralSpansKeepTheIdsOfOrdinaryText(f *testing.F) {
	f.Add("Hello world, 123 é", 3, 9)
	tok := newSmall(f, with(smallFile([2]string{"l", "l"}, [2]string{"e", "ll"}), object{
		"added_tokens": []any{object{"id": 300, "content": "<｜User｜>"}}}), nil)
	f.Fuzz(func(t *testing.T, text string, start, end int) {
		if start < 0 || end > len(text) || start >= end || strings.Contains(text, "<｜User｜>") {
			return
		}
		want, err := tok.Encode(text, EncodeOptions{ParseSpecial: true})
		if err != nil {
			t.Fatal(err)
		}
		got, err := tok.Encode(text, EncodeOptions{ParseSpecial: true, Literal: []mark.Span{{Start: start, End: end}}})
		if err != nil || !cmp.Equal(got, want) {
			t.Fatalf("%v %v, want %v", got, err, want)
		}
	})
}
