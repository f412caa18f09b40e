package tokenizer

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

// The NFC normalisation equals that of Python. testdata/nfc.json holds pairs [input, expected] made with Python's
// unicodedata.normalize("NFC", input): 400 random strings of combining marks, composites, Hangul and ASCII, then
// hand-picked ones.
func TestNFCAgreesWithPythonUnicodedata(t *testing.T) {
	data, err := os.ReadFile("testdata/nfc.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases [][2]string
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if got := nfc(c[0]); got != c[1] {
			t.Errorf("nfc(%+q) = %+q, want %+q", c[0], got, c[1])
		}
	}
}

func TestNFCOfEveryCodePointIsStable(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		once := nfc(string(r))
		if twice := nfc(once); twice != once {
			t.Fatalf("%U: once %+q, twice %+q", r, once, twice)
		}
	}
}

func TestNFCKeepsInvalidBytes(t *testing.T) {
	for _, s := range []string{"\xff", "e\xcc", "\xff\u0301", "e\u0301\xff\u0301", "\xe4\xbd"} {
		want := strings.ReplaceAll(s, "e\u0301", "é")
		if got := nfc(s); got != want {
			t.Errorf("nfc(%q) = %q, want %q", s, got, want)
		}
	}
}

func TestNFCTwiceChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOf(rapid.RuneFrom(nil, unicode.Mn, unicode.Latin, unicode.Hangul, unicode.Greek)).Draw(t, "s")
		once := nfc(s)
		if twice := nfc(once); twice != once {
			t.Fatalf("%+q: once %+q, twice %+q", s, once, twice)
		}
	})
}

// A long run of combining marks is normalised in linear time; with a quadratic algorithm this test would not end.
func TestNFCOfLongRunsOfMarksEnds(t *testing.T) {
	s := "a" + strings.Repeat("\u0301\u0323", 1<<18)
	if got := nfc(s); !strings.HasPrefix(got, "\u1ea1\u0323") || len(got) != len(s)-1-2+3 {
		t.Errorf("wrong result %+.40q, %d bytes", got, len(got))
	}
}

// The algorithm for long runs of marks gives the result of package norm for short runs, without the limit of package
// norm.
func TestNFCOfLongRunsAgreesWithShortOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOfN(rapid.RuneFrom(nil, unicode.Mn, unicode.Latin, unicode.Hangul, unicode.Greek), 0, 24,
			-1).Draw(t, "s")
		if got, want := string(compose(decompose(s))), norm.NFC.String(s); got != want {
			t.Fatalf("%+q: %+q, want %+q", s, got, want)
		}
	})
	marks := strings.Repeat("\u0316", 40)
	for in, want := range map[string]string{
		"e" + marks + "\u0301":                 "é" + marks,
		"\u1100\u1161" + marks + "\xffe\u0301": "가" + marks + "\xffé",
		"x\u0301" + marks:                      "x" + marks + "\u0301",
	} {
		if got := nfc(in); got != want {
			t.Errorf("%+q: %+q, want %+q", in, got, want)
		}
	}
}

// In runs of any length, a mark does not combine with the character before it if a mark of the same class stands
// between them.
func TestNFCBlocksMarksOfOneClass(t *testing.T) {
	for _, marks := range []int{1, 40} {
		s := "a\u033d" + strings.Repeat("\u0301", marks)
		if got := nfc(s); got != s {
			t.Errorf("nfc(%+q) = %+q, want it unchanged", s, got)
		}
	}
}
