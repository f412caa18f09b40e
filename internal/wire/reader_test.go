package wire

import (
	"encoding/json"
	"sparrow/internal/jsonscan"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// skipAll returns a reader that has checked the syntax of a JSON text.
func skipAll(text string) *Reader {
	c := NewReader([]byte(text))
	c.Skip()
	c.Finish()
	return c
}

func TestMalformedJSONIsReportedWithItsPlace(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"empty body", ``, "byte 0: expected a value, found the end of the body"},
		{"only white space", " \n", "byte 2: expected a value"},
		{"unfinished object", `{"a":1`, "byte 6: expected ',' or '}', found the end"},
		{"unfinished array", `[1`, "byte 2: expected ',' or ']', found the end"},
		{"unfinished empty object", `{`, "byte 1"},
		{"unfinished string", `"abc`, "byte 4: the body ends inside a string"},
		{"unfinished escape", `"abc\`, "byte 5"},
		{"unfinished unicode escape", `"\u12`, "four hexadecimal digits"},
		{"wrong unicode escape", `"\u12g4"`, `four hexadecimal digits, found "12g4"`},
		{"signed unicode escape", `"\u+123"`, "four hexadecimal digits"},
		{"unknown escape", `"\x41"`, "byte 2: expected an escape character after the backslash, found 'x'"},
		{"raw line break in a string", "\"a\nb\"", "byte 2: control character 0x0a"},
		{"name without quotes", `{a:1}`, "byte 1: expected a name in double quotes, found 'a'"},
		{"name in single quotes", `{'a':1}`, `found '\''`},
		{"missing colon", `{"model" 1}`, `byte 9: expected ':' after the name "model", found '1'`},
		{"missing value", `{"a":}`, "byte 5: expected a value, found '}'"},
		{"missing comma", `[1 2]`, "byte 3: expected ',' or ']', found '2'"},
		{"trailing comma in an object", `{"a":1,}`, "byte 7: no value follows the comma"},
		{"trailing comma in an array", `[1,]`, "byte 3: no value follows the comma"},
		{"leading comma", `[,1]`, "byte 1: expected a value, found ','"},
		{"second value", `{} {}`, "byte 3: expected the end of the body, found '{'"},
		{"byte order mark", "\ufeff{}", "byte 0"},
		{"comment", "{/* x */}", "byte 1: expected a name"},
		{"NaN", `{"temperature":NaN}`, "byte 15: NaN is not a JSON number"},
		{"Infinity", `[Infinity]`, "byte 1: Infinity is not a JSON number"},
		{"minus Infinity", `[-Infinity]`, "byte 2: expected a digit, found 'I'"},
		{"leading zero", `[01]`, "byte 2: expected the number to end, found '1'"},
		{"leading plus", `[+1]`, "byte 1: expected a value, found '+'"},
		{"no digit after the point", `[1.]`, "after the decimal point"},
		{"no digit before the point", `[.5]`, "byte 1"},
		{"no digit in the exponent", `[1e+]`, "in the exponent"},
		{"hexadecimal", `[0x10]`, "byte 2"},
		{"half a word", `[tru]`, "expected true, false or null"},
		{"too many letters", `[nulll]`, "byte 5"},
		{"zero byte", "[\x00]", "byte 1"},
		{"zero byte after the bracket", "{\x00", "byte 1"},
		{"invalid UTF-8 in a string", "{\"a\":\"x\xff\"}", "byte 7 of the body (0xff) is not valid UTF-8"},
		{"truncated UTF-8 at the end", "\"\xe2\x82", "byte 1 of the body (0xe2) is not valid UTF-8"},
		{"encoded surrogate", "\"\xed\xa0\x80\"", "byte 1 of the body (0xed) is not valid UTF-8"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := skipAll(test.text)
			if c.malformed == nil {
				t.Fatalf("%q was accepted", test.text)
			}
			if got := c.malformed.Message; !strings.Contains(got, test.want) {
				t.Errorf("message %q does not say %q", got, test.want)
			}
			if c.malformed.Code != CodeInvalidJSON || c.malformed.Status() != 400 {
				t.Errorf("code %s, status %d", c.malformed.Code, c.malformed.Status())
			}
		})
	}
}

func TestNestingIsLimited(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	if c := skipAll(nested(MaxDepth)); c.malformed != nil {
		t.Errorf("%d levels: %v", MaxDepth, c.malformed)
	}
	for _, text := range []string{nested(MaxDepth + 1), strings.Repeat(`{"a":`, MaxDepth+1),
		strings.Repeat("[", 1_000_000)} {
		c := skipAll(text)
		if c.malformed == nil || !strings.Contains(c.malformed.Message, "nested deeper than 128 levels") {
			t.Errorf("%.20s...: %v", text, c.malformed)
		}
	}
	// The depth decreases after a value ends, so a long array of shallow values is accepted.
	if c := skipAll("[" + strings.Repeat("[[{}]],", 1000) + "1]"); c.malformed != nil {
		t.Error(c.malformed)
	}
}

func TestPathsNameTheValue(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{`{"a":{"b":[0,{"c":NaN}]}}`, "a.b[1].c"},
		{`[[],[[NaN]]]`, "[1][0][0]"},
		{`{"odd name":{"":NaN}}`, `["odd name"][""]`},
		{`{"` + strings.Repeat("x", 100) + `":NaN}`, `["` + strings.Repeat("x", 48) + `..."]`},
	} {
		if c := skipAll(test.text); c.malformed == nil || c.malformed.Param != test.want {
			t.Errorf("%s: %+v, want param %s", test.text, c.malformed, test.want)
		}
	}
	deep := skipAll(strings.Repeat(`{"`+strings.Repeat("y", 60)+`":`, 100) + "NaN")
	if n := len(deep.malformed.Param); n > 400 {
		t.Errorf("the path of a deep value has %d bytes", n)
	}
}

