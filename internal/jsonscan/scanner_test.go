package jsonscan_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"sparrow/internal/jsonscan"
)

// valid reports whether the scanner reads the text as exactly one JSON value.
func valid(text string) bool {
	s := &jsonscan.Scanner{Text: []byte(text)}
	return s.Skip() == nil && s.End("the end") == nil
}

func TestScannerAgreesWithTheStandardDecoder(t *testing.T) {
	for _, text := range []string{
		``, ` `, `0`, `-0`, `01`, `-`, `+1`, `1.`, `.5`, `1.5`, `1e`, `1e+`, `1E-7`, `1.5e10`, `--1`, `1 2`, `1x`,
		`true`, `tru`, `truex`, `false`, `null`, `nul`, `True`,
		`""`, `"a`, `"a\`, `"\"`, `"\u12"`, `"\u12g4"`, `"\uABcd"`, `"\u000`, `"\ud83d\ude00"`, "\"a\tb\"",
		"\"\\n\tb\"", `"\x"`, `"\`, `"\n`, `[]`, `[`, `]`, `[,]`, `[1,]`, `[1 2]`, `[1,[2,[]]]`, `[1}`,
		`{}`, `{`, `{,}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":1 "b":2}`, `{1:2}`, `{"a":{"b":[]}}`, `{"a`, `{"a\q":1}`,
		"\x00", "1\x00", "\ufeff1",
	} {
		if got, want := valid(text), json.Valid([]byte(text)); got != want {
			t.Errorf("%q: scanner %v, standard decoder %v", text, got, want)
		}
	}
	pieces := []string{`{`, `}`, `[`, `]`, `,`, `:`, `"`, `\`, `u00e9`, `a`, `"k":`, `"s"`, `0`, `1`, `-`, `.`, `e`,
		`+`, `true`, `null`, ` `, "\n"}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 12).Draw(t, "pieces"), "")
		if got, want := valid(text), json.Valid([]byte(text)); got != want {
			t.Fatalf("%q: scanner %v, standard decoder %v", text, got, want)
		}
	})
}

// At every place of the grammar, the scanner accepts the same bytes as the standard decoder, and reads the same string.
func TestEveryByteAtEveryPlace(t *testing.T) {
	for c := range 256 {
		b := string([]byte{byte(c)})
		for _, text := range []string{b, "1" + b, "-" + b, "0" + b, "1." + b, "1.5" + b, "1e" + b, "1e-" + b, "1e5" + b,
			"true" + b, "nul" + b, "[1" + b + "2]", "[" + b + "]", `{"a"` + b + "1}", `{"a":1` + b + `"b":2}`} {
			if got, want := valid(text), json.Valid([]byte(text)); got != want {
				t.Errorf("%q: scanner %v, standard decoder %v", text, got, want)
			}
		}
		if c >= utf8.RuneSelf { // package jsonscan does not check UTF-8
			continue
		}
		for _, text := range []string{`"` + b + `"`, `"x` + b + `"`, `"\n` + b + `"`, `"\` + b + `"`, `"\\\` + b + `z"`,
			`"\u` + b + `0e9"`, `"\u00e` + b + `"`, `"\ud8` + b + `d\ude00"`, `"\ud83d\u` + b + `e00"`} {
			var want string
			bad := json.Unmarshal([]byte(text), &want)
			if strings.ContainsRune(want, utf8.RuneError) {
				continue // half of a surrogate pair
			}
			if got, err := readString([]byte(text)); (err == nil) != (bad == nil) || err == nil && got != want {
				t.Errorf("%s: read %q, %v; the standard decoder reads %q, %v", text, got, err, want, bad)
			}
		}
		kind, err := (&jsonscan.Scanner{Text: []byte(b + "  ")}).Kind()
		want := map[string]jsonscan.Kind{"{": jsonscan.Object, "[": jsonscan.Array, `"`: jsonscan.String,
			"t": jsonscan.Bool, "f": jsonscan.Bool, "n": jsonscan.Null, "-": jsonscan.Number}[b]
		if c >= '0' && c <= '9' {
			want = jsonscan.Number
		}
		if kind != want || (err == nil) != (want != jsonscan.None) {
			t.Errorf("%q begins %v, %v; want %v", b, kind, err, want)
		}
	}
	for text, want := range map[string]int{"": -1, "abc": -1, "é€😀": -1, "\xff": 0, "a\xc3": 1, "é\xe2\x82": 2,
		"ab€\xed\xa0\x80": 5, "\ufffd": -1, "\ufffd\x80": 3} {
		if got := jsonscan.InvalidUTF8([]byte(text)); got != want {
			t.Errorf("%q: byte %d is not UTF-8, want %d", text, got, want)
		}
	}
}

func TestScannerDecodesStrings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.String().Draw(t, "string")
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := (&jsonscan.Scanner{Text: text}).Str()
		if err != nil || string(got) != want {
			t.Fatalf("%s reads as %q, %v; want %q", text, got, err, want)
		}
	})
	for _, text := range []string{`"\ud83d"`, `"\ude00"`, `"\ud83d\u0041"`, `"\ud83dxxxxxx"`, `"\ud83d\uzzzz"`} {
		if got, err := (&jsonscan.Scanner{Text: []byte(text)}).Str(); err == nil {
			t.Errorf("half a surrogate pair %s reads as %q", text, got)
		}
	}
}

