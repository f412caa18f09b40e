package nfc

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// testdata/nfc.json holds pairs [input, expected] made with Python's
// unicodedata.normalize("NFC", input): 400 random strings of combining marks,
// composites, Hangul and ASCII, then hand-picked ones.
func TestStringAgreesWithPythonUnicodedata(t *testing.T) {
	data, err := os.ReadFile("testdata/nfc.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases [][2]string
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if got := String(c[0]); got != c[1] {
			t.Errorf("String(%+q) = %+q, want %+q", c[0], got, c[1])
		}
	}
}

func TestEveryCodePointIsStableAfterOnePass(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		once := String(string(r))
		if twice := String(once); twice != once {
			t.Fatalf("%U: once %+q, twice %+q", r, once, twice)
		}
	}
}

func TestInvalidBytesPassUnchanged(t *testing.T) {
	for _, s := range []string{"\xff", "e\xcc", "\xff\u0301", "e\u0301\xff\u0301", "\xe4\xbd"} {
		want := strings.ReplaceAll(s, "e\u0301", "é")
		if got := String(s); got != want {
			t.Errorf("String(%q) = %q, want %q", s, got, want)
		}
	}
}

func TestNormalisingTwiceChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOf(rapid.RuneFrom(nil, unicode.Mn, unicode.Latin, unicode.Hangul, unicode.Greek)).Draw(t, "s")
		once := String(s)
		if twice := String(once); twice != once {
			t.Fatalf("%+q: once %+q, twice %+q", s, once, twice)
		}
	})
}

func TestLongRunsOfMarksStayFast(t *testing.T) {
	s := "a" + strings.Repeat("\u0301\u0323", 1<<18)
	begin := time.Now()
	if got := String(s); !strings.HasPrefix(got, "\u1ea1\u0323") || len(got) != len(s)-1-2+3 {
		t.Errorf("wrong result %+.40q, %d bytes", got, len(got))
	}
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("%v for 1 MB of combining marks", d)
	}
}
