package weight

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// valid says whether the text is one JSON value to the scanner.
func valid(text string) bool {
	s := &scanner{text: []byte(text)}
	return s.skip(0) == nil && s.next() == 0 && s.pos == len(text)
}

func TestScannerAgreesWithTheStandardDecoder(t *testing.T) {
	for _, text := range []string{
		``, ` `, `0`, `-0`, `01`, `-`, `+1`, `1.`, `.5`, `1.5`, `1e`, `1e+`, `1E-7`, `1.5e10`, `--1`, `1 2`, `1x`,
		`true`, `tru`, `truex`, `false`, `null`, `nul`, `True`,
		`""`, `"a`, `"a\`, `"\"`, `"\u12"`, `"\u12g4"`, `"\uABcd"`, `"\u000`, `"\ud83d\ude00"`, "\"a\tb\"", "\"\\n\tb\"", `"\x"`, `"\`, `"\n`,
		`[]`, `[`, `]`, `[,]`, `[1,]`, `[1 2]`, `[1,[2,[]]]`, `[1}`,
		`{}`, `{`, `{,}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":1 "b":2}`, `{1:2}`, `{"a":{"b":[]}}`, `{"a`, `{"a\q":1}`,
		"\x00", "1\x00", "\ufeff1",
	} {
		if got, want := valid(text), json.Valid([]byte(text)); got != want {
			t.Errorf("%q: scanner %v, standard decoder %v", text, got, want)
		}
	}
	pieces := []string{`{`, `}`, `[`, `]`, `,`, `:`, `"`, `\`, `u00e9`, `a`, `"k":`, `"s"`, `0`, `1`, `-`, `.`, `e`, `+`, `true`, `null`, ` `, "\n"}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 12).Draw(t, "pieces"), "")
		if got, want := valid(text), json.Valid([]byte(text)); got != want {
			t.Fatalf("%q: scanner %v, standard decoder %v", text, got, want)
		}
	})
}

func TestScannerDecodesStrings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.String().Draw(t, "string")
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := (&scanner{text: text}).str()
		if err != nil || string(got) != want {
			t.Fatalf("%s reads as %q, %v; want %q", text, got, err, want)
		}
	})
	for _, text := range []string{`"\ud83d"`, `"\ude00"`, `"\ud83d\u0041"`, `"\ud83dxxxxxx"`, `"\ud83d\uzzzz"`} {
		if got, err := (&scanner{text: []byte(text)}).str(); err == nil {
			t.Errorf("half a surrogate pair %s reads as %q", text, got)
		}
	}
}

func TestCount(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "7": 7, "9223372036854775807": 1<<63 - 1} {
		if got, ok := count([]byte(text)); !ok || got != want {
			t.Errorf("%s counts as %d, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "-1", "-0", "1.0", "1e3", "9223372036854775808", "92233720368547758070", "99999999999999999999999"} {
		if got, ok := count([]byte(text)); ok {
			t.Errorf("%q counts as %d", text, got)
		}
	}
}

func TestHostileTextIsCutShortInErrors(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for name, header := range map[string]string{
		"a name":            `{"` + long + `":{}}`,
		"a dtype":           `{"w":{"dtype":"` + long + `","shape":[],"data_offsets":[0,1]}}`,
		"a dimension":       `{"w":{"dtype":"U8","shape":[` + strings.Repeat("9", 5000) + `],"data_offsets":[0,1]}}`,
		"many dimensions":   `{"w":{"dtype":"U8","shape":[1` + strings.Repeat(",1", 2500) + `],"data_offsets":[0,2]}}`,
		"a metadata key":    `{"__metadata__":{"` + long + `":"","` + long + `":""}}`,
		"an overlapped one": `{"` + long + `":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`,
	} {
		_, err := FromBytes("bad", fileBytes(header, 2))
		if err == nil || len(err.Error()) > 1500 {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestIndexOverTheLimitIsNotRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, indexName)
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, maxHeaderBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "index of 100000001 bytes is over the limit") {
		t.Errorf("an index of 100 MB: %v", err)
	}
}

func TestElements(t *testing.T) {
	for _, tt := range []struct {
		shape []int
		want  int
	}{{nil, 1}, {[]int{5}, 5}, {[]int{2, 3, 4}, 24}, {[]int{2, 0, 4}, 0}} {
		if got := (&Tensor{Shape: tt.shape}).Elements(); got != tt.want {
			t.Errorf("%v has %d elements, want %d", tt.shape, got, tt.want)
		}
	}
}
