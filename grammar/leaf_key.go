package grammar

// freeKey accepts a property name with its quotes and colon, and at most one space after it, unless the name is in a
// given list. It accepts only the canonical form of a name (see [appendString]), so that another spelling of a taken
// name is refused too.
type freeKey struct {
	taken [][]byte // canonical texts without quotes, sorted
}

// A state has a mode in the low byte and, above it, the range of taken names that begin with the text so far: 18 bits
// for each end, 20 for the depth. If no taken name begins with the text so far, these bits are zero and any text is
// allowed.
const (
	keyColon  = 100 + iota // after the closing quote of the name
	keyDone                // after the colon
	keySpaced              // after the space
	canonU                 // after \u
	canonU0
	canonU00
	canonU000
	canonU001
)

func packKey(mode uint64, s span) uint64 {
	if s.empty() {
		return mode
	}
	return mode | uint64(s.lo)<<8 | uint64(s.hi)<<26 | uint64(s.depth)<<44
}

func unpackKey(q uint64) (mode uint64, s span) {
	return q & 0xff, span{lo: int(q >> 8 & 0x3ffff), hi: int(q >> 26 & 0x3ffff), depth: int(q >> 44)}
}

func (k *freeKey) start() uint64 { return strStart }

func (k *freeKey) step(q uint64, b byte) (uint64, bool) {
	mode, s := unpackKey(q)
	switch mode {
	case strStart:
		return packKey(strBody, span{0, len(k.taken), 0}), b == '"'
	case keyColon:
		return keyDone, b == ':'
	case keyDone:
		return keySpaced, b == ' '
	case keySpaced:
		return 0, false
	case strBody:
		if b == '"' {
			complete := !s.empty() && len(k.taken[s.lo]) == s.depth
			return keyColon, !complete
		}
	}
	next, ok := stepCanonical(mode, b)
	if !ok {
		return 0, false
	}
	if !s.empty() {
		s = s.narrow(k.taken, b)
	}
	return packKey(next, s), true
}

// stepCanonical is stepChar for canonical text, in which each character has exactly one spelling.
func stepCanonical(mode uint64, b byte) (uint64, bool) {
	switch mode {
	case escBegin:
		switch b {
		case '"', '\\', 'b', 'f', 'n', 'r', 't':
			return strBody, true
		}
		return canonU, b == 'u'
	case canonU:
		return canonU0, b == '0'
	case canonU0:
		return canonU00, b == '0'
	case canonU00:
		if b == '1' {
			return canonU001, true
		}
		return canonU000, b == '0'
	case canonU000, canonU001:
		digit, ok := hexValue(b)
		if !ok || b >= 'A' && b <= 'F' {
			return 0, false
		}
		c := digit
		if mode == canonU001 {
			c += 0x10
		}
		return strBody, shortEscape(c) == 0
	}
	return stepChar(mode, b)
}

func (k *freeKey) accepts(q uint64) bool {
	mode := q & 0xff
	return mode == keyDone || mode == keySpaced
}

func (k *freeKey) open(q uint64) bool { return q&0xff != keySpaced }

func (k *freeKey) class(q uint64, _ int) maskKey {
	if k.free(q) {
		return maskKey{familyFreeKey, q & 0xff}
	}
	return maskKey{familyNone, q}
}

// free reports whether no taken name begins with the text so far.
func (k *freeKey) free(q uint64) bool {
	mode, s := unpackKey(q)
	return s.empty() && (mode != strStart || len(k.taken) == 0)
}

// shortEscape returns the letter of a control character's two-byte escape, or 0 if it has none.
func shortEscape(c byte) byte {
	switch c {
	case '\b':
		return 'b'
	case '\t':
		return 't'
	case '\n':
		return 'n'
	case '\f':
		return 'f'
	case '\r':
		return 'r'
	}
	return 0
}

// appendString appends a string in canonical form: escapes only where JSON requires them, in the short form if there is
// one.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	dst = appendBody(dst, s)
	return append(dst, '"')
}

func appendBody(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= 0x20:
			dst = append(dst, c)
		case shortEscape(c) != 0:
			dst = append(dst, '\\', shortEscape(c))
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return dst
}
