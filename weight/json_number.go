package weight

import "math"

// number reads a JSON number and returns its text.
func (s *scanner) number() ([]byte, error) {
	s.next()
	start := s.pos
	if s.at('-') {
		s.pos++
	}
	switch {
	case s.at('0'): // no digit may follow: JSON has no leading zeros
		s.pos++
	case s.digits() == 0:
		s.pos = start
		return nil, s.unexpected("a number")
	}
	if s.at('.') {
		s.pos++
		if s.digits() == 0 {
			return nil, s.unexpected("a digit")
		}
	}
	if s.at('e') || s.at('E') {
		s.pos++
		if s.at('+') || s.at('-') {
			s.pos++
		}
		if s.digits() == 0 {
			return nil, s.unexpected("a digit")
		}
	}
	return s.text[start:s.pos], nil
}

func (s *scanner) at(c byte) bool { return s.pos < len(s.text) && s.text[s.pos] == c }

// digits moves over decimal digits and counts them.
func (s *scanner) digits() int {
	start := s.pos
	for s.pos < len(s.text) && s.text[s.pos] >= '0' && s.text[s.pos] <= '9' {
		s.pos++
	}
	return s.pos - start
}

// count turns the text of a number into a size or an offset. ok is false for a sign, a fraction, an exponent, or a value
// beyond what an int64 holds.
func count(number []byte) (n int64, ok bool) {
	if len(number) == 0 {
		return 0, false
	}
	for _, c := range number {
		if c < '0' || c > '9' {
			return 0, false
		}
		d := int64(c - '0')
		if n > (math.MaxInt64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// skip moves over one value of any kind.
func (s *scanner) skip(depth int) error {
	if depth > maxDepth {
		return s.fail(s.pos, "values nested deeper than %d", maxDepth)
	}
	switch c := s.next(); {
	case c == '{':
		return s.object(func([]byte, int) error { return s.skip(depth + 1) })
	case c == '[':
		return s.array(func() error { return s.skip(depth + 1) })
	case c == '"':
		_, err := s.str()
		return err
	case c == '-' || c >= '0' && c <= '9':
		_, err := s.number()
		return err
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if len(s.text)-s.pos >= len(word) && string(s.text[s.pos:s.pos+len(word)]) == word {
			s.pos += len(word)
			return nil
		}
	}
	return s.unexpected("a value")
}
