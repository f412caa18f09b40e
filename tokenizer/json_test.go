package tokenizer

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"sparrow/internal/jsonscan"
)

func TestEveryJSONStringIsReadBack(t *testing.T) {
	for _, s := range append(tricky, "\\", "/", "\b\f", "<>&", "Ġthe") {
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var want string
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		s := jsonscan.Scanner{Text: data}
		if got, err := s.Str(); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", data, got, err, want)
		}
	}
}

func TestTokenIDs(t *testing.T) {
	for text, want := range map[string]int32{"0": 0, " 7": 7, "128814}": 128814} {
		s := jsonscan.Scanner{Text: []byte(text)}
		if got, err := readID(&s); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]string{"-1": "a token id", "1.5": "a token id", "1e3": "a token id",
		`"1"`: "a number", "01": "the number to end", "99999999999999999999": "the token id is above"} {
		s := jsonscan.Scanner{Text: []byte(text)}
		if got, err := readID(&s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d, %v, want an error about %s", text, got, err, want)
		}
	}
}

// A tokenizer file with a JSON syntax error is refused as malformed, and the error contains the offset.
func TestSyntaxErrorsHaveAPlace(t *testing.T) {
	for text, want := range map[string]string{
		`{"model": {"vocab": {"a": 0,}}}`:                "at byte 28: no value follows the comma, found '}'",
		"{\"x\": \"\xff\"}":                              "byte 7 (0xff) is not valid UTF-8",
		`{"model": {"vocab": {"a": 0}, "merges": []}} x`: "at byte 45: expected the end of the file, found 'x'",
	} {
		if _, err := parseFile([]byte(text)); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