// readString returns the JSON string in data; any further data is an error.
func readString(data []byte) (string, error) {
	r := jsonscan.Scanner{Text: data}
	s, err := r.Str()
	if err != nil {
		return "", err
	}
	return string(s), r.End("the end")
}

func FuzzJSONStrings(f *testing.F) {
	for _, s := range []string{`""`, `"a\"\\\/\b\f\n\r\t"`, `"\u0120\ud83d\ude80"`, `"\ud83d"`, `"\ud83d\u0041"`,
		"\"\xff\"", "\"\n\"", `"a`, ` "x" `, `"\x"`, `"\u12"`, `"\u+123"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !utf8.Valid(data) {
			if at := jsonscan.InvalidUTF8(data); at < 0 || !utf8.Valid(data[:at]) {
				t.Fatalf("%q: the first byte that is not UTF-8 is reported as %d", data, at)
			}
			return
		}
		got, err := readString(data)
		if err != nil {
			return
		}
		var want string
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatalf("%q: read %q, which encoding/json refuses: %v", data, got, err)
		}
		if got != want {
			t.Fatalf("%q: read %q, encoding/json reads %q", data, got, want)
		}
	})
}

func TestRawValuesEndWhereTheyShould(t *testing.T) {
	for text, want := range map[string]string{
		`1,2`: `1`, `"a,b"]`: `"a,b"`, `{"a":[1,{}],"b":"}"} ,`: `{"a":[1,{}],"b":"}"}`, `[[],"]\""]}`: `[[],"]\""]`,
		`true}`: `true`,
	} {
		r := jsonscan.Scanner{Text: []byte(text)}
		if got, err := r.Raw(); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{``, `,`, `[`, `"a`, `{"a":"\`} {
		r := jsonscan.Scanner{Text: []byte(text)}
		if got, err := r.Raw(); err == nil {
			t.Errorf("%s: %s, want an error", text, got)
		}
	}
}

// A string that ends early, at any byte of its escapes, is an error.
func TestStringsThatEndEarlyAreRefused(t *testing.T) {
	for _, text := range []string{`"a\n\"b"`, `"\u00e9x"`, `"\ud83d\ude00"`, `"\ud83d\n"`, `"\ud83d\\"`} {
		for n := range len(text) {
			if got, err := (&jsonscan.Scanner{Text: []byte(text[:n])}).Str(); err == nil {
				t.Errorf("%s reads as %q", text[:n], got)
			}
			s := jsonscan.Scanner{Text: []byte(text[:n]), Lone: func(int) {}}
			if got, err := s.Str(); err == nil {
				t.Errorf("%s reads as %q if half a surrogate pair is permitted", text[:n], got)
			}
		}
	}
}

// An error contains the offset of the mistake and the name of the text.
func TestErrorsHaveAPlace(t *testing.T) {
	for _, test := range []struct {
		text   string
		pos    int
		reason string
	}{
		{`{"a":1`, 6, `expected ',' or '}', found the end of the page`},
		{`{"a":[1,]}`, 8, `no value follows the comma, found ']'`},
		{`{"` + strings.Repeat("n", 99) + `" 1}`, 103,
			`expected ':' after the name "` + strings.Repeat("n", 48) + `...", found '1'`},
		{`["\ud83d"]`, 2, "the escape is half of a surrogate pair, which UTF-8 text cannot hold"},
		{`[[[[1]]]]`, 3, "values are nested deeper than 3 levels"},
		{`{x:1}`, 1, "expected a name in double quotes, found 'x'"},
		{`{"a":1A}`, 6, "expected the number to end, found 'A'"},
		{`{"a":1Z}`, 6, "expected the number to end, found 'Z'"},
		{`{"a":01}`, 6, "expected the number to end, found '1'"},
		{"[1", 2, "expected ',' or ']', found the end of the page"},
		{`["\`, 3, "expected an escape character after the backslash, found the end of the page"},
		{`["a`, 3, "the page ends inside a string"},
		{"[\"\x01\"]", 2, "control character 0x01 inside a string must be written as an escape"},
		{`["\u12`, 4, "expected four hexadecimal digits, found the end of the page"},
		{`["\u12x4"]`, 4, `expected four hexadecimal digits, found "12x4"`},
		{`{"` + strings.Repeat("n", 48) + `" 1}`, 52,
			`expected ':' after the name "` + strings.Repeat("n", 48) + `", found '1'`},
		{`nan`, 0, "expected true, false or null, found 'n'"},
		{`NaN`, 0, "NaN is not a JSON number"},
		{`-Infinity`, 1, "expected a digit, found 'I'"},
	} {
		s := jsonscan.Scanner{Text: []byte(test.text), Name: "page", MaxDepth: 3}
		var syntax *jsonscan.SyntaxError
		if err := s.Skip(); !errors.As(err, &syntax) || syntax.Pos != test.pos || syntax.Reason != test.reason {
			t.Errorf("%s: %v, want %q at %d", test.text, err, test.reason, test.pos)
		}
	}
}

// With Lone, half a surrogate pair is reported and read as U+FFFD.
func TestLoneSurrogates(t *testing.T) {
	at := -1
	s := jsonscan.Scanner{Text: []byte(`"ab\ude00c"`), Lone: func(pos int) { at = pos }}
	if got, err := s.Str(); err != nil || string(got) != "ab\ufffdc" || at != 3 {
		t.Errorf("%q, %v, reported at %d", got, err, at)
	}
}
