package grammar

import (
	"math/rand/v2"
	"testing"
)

// byteVocabulary is a vocabulary with a token for every byte, additional given tokens, a special token and the end of
// the sequence.
type byteVocabulary struct {
	texts [][]byte
}

func newVocabulary(more ...string) *byteVocabulary {
	v := &byteVocabulary{}
	for b := range 256 {
		v.texts = append(v.texts, []byte{byte(b)})
	}
	for _, s := range more {
		v.texts = append(v.texts, []byte(s))
	}
	v.texts = append(v.texts, []byte("<special>"), []byte("<eos>"))
	return v
}

func (v *byteVocabulary) Size() int             { return len(v.texts) }
func (v *byteVocabulary) Bytes(id int32) []byte { return v.texts[id] }
func (v *byteVocabulary) IsSpecial(id int32) bool {
	return int(id) >= len(v.texts)-2
}
func (v *byteVocabulary) EOS() []int32 { return []int32{int32(len(v.texts) - 1)} }

// pieces lists tokens like those of byte-level tokenizers: tokens that span JSON punctuation, parts of characters, runs
// of whitespace, and numbers.
var pieces = []string{
	`{"`, `"}`, `":`, `": `, `", "`, `","`, `"]`, `},`, `]}`, `}}`, `[]`, `{}`, `[{"`, `"},{"`, "{\n", "\n  ",
	",\n    ", " \"", ` "a": `, "true", "false", "null", "tr", "ue", "nul", "10", "12", "123", "00", "0.", ".5", "-1",
	"e+", "1,", "2]", "3}", "-", "1e9", "name", "na", "me\"", "value", "ab", "abc", "hello", " world", "\\n", "\\u00",
	"\\ud83d", "\\ude00", "\\\"", "\\\\", "u0041", "é", "\xc3", "\xa9", "日", "本", "日本", "\xe6\x97", "\xa5", "😀",
	"\xf0\x9f", "\x98\x80", "é\"", "a\":1", "\"a\":", "\"b\":", "\"c\": ", "2024", "-01", "-02-29", "T00:00:00Z", "  ",
	"    ", "        ", "\t", "\n\n", "\r\n",
}

func tokensOf(t testing.TB, more ...string) *Tokens {
	t.Helper()
	tokens, err := NewTokens(newVocabulary(more...))
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// largeVocabulary returns n tokens like those of a real tokenizer: words with and without a space before them, words
// with punctuation, numbers up to 999, and other scripts.
func largeVocabulary(n int) *byteVocabulary {
	r := rand.New(rand.NewPCG(1, 2))
	more := append([]string(nil), pieces...)
	for i := range 1000 {
		more = append(more, string([]byte{byte('0' + i/100), byte('0' + i/10%10), byte('0' + i%10)}))
	}
	syllables := []string{"an", "ber", "co", "dis", "en", "for", "gen", "hi", "ing", "ja", "ka", "lo", "ment", "ne",
		"or", "pre", "qu", "re", "st", "tion", "un", "ver", "wa", "xi", "yo", "za"}
	marks := []string{`"`, `":`, `",`, `"}`, ".", ",", "(", ")", "}", "]", "\n", `"]`, "{", "'", `\"`}
	seen := map[string]bool{}
	for len(more) < n-258 {
		word := ""
		switch r.IntN(10) {
		case 0: // three characters of a script with three bytes each
			for range 1 + r.IntN(3) {
				word += string(rune(0x4e00 + r.IntN(0x5000)))
			}
		default:
			if r.IntN(2) == 0 {
				word = " "
			}
			for range 1 + r.IntN(4) {
				word += syllables[r.IntN(len(syllables))]
			}
			if r.IntN(12) == 0 {
				word += marks[r.IntN(len(marks))]
			}
		}
		if !seen[word] {
			seen[word] = true
			more = append(more, word)
		}
	}
	return newVocabulary(more...)
}
