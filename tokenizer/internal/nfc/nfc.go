// Package nfc brings text into Unicode Normalization Form C: in goes a string,
// out comes the string with every character sequence in its composed form.
// Bytes that are not UTF-8 pass unchanged.
package nfc

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// firstUnstable: no code point below takes part in any change.
const firstUnstable = 0x300

// String returns s in Normalization Form C; s itself if nothing changes it can.
func String(s string) string {
	i := strings.IndexFunc(s, func(r rune) bool { return r >= firstUnstable })
	if i < 0 {
		return s
	}
	var n normalizer
	n.run(s)
	if n.out == nil {
		return s
	}
	n.out = append(n.out, s[n.copied:]...)
	return string(n.out)
}

// normalizer is the work on one string. It leaves stretches of stable characters
// as they are and rewrites segments: a stable character followed by unstable
// ones, which might combine with it.
type normalizer struct {
	out    []byte
	copied int    // s[:copied] is in out
	seg    []char // the segment being rewritten
}

// char is a character with its combining class.
type char struct {
	r   rune
	ccc uint8
}

func (n *normalizer) run(s string) {
	t := tables()
	start := 0 // of the segment: the last stable character
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if !t.isUnstable(r) {
			start = i
			if i += size; r == utf8.RuneError && size == 1 {
				start = i // nothing combines with a broken byte
			}
			continue
		}
		n.seg = n.seg[:0]
		for _, r := range s[start:i] {
			n.seg = t.decompose(n.seg, r)
		}
		for i < len(s) {
			r, size := utf8.DecodeRuneInString(s[i:])
			if !t.isUnstable(r) {
				break
			}
			n.seg = t.decompose(n.seg, r)
			i += size
		}
		n.out = append(n.out, s[n.copied:start]...)
		for _, c := range t.compose(n.seg) {
			n.out = utf8.AppendRune(n.out, c.r)
		}
		n.copied, start = i, i
	}
}

// Hangul syllables are composed by arithmetic: lead + vowel [+ trail].
const (
	hangulBase  = 0xAC00
	leadBase    = 0x1100
	vowelBase   = 0x1161
	trailBase   = 0x11A7 // one before the first trail: 0 is "no trail"
	leads       = 19
	vowels      = 21
	trails      = 28
	hangulCount = leads * vowels * trails
)

// decompose appends the full canonical decomposition of r.
func (t *tableSet) decompose(dst []char, r rune) []char {
	if h := r - hangulBase; h >= 0 && h < hangulCount {
		dst = append(dst, char{leadBase + h/(vowels*trails), 0}, char{vowelBase + h/trails%vowels, 0})
		if h%trails != 0 {
			dst = append(dst, char{trailBase + h%trails, 0})
		}
		return dst
	}
	pair, ok := t.decomposed[r]
	if !ok {
		return append(dst, char{r, t.class[r]})
	}
	dst = t.decompose(dst, pair[0])
	if pair[1] != 0 {
		dst = t.decompose(dst, pair[1])
	}
	return dst
}

// compose puts decomposed characters into canonical order and composes them, in
// place.
func (t *tableSet) compose(seg []char) []char {
	for i := 0; i < len(seg); {
		j := i + 1
		if seg[i].ccc != 0 {
			for j < len(seg) && seg[j].ccc != 0 {
				j++
			}
			slices.SortStableFunc(seg[i:j], func(a, b char) int { return cmp.Compare(a.ccc, b.ccc) })
		}
		i = j
	}
	out := seg[:0]
	starter := -1 // index in out of the last character with class 0
	last := -1    // class of the last one kept after the starter, -1 if none
	for _, c := range seg {
		if starter >= 0 && last < int(c.ccc) {
			if r, ok := t.pair(out[starter].r, c.r); ok {
				out[starter].r = r
				continue
			}
		}
		if out = append(out, c); c.ccc == 0 {
			starter, last = len(out)-1, -1
		} else {
			last = int(c.ccc)
		}
	}
	return out
}

// pair composes two characters.
func (t *tableSet) pair(a, b rune) (rune, bool) {
	if l, v := a-leadBase, b-vowelBase; l >= 0 && l < leads && v >= 0 && v < vowels {
		return hangulBase + (l*vowels+v)*trails, true
	}
	if h, tr := a-hangulBase, b-trailBase; h >= 0 && h < hangulCount && h%trails == 0 && tr > 0 && tr < trails {
		return a + tr, true
	}
	r, ok := t.composed[[2]rune{a, b}]
	return r, ok
}
