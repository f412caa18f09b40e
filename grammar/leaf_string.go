package grammar

// stringLeaf accepts a JSON string with its quotes, with a length between two limits. Its length is counted in code
// points, as in JSON Schema. It accepts only valid UTF-8 and every escape of JSON; surrogates only in pairs.
type stringLeaf struct {
	least uint64
	most  uint64 // maximum number of characters; noLimit if there is none
}

const noLimit = 1 << 40

// A state has a mode in the low byte and the number of whole characters above it.
const (
	strStart = iota
	strBody
	strEnd
	utf1     // one continuation byte must follow
	utf2     // two continuation bytes must follow
	utf3     // three continuation bytes must follow
	utfE0    // after byte E0: A0-BF and one more continuation byte must follow
	utfED    // after byte ED: 80-9F, which excludes surrogates, and one more byte must follow
	utfF0    // after byte F0: 90-BF and two more continuation bytes must follow
	utfF4    // after byte F4: 80-8F and two more continuation bytes must follow
	escBegin // after a backslash
	hex4     // after \u: four hexadecimal digits must follow
	hex3     // three hexadecimal digits must follow
	hex2
	hex1
	hexD     // after \uD: the next digit shows whether the character is a surrogate
	high2    // two digits of a high surrogate must follow
	high1    // one digit of a high surrogate must follow
	lowSlash // the backslash of a low surrogate must follow
	lowU     // the u of a low surrogate must follow
	lowD     // the D of a low surrogate must follow
	lowC     // C to F of a low surrogate must follow, then two digits (hex2)
)

func (s *stringLeaf) start() uint64 { return strStart }

func (s *stringLeaf) step(q uint64, b byte) (uint64, bool) {
	mode, count := q&0xff, q>>8
	switch mode {
	case strStart:
		return strBody, b == '"'
	case strEnd:
		return 0, false
	case strBody:
		if b == '"' {
			return strEnd, count >= s.least
		}
		if count >= s.most {
			return 0, false
		}
	}
	next, ok := stepChar(mode, b)
	if !ok {
		return 0, false
	}
	if next == strBody && (s.most != noLimit || count < s.least) {
		count++ // without a maximum, characters are counted only up to the minimum length
	}
	return next | count<<8, true
}

// stepChar returns the mode after one more byte of a string's body; between characters the mode is strBody.
func stepChar(mode uint64, b byte) (uint64, bool) {
	switch mode {
	case strBody:
		return beginChar(b)
	case utf1:
		return strBody, b&0xc0 == 0x80
	case utf2:
		return utf1, b&0xc0 == 0x80
	case utf3:
		return utf2, b&0xc0 == 0x80
	case utfE0:
		return utf1, b >= 0xa0 && b <= 0xbf
	case utfED:
		return utf1, b >= 0x80 && b <= 0x9f
	case utfF0:
		return utf2, b >= 0x90 && b <= 0xbf
	case utfF4:
		return utf2, b >= 0x80 && b <= 0x8f
	}
	return stepEscape(mode, b)
}

func beginChar(b byte) (uint64, bool) {
	switch {
	case b == '\\':
		return escBegin, true
	case b < 0x20 || b == '"':
		return 0, false
	case b < 0x80:
		return strBody, true
	case b < 0xc2:
		return 0, false
	case b < 0xe0:
		return utf1, true
	case b == 0xe0:
		return utfE0, true
	case b == 0xed:
		return utfED, true
	case b < 0xf0:
		return utf2, true
	case b == 0xf0:
		return utfF0, true
	case b < 0xf4:
		return utf3, true
	case b == 0xf4:
		return utfF4, true
	}
	return 0, false
}

func stepEscape(mode uint64, b byte) (uint64, bool) {
	digit, isHex := hexValue(b)
	switch mode {
	case escBegin:
		switch b {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			return strBody, true
		case 'u':
			return hex4, true
		}
	case hex4:
		if digit == 0xd {
			return hexD, true
		}
		return hex3, isHex
	case hex3:
		return hex2, isHex
	case hex2:
		return hex1, isHex
	case hex1:
		return strBody, isHex
	case hexD:
		if isHex && digit < 8 {
			return hex2, true
		}
		return high2, isHex && digit < 0xc
	case high2:
		return high1, isHex
	case high1:
		return lowSlash, isHex
	case lowSlash:
		return lowU, b == '\\'
	case lowU:
		return lowD, b == 'u'
	case lowD:
		return lowC, digit == 0xd
	case lowC:
		return hex2, isHex && digit >= 0xc
	}
	return 0, false
}

func hexValue(b byte) (digit byte, ok bool) {
	switch {
	case b >= '0' && b <= '9':
		return b - '0', true
	case b >= 'a' && b <= 'f':
		return b - 'a' + 10, true
	case b >= 'A' && b <= 'F':
		return b - 'A' + 10, true
	}
	return 0xff, false
}

func (s *stringLeaf) accepts(q uint64) bool { return q&0xff == strEnd }

func (s *stringLeaf) open(q uint64) bool { return q&0xff != strEnd }

// class omits the character count if no single token can reach a limit: a token of n bytes has at most n characters.
func (s *stringLeaf) class(q uint64, longest int) maskKey {
	mode, count := q&0xff, q>>8
	far := uint64(longest)
	toLeast, toMost := uint64(0), far
	if s.least > count {
		toLeast = min(s.least-count, far)
	}
	if s.most != noLimit {
		toMost = min(s.most-count, far)
	}
	if mode == strEnd {
		toLeast, toMost = 0, 0
	}
	return maskKey{familyString, mode | toLeast<<8 | toMost<<24}
}