func TestDuplicateNamesAreFoundInObjectsOfAnySize(t *testing.T) {
	for _, n := range []int{1, 2, 15, 16, 17, 18, 100} {
		var b strings.Builder
		for i := range n {
			b.WriteString(`"k` + strings.Repeat("i", i) + `":1,`)
		}
		if c := skipAll("{" + b.String() + `"last":1}`); c.err() != nil {
			t.Errorf("%d different names: %v", n, c.err())
		}
		c := skipAll("{" + b.String() + `"k":2}`)
		if c.err() == nil || c.err().Code != CodeDuplicate || c.err().Param != "k" {
			t.Errorf("%d names, the first repeated: %v", n, c.err())
		}
	}
	// A name that is written with an escape is still found as a duplicate.
	if c := skipAll(`{"stop":1,"s\u0074op":2}`); c.err() == nil || c.err().Param != "stop" {
		t.Errorf("escaped duplicate: %v", c.err())
	}
}

func TestHalfASurrogatePairIsReported(t *testing.T) {
	for _, text := range []string{`"\ud83d"`, `"\ud83dx"`, `"\ude00"`, `"\ud83d\n"`, `"\ud83d\u0041"`} {
		c := skipAll(text)
		if err := c.err(); err == nil || err.Code != CodeInvalidValue || !strings.Contains(err.Message, "surrogate") {
			t.Errorf("%s: %v", text, err)
		}
	}
	c := NewReader([]byte(`"\ud83d\ude00"`))
	if got, ok := c.Str(); !ok || got != "😀" || c.Finish() != nil {
		t.Errorf("pair: %q, %v", got, c.err())
	}
}

// sameSyntax checks that this package and encoding/json both refuse a text, or both return the same value.
func sameSyntax(t interface{ Fatalf(string, ...any) }, text string) {
	c := skipAll(text)
	deep := c.malformed != nil && strings.Contains(c.malformed.Message, "nested deeper")
	if want := json.Valid([]byte(text)) && utf8.ValidString(text); (c.malformed == nil) != want && !deep {
		t.Fatalf("%q: malformed is %v, encoding/json says valid=%v", text, c.malformed, want)
	}
	var s string
	if c = NewReader([]byte(text)); c.Shape() == jsonscan.String && json.Unmarshal([]byte(text), &s) == nil &&
		c.malformed == nil {
		if got, _ := c.Str(); got != s && c.err() == nil {
			t.Fatalf("%q: read %q, encoding/json %q", text, got, s)
		}
	}
	var f float64
	if c = NewReader([]byte(text)); c.Shape() == jsonscan.Number && c.malformed == nil {
		err := json.Unmarshal([]byte(text), &f)
		if got, ok := c.Float(); c.Finish() == nil && (!ok || err != nil || got != f) {
			t.Fatalf("%q: read %v, encoding/json %v, %v", text, got, f, err)
		}
	}
}

func TestSyntaxAgreesWithEncodingJSON(t *testing.T) {
	piece := rapid.SampledFrom([]string{
		"{", "}", "[", "]", ",", ":", `"`, `"a"`, `"b":`, "1", "-", "0", ".5", "e9", "E-2", "true", "false", "null",
		"nul", " ", "\n", `\`, `\u00e9`, `\ud83d\ude00`, `"\n"`, "é", "\x01", "\xff", "[]", "{}", "1e999", "-0.0",
	})
	rapid.Check(t, func(t *rapid.T) {
		sameSyntax(t, strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(t, "pieces"), ""))
	})
}

func FuzzSyntax(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.5e-3,"x\u00e9\n",null,true]}`, `"\ud800"`, `[[[`, `-0`, `1e400`, "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) { sameSyntax(t, text) })
}

func TestNearestNames(t *testing.T) {
	known := Fields[struct{}]{"functions": {Refused: true}}
	for _, name := range []string{"max_tokens", "response_format", "stop", "stream", "temperature", "tool_choice",
		"tools", "top_p"} {
		known[name] = Field[struct{}]{}
	}
	for given, want := range map[string]string{
		"temprature":            "temperature",
		"Temperature":           "temperature",
		"maxTokens":             "max_tokens",
		"max_token":             "max_tokens",
		"stop_sequences":        "",
		"sotp":                  "stop",
		"streem":                "stream",
		"tool_choise":           "tool_choice",
		"response_fromat":       "response_format",
		"x":                     "",
		"completely_unlike":     "",
		"function":              "", // functions exists only to be refused
		strings.Repeat("n", 99): "",
	} {
		if got := Nearest(given, known.names()); got != want {
			t.Errorf("%s: nearest is %q, want %q", given, got, want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"abc", "abd", 1}, {"kitten", "sitting", 3},
		{"ab", "ba", 1}, {"abcd", "badc", 2}} {
		if got := editDistance(test.a, test.b, 9); got != test.want {
			t.Errorf("%s, %s: %d, want %d", test.a, test.b, got, test.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.StringMatching("[ab_]{0,6}").Draw(t, "a"), rapid.StringMatching("[ab_]{0,6}").Draw(t, "b")
		d := editDistance(a, b, 20)
		if d != editDistance(b, a, 20) || (d == 0) != (a == b) || d > max(len(a), len(b)) {
			t.Fatalf("%s, %s: %d", a, b, d)
		}
	})
}
