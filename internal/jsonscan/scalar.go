package jsonscan

import (
	"unicode/utf16"
	"unicode/utf8"
)

// Word reads the literal true, false or null.
func (s *Scanner) Word() (string, error) {
	s.Next()
	for _, w := range [...]string{"true", "false", "null"} {
		if s.has(w) {
			s.Pos += len(w)
			return w, nil
		}
	}
	return "", s.Expected("true, false or null")
}

// Number reads a number and returns its text, a slice of Text. JSON's grammar for numbers is narrower than Go's.
func (s *Scanner) Number() ([]byte, error) {
	if c := s.Next(); c != '-' && (c < '0' || c > '9') {
		return nil, s.Expected("a number")
	}
	from := s.Pos
	if s.at('-') {
		s.Pos++
	}
	switch {
	case s.at('0'): // JSON has no leading zeros
		s.Pos++
	case !s.digits():
		return nil, s.Expected("a digit")
	}
	if s.at('.') {
		s.Pos++
		if !s.digits() {
			return nil, s.Expected("a digit after the decimal point")
		}
	}
	if s.at('e') || s.at('E') {
		s.Pos++
		if s.at('+') || s.at('-') {
			s.Pos++
		}
		if !s.digits() {
			return nil, s.Expected("a digit in the exponent")
		}
	}
	if s.Pos < len(s.Text) && letter(s.Text[s.Pos]) {
		return nil, s.Expected("the number to end")
	}
	return s.Text[from:s.Pos], nil
}

func letter(b byte) bool {
	return b == '_' || b == '-' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

func (s *Scanner) at(b byte) bool { return s.Pos < len(s.Text) && s.Text[s.Pos] == b }

// digits skips decimal digits and reports whether there were any.
func (s *Scanner) digits() bool {
	from := s.Pos
	for s.Pos < len(s.Text) && s.Text[s.Pos] >= '0' && s.Text[s.Pos] <= '9' {
		s.Pos++
	}
	return s.Pos > from
}

// Str reads a string. The result is a slice of Text or, if the string has escapes, of a buffer that the next string
// overwrites.
func (s *Scanner) Str() ([]byte, error) {
	if s.Next() != '"' {
		return nil, s.Expected("a string")
	}
	s.Pos++
	from := s.Pos
	s.plain()
	if s.at('"') {
		s.Pos++
		return s.Text[from : s.Pos-1], nil
	}
	s.buf = append(s.buf[:0], s.Text[from:s.Pos]...)
	for {
		switch {
		case s.at('"'):
			s.Pos++
			return s.buf, nil
		case s.at('\\'):
			if err := s.escape(); err != nil {
				return nil, err
			}
		case s.Pos >= len(s.Text):
			return nil, s.Errorf(s.Pos, "the %s ends inside a string", s.name())
		default:
			return nil, s.Errorf(s.Pos, "control character 0x%02x inside a string must be written as an escape",
				s.Text[s.Pos])
		}
		from = s.Pos
		s.plain()
		s.buf = append(s.buf, s.Text[from:s.Pos]...)
	}
}

// plain advances to the next quote, backslash or control character of a string.
func (s *Scanner) plain() {
	for s.Pos < len(s.Text) {
		if b := s.Text[s.Pos]; b == '"' || b == '\\' || b < ' ' {
			return
		}
		s.Pos++
	}
}

// escape reads one escape sequence and appends its character to buf.
func (s *Scanner) escape() error {
	start := s.Pos
	s.Pos++
	if s.at('u') {
		r, err := s.codeUnit()
		if err != nil {
			return err
		}
		if utf16.IsSurrogate(r) {
			low := rune(-1)
			if s.at('\\') && s.Pos+1 < len(s.Text) && s.Text[s.Pos+1] == 'u' {
				s.Pos++
				if low, err = s.codeUnit(); err != nil {
					return err
				}
			}
			if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
				if s.Lone == nil {
					return s.Errorf(start, "the escape is half of a surrogate pair, which UTF-8 text cannot hold")
				}
				s.Lone(start)
			}
		}
		s.buf = utf8.AppendRune(s.buf, r)
		return nil
	}
	if s.Pos < len(s.Text) {
		if b := unescaped(s.Text[s.Pos]); b != 0 {
			s.Pos++
			s.buf = append(s.buf, b)
			return nil
		}
	}
	return s.Expected("an escape character after the backslash")
}

// unescaped returns the character of a one-letter escape, or 0 if there is no such escape.
func unescaped(c byte) byte {
	switch c {
	case '"', '\\', '/':
		return c
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return 0
}

// codeUnit reads the u and four hexadecimal digits of an escape.
func (s *Scanner) codeUnit() (rune, error) {
	s.Pos++
	if s.Pos+4 > len(s.Text) {
		return 0, s.Errorf(s.Pos, "expected four hexadecimal digits, found the end of the %s", s.name())
	}
	digits := s.Text[s.Pos : s.Pos+4]
	var r rune
	for _, c := range digits {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, s.Errorf(s.Pos, "expected four hexadecimal digits, found %q", digits)
		}
	}
	s.Pos += 4
	return r, nil
}
