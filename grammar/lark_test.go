package grammar

import (
	"errors"
	"regexp"
	"strings"
	"testing"
)

// patchGrammar contains the constructs that the grammars of coding agents use: rules, terminals, imports, aliases and
// comments.
const patchGrammar = `start: begin_patch hunk+ end_patch
begin_patch: "*** Begin" LF
end_patch: "*** End" LF?

hunk: add | remove // two kinds
add: "*** Add: " filename LF add_line+
remove: "*** Remove: " filename LF
filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

%import common.LF
`

func TestLarkGrammarsAsPatterns(t *testing.T) {
	for _, c := range []struct {
		name, source string
		yes, no      []string
	}{
		{"a patch", patchGrammar,
			[]string{"*** Begin\n*** Add: a.go\n+x\n+\n*** End",
				"*** Begin\n*** Remove: b/c\n*** Remove: d\n*** End\n"},
			[]string{"*** Begin\n*** End", "*** Begin\n*** Add: a.go\n*** End", "*** Begin\n*** Add: a\nx\n*** End"}},
		{"repetition", `start: "a"~2 "b"~1..3 ["c"] ("d" | "e")*`, []string{"aab", "aabbbcdede"},
			[]string{"ab", "aa", "aabbbb"}},
		{"ranges and flags", `start: "0".."9"+ "x"i /[y\/]/i`, []string{"12Xy", "0x/", "7xY"}, []string{"xy", "1y"}},
		{"several lines", "start: A\n     | B\nA: \"a\\n\"\n!?B.2: \"b\"", []string{"a\n", "b"}, []string{"a", "ab"}},
	} {
		pattern, err := LarkPattern(c.source)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if _, err := compilePattern("^(?:"+pattern+")$", &effort{left: maxEffort}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		whole := regexp.MustCompile(`\A(?:` + pattern + `)\z`)
		for _, text := range c.yes {
			if !whole.MatchString(text) {
				t.Errorf("%s: %q does not match %s", c.name, text, pattern)
			}
		}
		for _, text := range c.no {
			if whole.MatchString(text) {
				t.Errorf("%s: %q matches %s", c.name, text, pattern)
			}
		}
	}
}

func TestLarkGrammarsThatCannotBeEnforced(t *testing.T) {
	for source, want := range map[string]string{
		"start: \"(\" start \")\" | \"x\"":    "rule start refers to itself",
		"start: a\na: b\nb: a":                "refers to itself",
		"start: missing":                      "missing is not defined",
		"rule: \"x\"":                         "start is not defined",
		"start: \"x\"\n%ignore WS":            `"%ignore WS" is not supported`,
		"start: \"x\"\n%import python.STRING": "is not supported",
		"start: list{\"x\"}":                  "templates",
		"start: \"x":                          "is not closed",
		"start: (\"x\"":                       "is not closed",
		"start: /x/x":                         `the flags "x"`,
		"start: \"a\"\nstart: \"b\"":          "defined twice",
		"nonsense":                            "is not a rule",
		"start: \"a\" )":                      `syntax error at ")"`,
		"start: " + strings.Repeat(`"long enough to be too much"~9 `, 4000): "as a regular expression the rules take",
	} {
		_, err := LarkPattern(source)
		if !errors.Is(err, ErrLark) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", source, err, want)
		}
	}
}

func FuzzLarkPattern(f *testing.F) {
	for _, seed := range []string{patchGrammar, "start: a\na: b\nb: a", "start: \"x\"~2..", "start: /[/",
		"start: \"a\"..\"z\" -> x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		pattern, err := LarkPattern(source)
		if err != nil {
			if !errors.Is(err, ErrLark) {
				t.Errorf("%v is another kind of error", err)
			}
			return
		}
		if len(pattern) > MaxPatternBytes+len("(?:)") {
			t.Errorf("a pattern of %d bytes", len(pattern))
		}
	})
}
