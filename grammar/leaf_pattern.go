package grammar

import "unicode/utf8"

// patternLeaf accepts a JSON string with its quotes whose value an automaton accepts. It reads characters in
// canonical spelling only (see [appendString]), so that each string has one text.
type patternLeaf struct {
	dfa *runeDFA
}

// A state is a mode in the low byte, the automaton's state in the next 24 bits, and the bits of an unfinished
// character above. Modes are those of stringLeaf and freeKey, except that bytes of UTF-8 still to come are counted.
const (
	patternTail1 = 120 + iota // one byte to come
	patternTail2
	patternTail3
)

func packPattern(mode uint64, state int32, part rune) uint64 {
	return mode | uint64(state)<<8 | uint64(part)<<32
}

func (p *patternLeaf) start() uint64 { return strStart }

func (p *patternLeaf) step(q uint64, b byte) (uint64, bool) {
	mode, state, part := q&0xff, int32(q>>8&0xffffff), rune(q>>32)
	switch mode {
	case strStart:
		return packPattern(strBody, 0, 0), b == '"'
	case strEnd:
		return 0, false
	case strBody:
		return p.begin(state, b)
	case patternTail1, patternTail2, patternTail3:
		if b&0xc0 != 0x80 {
			return 0, false
		}
		part = part<<6 | rune(b&0x3f)
		if mode == patternTail2 && part < 0x20 || mode == patternTail3 && part < 0x10 {
			return 0, false // overlong
		}
		return p.tail(mode-patternTail1, state, part)
	}
	next, ok := stepCanonical(mode, b)
	if !ok {
		return 0, false
	}
	if next != strBody {
		return packPattern(next, state, 0), p.escapes(state, next)
	}
	return p.finish(state, escaped(mode, b))
}

func (p *patternLeaf) begin(state int32, b byte) (uint64, bool) {
	switch {
	case b == '"':
		return packPattern(strEnd, state, 0), p.dfa.accept[state]
	case b == '\\':
		return packPattern(escBegin, state, 0), p.escapes(state, escBegin)
	case b < 0x20:
		return 0, false
	case b < utf8.RuneSelf:
		return p.finish(state, rune(b))
	case b >= 0xc2 && b < 0xe0:
		return p.tail(1, state, rune(b&0x1f))
	case b >= 0xe0 && b < 0xf0:
		return p.tail(2, state, rune(b&0x0f))
	case b >= 0xf0 && b < 0xf5:
		return p.tail(3, state, rune(b&0x07))
	}
	return 0, false
}

// tail is the state with so many bytes of a character to come. The characters still possible are an interval; one of
// them must lead on.
func (p *patternLeaf) tail(left uint64, state int32, part rune) (uint64, bool) {
	if left == 0 {
		return p.finish(state, part)
	}
	shift := 6 * left
	lo, hi := part<<shift, part<<shift|(1<<shift-1)
	if part == 0 { // after E0 or F0: overlong forms are not UTF-8
		lo = 1 << (5*left + 1)
	}
	return packPattern(patternTail1+left-1, state, part), p.dfa.meets(state, lo, hi)
}

func (p *patternLeaf) finish(state int32, r rune) (uint64, bool) {
	next := p.dfa.next(state, r)
	if next < 0 {
		return 0, false
	}
	return packPattern(strBody, next, 0), true
}

// escapes says whether an escape that has come to a mode can end in a character that leads on.
func (p *patternLeaf) escapes(state int32, mode uint64) bool {
	lo, hi := byte(0), byte(0x1f)
	switch mode {
	case escBegin:
		if p.dfa.next(state, '"') >= 0 || p.dfa.next(state, '\\') >= 0 {
			return true
		}
		return p.dfa.meets(state, 0, 0x1f)
	case canonU000:
		hi = 0x0f
	case canonU001:
		lo = 0x10
	}
	for c := lo; c <= hi; c++ {
		if shortEscape(c) == 0 && p.dfa.next(state, rune(c)) >= 0 {
			return true
		}
	}
	return false
}

// escaped is the character that an escape's last byte completes.
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

func (p *patternLeaf) class(q uint64, _ int) maskKey { return maskKey{familyNone, q} }
