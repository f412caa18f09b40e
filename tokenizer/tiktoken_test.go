package tokenizer

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// madeUpRanks returns a ranks file with all bytes and then the words, and the rank of each. Every word must be a pair
// of earlier tokens.
func madeUpRanks(words ...string) (text []byte, rank map[string]int) {
	rank = map[string]int{}
	var b strings.Builder
	add := func(w string) {
		fmt.Fprintf(&b, "%s %d\n", base64.StdEncoding.EncodeToString([]byte(w)), len(rank))
		rank[w] = len(rank)
	}
	for c := range 256 {
		add(string([]byte{byte(c)}))
	}
	for _, w := range words {
		add(w)
	}
	return []byte(b.String()), rank
}

// A tokenizer of a ranks file divides text into pieces; a piece that equals a token becomes that token, and other
// pieces are merged by rank.
func TestRanksFile(t *testing.T) {
	text, rank := madeUpRanks("he", "ll", "llo", "hello", " w", "or", " wor", "ld", " world", "\xe4\xb8", "世", "12",
		"123", "'t", "do", "don", "bc", "abc")
	dir := t.TempDir()
	config := `{"bos_token": "[BOS]", "added_tokens_decoder": {"` + fmt.Sprint(len(rank)) + `": {"content": "[BOS]",
		"special": true}, "` + fmt.Sprint(len(rank)+2) + `": {"content": "<|im_end|>", "special": true}}}`
	for name, data := range map[string]string{RanksName: string(text), "tokenizer_config.json": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tok, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if n := tok.VocabSize(); n != len(rank)+ranksReserved {
		t.Errorf("%d tokens, want %d", n, len(rank)+ranksReserved)
	}
	for _, whole := range []string{"hello world", "世hello", "世界世 世", "1234", "123456 don't", "don't DON'T\n",
		"HELLOhello", "helloWorld", " hello, world!\r\n\n", "abc", "xbc", "do", "\xff\xfe"} {
		var want []int32
		for _, p := range split(t, tok, whole) {
			if id, ok := rank[p]; ok {
				want = append(want, int32(id))
				continue
			}
			for _, part := range mergeBelow(rank, p, len(rank)) {
				want = append(want, int32(rank[part]))
			}
		}
		got, err := tok.Encode(whole, EncodeOptions{})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v (%v), want %v", whole, got, err, want)
		}
		var back []byte
		for _, id := range got {
			back = append(back, tok.Bytes(id)...)
		}
		if string(back) != whole {
			t.Errorf("%q comes back as %q", whole, back)
		}
	}
	for text, want := range map[string][]string{
		"世界hello世":        {"世界", "hello", "世"},
		"12345 67":        {"123", "45", " ", "67"},
		"it's DON'T":      {"it's", " DON'T"},
		"HelloWorld HTML": {"Hello", "World", " HTML"},
		"a  b\n\n c":      {"a", " ", " b", "\n\n", " c"},
		"x, y!\n":         {"x", ",", " y", "!\n"},
		"éa世é":            {"éa", "世", "é"},
	} {
		if got := split(t, tok, text); !slices.Equal(got, want) {
			t.Errorf("%q is cut into %q, want %q", text, got, want)
		}
	}
	ids, err := tok.Encode("[BOS]hello<|im_end|>", EncodeOptions{ParseSpecial: true})
	if err != nil || !slices.Equal(ids, []int32{int32(len(rank)), int32(rank["hello"]), int32(len(rank) + 2)}) {
		t.Errorf("special tokens: %v, %v", ids, err)
	}
}

// split returns the pieces of a text.
func split(t *testing.T, tok *Tokenizer, text string) (out []string) {
	t.Helper()
	err := tok.pieces.each(new(scratch), text, func(p string) error {
		out = append(out, p)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A damaged ranks file is refused with an error that contains the line number.
func TestDamagedRanksFiles(t *testing.T) {
	good, _ := madeUpRanks("he", "hel")
	for text, want := range map[string]string{
		"":                            "no tokens",
		"aGU= 1\n":                    "line 1 has rank 1",
		"aGU= x\n":                    "line 1 is not",
		"???? 0\n":                    "line 1 is not",
		string(good) + "cXp6 258\n":   "rank 258 is not a pair",
		string(good) + "\naGVs 300\n": "has rank 300",
	} {
		_, err := FromRanks([]byte(text), nil)
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text[max(0, len(text)-20):], err, want)
		}
	}
}
