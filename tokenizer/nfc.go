package tokenizer

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// joiner is inserted by package norm into runs of more than 30 combining marks. Tokenizers are trained without it.
const joiner = "\u034f"

// nfc returns s in Unicode Normalization Form C. Invalid bytes are not changed.
func nfc(s string) string {
	out := norm.NFC.String(s)
	if strings.Count(out, joiner) == strings.Count(s, joiner) {
		return out
	}
	var b strings.Builder
	for len(s) > 0 {
		valid := 0
		for valid < len(s) {
			r, size := utf8.DecodeRuneInString(s[valid:])
			if r == utf8.RuneError && size == 1 {
				break
			}
			valid += size
		}
		for _, r := range compose(decompose(s[:valid])) {
			b.WriteRune(r)
		}
		if s = s[valid:]; len(s) > 0 {
			b.WriteByte(s[0])
			s = s[1:]
		}
	}
	return b.String()
}

// decompose returns the decomposed characters of a string, with combining marks in canonical order.
func decompose(s string) []rune {
	var out []rune
	for _, r := range s {
		out = append(out, []rune(norm.NFD.String(string(r)))...)
	}
	for i := 0; i < len(out); {
		j := i
		for j < len(out) && combiningClass(out[j]) != 0 {
			j++
		}
		slices.SortStableFunc(out[i:j], func(a, b rune) int {
			return cmp.Compare(combiningClass(a), combiningClass(b))
		})
		i = j + 1
	}
	return out
}

// compose composes each starter with the following characters that are not blocked. It works in place.
func compose(text []rune) []rune {
	starter, out := -1, text[:0]
	for _, r := range text {
		c := combiningClass(r)
		blocked := false
		if n := len(out); starter >= 0 && starter < n-1 {
			last := combiningClass(out[n-1])
			blocked = last == 0 || last >= c
		}
		if starter >= 0 && !blocked {
			if both := norm.NFC.String(string([]rune{out[starter], r})); utf8.RuneCountInString(both) == 1 {
				out[starter], _ = utf8.DecodeRuneInString(both)
				continue
			}
		}
		if c == 0 {
			starter = len(out)
		}
		out = append(out, r)
	}
	return out
}

// combiningClass returns the canonical combining class of a character; it is 0 for a starter.
func combiningClass(r rune) uint8 { return norm.NFC.PropertiesString(string(r)).CCC() }
