package tokenizer

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func cutWith(t *testing.T, preTokenizer, s string) []string {
	t.Helper()
	p, err := newPipeline(json.RawMessage(preTokenizer))
	if err != nil {
		t.Fatalf("%s: %v", preTokenizer, err)
	}
	var got []string
	err = p.each(new(scratch), s, func(piece string) error {
		got = append(got, piece)
		return nil
	})
	if err != nil {
		t.Fatalf("%s on %q: %v", preTokenizer, s, err)
	}
	return got
}

func TestSplitBehaviors(t *testing.T) {
	const s = "the-final--countdown"
	for _, c := range []struct {
		behavior string
		want     string // expected pieces, separated by spaces
	}{
		{"Removed", "the final countdown"},
		{"Isolated", "the - final - - countdown"},
		{"MergedWithPrevious", "the- final- - countdown"},
		{"MergedWithNext", "the -final - -countdown"},
		{"Contiguous", "the - final -- countdown"},
	} {
		for _, pattern := range []string{`{"String":"-"}`, `{"Regex":"-"}`} {
			split := `{"type":"Split","pattern":` + pattern + `,"behavior":"` + c.behavior + `","invert":false}`
			if got := strings.Join(cutWith(t, split, s), " "); got != c.want {
				t.Errorf("%s: %q, want %q", split, got, c.want)
			}
		}
	}
}

func TestSplitsInvertedAndOddOnes(t *testing.T) {
	for _, c := range []struct {
		name, split, text string
		want              []string
	}{
		{"inverted removes what does not match",
			`{"type":"Split","pattern":{"Regex":"[a-z]+"},"behavior":"Removed","invert":true}`, "ab12cd",
			[]string{"ab", "cd"}},
		{"inverted isolated is isolated",
			`{"type":"Split","pattern":{"String":"-"},"behavior":"Isolated","invert":true}`, "a-b",
			[]string{"a", "-", "b"}},
		{"a match of nothing cuts where it stands",
			`{"type":"Split","pattern":{"Regex":"(?=[A-Z])"},"behavior":"Isolated"}`, "camelCaseName",
			[]string{"camel", "Case", "Name"}},
		{"an empty string matches nowhere", `{"type":"Split","pattern":{"String":""},"behavior":"Isolated"}`,
			"ab", []string{"ab"}},
		{"match at both ends", `{"type":"Split","pattern":{"String":"-"},"behavior":"MergedWithNext"}`,
			"-a-", []string{"-a", "-"}},
		{"positions count bytes", `{"type":"Split","pattern":{"Regex":"é|\\+"},"behavior":"Isolated"}`,
			"深é度\xff+🚀", []string{"深", "é", "度\xff", "+", "🚀"}},
		{"digits one by one", `{"type":"Digits","individual_digits":true}`, "a12", []string{"a", "1", "2"}},
		{"digits together", `{"type":"Digits","individual_digits":false}`, "a1234b½", []string{"a", "1234", "b", "½"}},
		{"byte level with its own pattern", `{"type":"ByteLevel","add_prefix_space":false,"use_regex":true}`,
			"I'm  12ab!", []string{"I", "'m", " ", " 12", "ab", "!"}},
		{"byte level with a leading space", `{"type":"ByteLevel","add_prefix_space":true,"use_regex":true}`,
			"a b", []string{" a", " b"}},
		{"a leading space is given once", `{"type":"ByteLevel","add_prefix_space":true,"use_regex":false}`,
			" a", []string{" a"}},
		{"every piece gets its leading space",
			`{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},` +
				`{"type":"ByteLevel","add_prefix_space":true,"use_regex":false}]}`, "a1", []string{" a", " 1"}},
	} {
		if got := cutWith(t, c.split, c.text); !cmp.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestCatastrophicPatternIsAnErrorOfTheRequest(t *testing.T) {
	p := `(?:a?){40}a{40}(?=b)|(x+x+)+y`
	m, err := newMatcher(patternFile{Regex: &p})
	if err != nil {
		t.Fatal(err)
	}
	re := m.(regexMatcher)
	re.re.MatchTimeout = 200e6
	if _, err := re.matches(new(scratch), strings.Repeat("x", 60), nil); !errors.Is(err, ErrPattern) {
		t.Errorf("error %v, want ErrPattern", err)
	}
}
