package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestDecoderHoldsBackUnfinishedCharacters(t *testing.T) {
	tok := newSmall(t, smallFile(), nil) // every byte is a token
	const fffd = "\ufffd"
	for _, c := range []struct {
		name  string
		bytes string
		want  []string // the text that each byte emits, then the text of Flush
	}{
		{"ASCII", "ab", []string{"a", "b", ""}},
		{"two bytes", "é", []string{"", "é", ""}},
		{"four bytes", "🚀!", []string{"", "", "", "🚀", "!", ""}},
		{"cut off at the end", "\xf0\x9f\x9a", []string{"", "", "", fffd}},
		{"broken by a letter", "\xe4\xbda", []string{"", "", fffd + "a", ""}},
		{"broken by another character", "\xe4é", []string{"", fffd, "é", ""}},
		{"a byte that begins nothing", "\xff\x80", []string{fffd, fffd, ""}},
		{"too long an encoding", "\xe0\x80\x80", []string{"", fffd + fffd, fffd, ""}},
		{"half a surrogate pair", "\xed\xa0\x80", []string{"", fffd + fffd, fffd, ""}},
		{"beyond the last code point", "\xf4\x90", []string{"", fffd + fffd, ""}},
	} {
		dec := tok.NewDecoder(nil)
		var got []string
		for i := range len(c.bytes) {
			got = append(got, dec.Next(int32(c.bytes[i])))
		}
		got = append(got, dec.Flush())
		if !cmp.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if dec.Pending() != 0 {
			t.Errorf("%s: %d bytes held after Flush", c.name, dec.Pending())
		}
	}
}

func TestDecoderEmitsWholeCharactersAndLosesNothing(t *testing.T) {
	tok := deepSeek(t)
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOf(rapid.OneOf(rapid.Int32Range(-1, 128900), rapid.Int32Range(3, 500))).Draw(t, "ids")
		skip := rapid.Bool().Draw(t, "skip")
		dec := tok.NewDecoder(func(id int32) bool { return skip && tok.IsSpecial(id) })
		var b strings.Builder
		for _, id := range ids {
			part := dec.Next(id)
			if !utf8.ValidString(part) {
				t.Fatalf("token %d emitted %q", id, part)
			}
			b.WriteString(part)
			if dec.Pending() > 3 {
				t.Fatalf("%d bytes held back", dec.Pending())
			}
		}
		b.WriteString(dec.Flush())
		whole := tok.Decode(ids, skip)
		if utf8.ValidString(whole) && b.String() != whole {
			t.Fatalf("streamed %q, at once %q", b.String(), whole)
		}
		// Where bytes were replaced, all valid characters are still present, in order.
		if got, want := onlyValid(b.String()), onlyValid(whole); got != want {
			t.Fatalf("streamed %q, at once %q", got, want)
		}
	})
}

func onlyValid(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\ufffd", "")
}

func TestDecoderAllocatesNothingForWholeTokens(t *testing.T) {
	tok := deepSeek(t)
	ids := encode(t, tok, "The indexer scores every earlier token. 深度求索", parse)
	dec := tok.NewDecoder(tok.IsSpecial)
	if n := testing.AllocsPerRun(100, func() {
		for _, id := range ids {
			dec.Next(id)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestBytesAndTextOfTokens(t *testing.T) {
	tok := deepSeek(t)
	for id := range int32(tok.VocabSize()) {
		text := tok.Text(id)
		if string(tok.Bytes(id)) != text {
			t.Fatalf("token %d: bytes %q, text %q", id, tok.Bytes(id), text)
		}
		if text == "" {
			t.Fatalf("token %d is empty", id)
		}
		if got, ok := tok.TokenID(text); !ok || got != id {
			t.Fatalf("token %d is %q, which is token %d", id, text, got)
		}
	}
	for _, id := range []int32{-1, int32(tok.VocabSize()), 129279, 1 << 30} {
		if tok.Bytes(id) != nil || tok.Decode([]int32{id}, false) != "" {
			t.Errorf("token %d stands for %q", id, tok.Bytes(id))
		}
	}
	for _, text := range []string{"", "no such token", "Ġthe"} {
		if id, ok := tok.TokenID(text); ok {
			t.Errorf("TokenID(%q) = %d", text, id)
		}
	}
}
