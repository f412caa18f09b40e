package grammar

import (
	"math"
	"unicode/utf8"
)

// patternLeaf accepts a JSON string, with its quotes, whose value is accepted by an automaton. It accepts only the
// canonical spelling of characters (see [appendString]), so that each string has one text.
//
// A maximum number of characters is enforced by a counter, because otherwise it would multiply the automaton's states.
type patternLeaf struct {
	dfa    *runeDFA
	family uint32 // family of the masks, if grammars share them; otherwise familyNone

	most    uint16   // maximum number of characters; ignored if short is nil
	short   []uint16 // [states] minimum number of characters to an accepting state; nil if there is no maximum
	longest uint64   // largest value of short
}

// maxCounted is the largest limit that fits in a state.
const maxCounted = math.MaxUint16

// A state has these parts, from the lowest bits up: the mode (8 bits), the automaton's state (24 bits), the bits of an
// incomplete character (16 bits), and the number of characters so far, if characters are counted.
const (
	patternTail1 = 120 + iota // one more byte of a character must follow
	patternTail2
	patternTail3
)

const countShift = 48

func packPattern(mode uint64, state int32, part rune) uint64 {
	return mode | uint64(state)<<8 | uint64(part)<<32
}

// atMost limits the characters of a leaf; most must not exceed maxCounted. It returns false if no string remains.
func (p *patternLeaf) atMost(most uint64) bool {
	p.most, p.short = uint16(most), p.dfa.distances()
	for _, n := range p.short {
		p.longest = max(p.longest, uint64(n))
	}
	return uint64(p.short[0]) <= most
}

// fits reports whether, after one more character, an accepting state can be reached within the maximum length.
func (p *patternLeaf) fits(state int32, count uint64) bool {
	return p.short == nil || count+1+uint64(p.short[state]) <= uint64(p.most)
}

func (p *patternLeaf) start() uint64 { return strStart }

func (p *patternLeaf) step(q uint64, b byte) (uint64, bool) {
	mode, state, part, count := q&0xff, int32(q>>8&0xffffff), rune(q>>32&0xffff), q>>countShift
	kept := count << countShift
	switch mode {
	case strStart:
		return packPattern(strBody, 0, 0), b == '"'
	case strEnd:
		return 0, false
	case strBody:
		return p.begin(state, count, b)
	case patternTail1, patternTail2, patternTail3:
		if b&0xc0 != 0x80 {
			return 0, false
		}
		part = part<<6 | rune(b&0x3f)
		if mode == patternTail2 && part < 0x20 || mode == patternTail3 && part < 0x10 {
			return 0, false // an overlong encoding is not UTF-8
		}
		return p.tail(mode-patternTail1, state, count, part)
	}
	next, ok := stepCanonical(mode, b)
	if !ok {
		return 0, false
	}
	if next != strBody {
		return packPattern(next, state, 0) | kept, p.escapes(state, count, next)
	}
	return p.finish(state, count, escaped(mode, b))
}

func (p *patternLeaf) begin(state int32, count uint64, b byte) (uint64, bool) {
	switch {
	case b == '"':
		return packPattern(strEnd, state, 0), p.dfa.accept[state]
	case b == '\\':
		return packPattern(escBegin, state, 0) | count<<countShift, p.escapes(state, count, escBegin)
	case b < 0x20:
		return 0, false
	case b < utf8.RuneSelf:
		return p.finish(state, count, rune(b))
	case b >= 0xc2 && b < 0xe0:
		return p.tail(1, state, count, rune(b&0x1f))
	case b >= 0xe0 && b < 0xf0:
		return p.tail(2, state, count, rune(b&0x0f))
	case b >= 0xf0 && b < 0xf5:
		return p.tail(3, state, count, rune(b&0x07))
	}
	return 0, false
}

// tail returns the state with the given number of remaining bytes of a character. These bytes leave an interval of
// characters, of which at least one must have a next state; otherwise ok is false.
func (p *patternLeaf) tail(left uint64, state int32, count uint64, part rune) (uint64, bool) {
	if left == 0 {
		return p.finish(state, count, part)
	}
	shift := 6 * left
	lo, hi := part<<shift, part<<shift|(1<<shift-1)
	if part == 0 { // after E0 or F0, where overlong encodings are not UTF-8
		lo = 1 << (5*left + 1)
	}
	return packPattern(patternTail1+left-1, state, part) | count<<countShift, p.meets(state, count, lo, hi)
}

func (p *patternLeaf) finish(state int32, count uint64, r rune) (uint64, bool) {
	next := p.dfa.next(state, r)
	if next < 0 || !p.fits(next, count) {
		return 0, false
	}
	if p.short != nil {
		count++
	}
	return packPattern(strBody, next, 0) | count<<countShift, true
}

// meets reports whether any character from lo to hi has a next state.
func (p *patternLeaf) meets(state int32, count uint64, lo, hi rune) bool {
	if p.short == nil {
		return p.dfa.meets(state, lo, hi)
	}
	list := p.dfa.edges[state]
	for i := p.dfa.search(state, lo); i < len(list) && list[i].lo <= hi; i++ {
		if p.fits(list[i].to, count) {
			return true
		}
	}
	return false
}

// takes reports whether a character has a next state.
func (p *patternLeaf) takes(state int32, count uint64, r rune) bool {
	next := p.dfa.next(state, r)
	return next >= 0 && p.fits(next, count)
}

// escapes reports whether an escape sequence in the given mode can end with a character that has a next state.
func (p *patternLeaf) escapes(state int32, count uint64, mode uint64) bool {
	lo, hi := byte(0), byte(0x1f)
	switch mode {
	case escBegin:
		return p.takes(state, count, '"') || p.takes(state, count, '\\') || p.meets(state, count, 0, 0x1f)
	case canonU000:
		hi = 0x0f
	case canonU001:
		lo = 0x10
	}
	for c := lo; c <= hi; c++ {
		if shortEscape(c) == 0 && p.takes(state, count, rune(c)) {
			return true
		}
	}
	return false
}

// escaped returns the character of an escape sequence that ends with byte b.
func escaped(mode uint64, b byte) rune {
	digit, _ := hexValue(b)
	switch {
	case mode == canonU000:
		return rune(digit)
	case mode == canonU001:
		return 0x10 + rune(digit)
	case b == '"' || b == '\\':
		return rune(b)
	}
	for c := range byte(0x20) {
		if shortEscape(c) == b {
			return rune(c)
		}
	}
	return utf8.RuneError
}

func (p *patternLeaf) accepts(q uint64) bool { return q&0xff == strEnd }

func (p *patternLeaf) open(q uint64) bool { return q&0xff != strEnd }

// class omits the character count if no single token can reach the maximum: a token of n bytes has at most n
// characters.
func (p *patternLeaf) class(q uint64, longest int) maskKey {
	if q>>countShift+uint64(longest)+p.longest <= uint64(p.most) {
		q &= 1<<countShift - 1
	}
	return maskKey{p.family, q}
}
