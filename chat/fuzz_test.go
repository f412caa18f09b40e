package chat

import (
	"fmt"
	"testing"
)

// FuzzParsers parses a reply as a whole and split into two pieces: no parser may panic, and both results must be equal.
func FuzzParsers(f *testing.F) {
	for _, c := range parserCases {
		f.Add(c.text, len(c.text)/2, c.open)
	}
	f.Fuzz(func(t *testing.T, text string, cut int, open bool) {
		if len(text) == 0 {
			return
		}
		cut = int(uint(cut) % uint(len(text)))
		for family, makeParser := range parserMakers {
			want, wantMalformed, wantErr := feed(makeParser(toolRequest(), open), []string{text})
			got, malformed, err := feed(makeParser(toolRequest(), open), []string{text[:cut], text[cut:]})
			if fmt.Sprint(want) != fmt.Sprint(got) || malformed != wantMalformed ||
				fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Errorf("%s: %q cut at %d:\n%v %q %v\nwhole:\n%v %q %v", family, text, cut, got, malformed, err, want,
					wantMalformed, wantErr)
			}
		}
	})
}
