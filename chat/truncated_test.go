package chat

import (
	"encoding/json"
	"strings"
	"testing"

	"sparrow/internal/jinja"
)

func TestTruncatedArgumentsAreCompleted(t *testing.T) {
	for _, c := range []struct{ cut, want string }{
		{`{`, `{}`},
		{`{"ci`, `{}`},
		{`{"city"`, `{}`},
		{`{"city":`, `{}`},
		{`{"city": "`, `{"city": ""}`},
		{`{"city": "Par`, `{"city": "Par"}`},
		{`{"city": "a\`, `{"city": "a"}`},
		{`{"city": "a\u00e`, `{"city": "a"}`},
		{`{"city": "a\"b`, `{"city": "a\"b"}`},
		{`{"city": "Paris"`, `{"city": "Paris"}`},
		{`{"city": "Paris", `, `{"city": "Paris"}`},
		{`{"city": "Paris", "days": 1`, `{"city": "Paris"}`},
		{`{"days": 12, "dry": tru`, `{"days": 12}`},
		{`{"a": [1, {"b": ["x", "y`, `{"a": [1, {"b": ["x", "y"]}]}`},
		{`{"a": [1, [2], 3`, `{"a": [1, [2]]}`},
	} {
		got, err := replayedArguments(c.cut)
		if err != nil {
			t.Errorf("%s: %v", c.cut, err)
			continue
		}
		if text, err := jinja.JSON(got); err != nil || text != c.want {
			t.Errorf("%s became %s (%v), want %s", c.cut, text, err, c.want)
		}
	}
	for _, bad := range []string{`[`, `"x`, `{]`, `{"a": nonsense`, `{"a" "b`, `{"a": 1}}`, `x`, `{"a": "b" "c`, `{,`} {
		if got, err := replayedArguments(bad); err == nil {
			t.Errorf("%s was taken as %v", bad, got)
		}
	}
}

func FuzzTruncatedArguments(f *testing.F) {
	f.Add(`{"a": [1, {"b": ["x\u00e9", "y"]}], "c": null}`)
	f.Add(`{"日本": "\ud83d\ude00", "n": -1.5e3}`)
	f.Add(`{"a":{}}]`)
	f.Fuzz(func(t *testing.T, text string) {
		valid := json.Valid([]byte(text)) && strings.HasPrefix(strings.TrimSpace(text), "{")
		for cut := range text {
			_, err := replayedArguments(text[:cut])
			if valid && err != nil && strings.HasPrefix(strings.TrimSpace(text[:cut]), "{") {
				t.Errorf("%q: %v", text[:cut], err)
			}
		}
	})
}
