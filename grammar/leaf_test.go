package grammar

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// run reports whether a leaf accepts a text. The empty text is not accepted.
func run(l leaf, text string) (accepted bool) {
	q := l.start()
	for i := range len(text) {
		next, ok := l.step(q, text[i])
		if !ok {
			return false
		}
		q = next
	}
	return text != "" && l.accepts(q)
}

// TestNoLeafLeadsIntoADeadEnd follows random bytes through leaves: every state that is not final has a next byte, and
// open reports exactly the states that have a next byte.
func TestNoLeafLeadsIntoADeadEnd(t *testing.T) {
	var leaves []leaf
	g := newGrammar(tokensOf(t))
	leaves = append(leaves, g.leaves...)
	leaves = append(leaves, freeNumber{}, &stringLeaf{0, noLimit}, &stringLeaf{2, 3},
		newFreeKey([]string{"a", "ab", `x"`, "é"}), newFreeKey(nil),
		newLiterals([]literal{{[]byte("ab"), 0}, {[]byte("abc"), 1}, {[]byte("x"), 2}}))
	for _, p := range []string{"^[a-c]+$", "^(é|😀|\n|\"|\x01){2}$", "^[\\x00-\\x1f]$", "b", "^$",
		formats["date-time"].patterns[0],
		formats["ipv6"].patterns[0]} {
		d, err := compilePattern(p, &effort{left: maxEffort})
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, &patternLeaf{dfa: d})
	}
	for _, r := range [][3]int64{{-15, 119, 1}, {1995, 2026, 1}, {0, 1000, 7}, {-100, -3, 25}} {
		leaves = append(leaves, newNumberRange(big.NewInt(r[0]), big.NewInt(r[1]), 0, 18, uint64(r[2])),
			newNumberRange(big.NewInt(r[0]), big.NewInt(r[1]), 2, 18, uint64(r[2])))
	}
	rapid.Check(t, func(t *rapid.T) {
		l := rapid.SampledFrom(leaves).Draw(t, "leaf")
		q := l.start()
		if l.accepts(q) {
			t.Fatalf("%T accepts the empty text", l)
		}
		var text []byte
		for range 40 {
			var next []byte
			for b := range 256 {
				if _, ok := l.step(q, byte(b)); ok {
					next = append(next, byte(b))
				}
			}
			if open := len(next) > 0; open != l.open(q) {
				t.Fatalf("%T after %q: open says %v, %d bytes lead on", l, text, l.open(q), len(next))
			}
			if len(next) == 0 {
				if !l.accepts(q) {
					t.Fatalf("%T is stuck after %q", l, text)
				}
				return
			}
			b := rapid.SampledFrom(next).Draw(t, "byte")
			q, _ = l.step(q, b)
			text = append(text, b)
		}
	})
}

func TestNumberRangesAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := rapid.Int64Range(-1200, 1200).Draw(t, "lo")
		hi := lo + rapid.Int64Range(0, 1500).Draw(t, "span")
		fraction := rapid.IntRange(0, 2).Draw(t, "fraction")
		step := rapid.Int64Range(1, 40).Draw(t, "step")
		r := newNumberRange(big.NewInt(lo), big.NewInt(hi), fraction, 4, uint64(step))
		scale := []int64{1, 10, 100}[fraction]
		any := false
		for n := int64(-2800); n <= 2800; n++ {
			sign, a := "", n
			if n < 0 {
				sign, a = "-", -n
			}
			text := sign + strconv.FormatInt(a/scale, 10)
			if fraction > 0 {
				text += fmt.Sprintf(".%0*d", fraction, a%scale)
			}
			want := n >= lo && n <= hi && n%step == 0
			any = any || want
			if r == nil {
				continue
			}
			if got := run(r, text); got != want {
				t.Fatalf("[%d, %d] by %d, %d decimals: %s: got %v", lo, hi, step, fraction, text, got)
			}
			if short := strings.TrimSuffix(strings.TrimRight(text, "0"), "."); fraction > 0 && a >= scale &&
				run(r, short) != want {
				t.Fatalf("[%d, %d] by %d, %d decimals: %s: got %v", lo, hi, step, fraction, short, !want)
			}
		}
		if (r != nil) != any {
			t.Fatalf("[%d, %d] by %d: numbers exist: %v, found: %v", lo, hi, step, any, r != nil)
		}
	})
}

// TestPatternsAgreeWithRegexp checks that patterns match the same random strings as the regexp package does.
func TestPatternsAgreeWithRegexp(t *testing.T) {
	piece := rapid.SampledFrom([]string{"a", "b", "[ab]", "[^a]", "é", "(a|bé)", "a*", "b+", "a?", "(ab){2,3}",
		"(a|b)*", "[é-ï]", "^", "$", "|", "(^a|b$)", "a{0,2}", "(?i:B)"})
	rapid.Check(t, func(t *rapid.T) {
		pattern := strings.Join(rapid.SliceOfN(piece, 0, 6).Draw(t, "pattern"), "")
		want, err := regexp.Compile(pattern)
		if err != nil {
			t.Skip(err)
		}
		d, err := compilePattern(pattern, &effort{left: maxEffort})
		if err != nil {
			t.Fatalf("%q: %v", pattern, err)
		}
		least := rapid.Uint64Range(0, 3).Draw(t, "least")
		most := least + rapid.Uint64Range(0, 4).Draw(t, "more")
		var limited *runeDFA
		if d != nil {
			if limited, err = d.limit(least, most, &effort{left: maxEffort}); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			s := rapid.StringOfN(rapid.SampledFrom([]rune("abéîB")), 0, 8, -1).Draw(t, "s")
			match := want.MatchString(s)
			if got := d != nil && d.matches(s); got != match {
				t.Fatalf("%q on %q: got %v, want %v", pattern, s, got, match)
			}
			n := uint64(utf8.RuneCountInString(s))
			match = match && n >= least && n <= most
			if got := limited != nil && limited.matches(s); got != match {
				t.Fatalf("%q on %q with %d to %d characters: got %v", pattern, s, least, most, got)
			}
			if got := limited != nil && run(&patternLeaf{dfa: limited}, string(appendString(nil, s))); got != match {
				t.Fatalf("%q on %q as a leaf: got %v", pattern, s, got)
			}
		}
	})
}

func TestIntersectionOfPatterns(t *testing.T) {
	g := compile(t, tokensOf(t),
		`{"type":"string","pattern":"^[a-m]+$","allOf":[{"pattern":"^[g-z]+$"},{"pattern":"h"}]}`)
	for doc, want := range map[string]bool{`"h"`: true, `"ghm"`: true, `"g"`: false, `"ah"`: false, `"hz"`: false} {
		s := g.Start()
		if got := s.AcceptString(doc) == nil && s.Done(); got != want {
			t.Errorf("%s: %v", doc, got)
		}
	}
}

// TestStringsAreWhatJSONSays checks that the leaf of strings accepts the same bytes as encoding/json, except for
// invalid UTF-8 and lone surrogates, which only encoding/json accepts and replaces.
func TestStringsAreWhatJSONSays(t *testing.T) {
	parts := rapid.SampledFrom([]string{"a", `\n`, `\u00e9`, `\ud83d\ude00`, `\ud83d`, `\ude00`, `\uD7FF`, `\uE000`,
		"é", "\xc3", "\xa9", "\xe0\xa0\x80", "\xe0\x9f\xbf", "\xed\x9f\xbf", "\xed\xa0\x80", "\xf0\x90\x80\x80",
		"\xf0\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\"", `\`, `\x`, "\x1f", "\x7f"})
	rapid.Check(t, func(t *rapid.T) {
		text := `"` + strings.Join(rapid.SliceOfN(parts, 0, 5).Draw(t, "parts"), "") + `"`
		var s string
		valid := json.Unmarshal([]byte(text), &s) == nil && utf8.ValidString(text) &&
			!strings.ContainsRune(s, utf8.RuneError)
		if got := run(&stringLeaf{0, noLimit}, text); got != valid {
			t.Fatalf("%q: got %v, want %v", text, got, valid)
		}
		if !valid {
			return
		}
		n := uint64(utf8.RuneCountInString(s))
		if !run(&stringLeaf{n, n}, text) || run(&stringLeaf{n + 1, noLimit}, text) ||
			n > 0 && run(&stringLeaf{0, n - 1}, text) {
			t.Fatalf("%q: not counted as %d characters", text, n)
		}
		canonical := appendString(nil, s)
		var back string
		if err := json.Unmarshal(canonical, &back); err != nil || back != s {
			t.Fatalf("%q was written as %q", s, canonical)
		}
		if got := run(newFreeKey(nil), string(canonical)+": "); !got {
			t.Fatalf("%q is not a name", canonical)
		}
		if got := run(newFreeKey([]string{"zz", s, s + "x"}), string(canonical)+":"); got {
			t.Fatalf("%q is taken but was accepted", canonical)
		}
	})
}
