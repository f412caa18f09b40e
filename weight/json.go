package weight

import (
	"fmt"
	"unicode/utf8"
)

// scanner walks JSON text without building a tree. The standard decoder cannot be used here: it keeps the last of two equal
// keys, which lets a header describe one tensor twice, and it allocates per token.
type scanner struct {
	text []byte // valid UTF-8
	pos  int
}

// syntaxError is text that is not JSON, or not the JSON that was expected at pos.
type syntaxError struct {
	pos    int
	reason string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("at %d: %s", e.pos, e.reason) }

// maxDepth bounds the nesting of values that are skipped, so that hostile text cannot exhaust the stack.
const maxDepth = 64

func (s *scanner) fail(pos int, format string, args ...any) error {
	return &syntaxError{pos: pos, reason: fmt.Sprintf(format, args...)}
}

// next skips white space and returns the byte there, or 0 at the end of the text.
func (s *scanner) next() byte {
	for s.pos < len(s.text) {
		switch c := s.text[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// unexpected describes what stands at the current position instead of what was wanted.
func (s *scanner) unexpected(wanted string) error {
	if s.pos >= len(s.text) {
		return s.fail(s.pos, "the text ends where %s is expected", wanted)
	}
	return s.fail(s.pos, "%q where %s is expected", s.text[s.pos], wanted)
}

// object calls member for every key, with the scanner before the value and keyPos at the key. The key is valid only
// until member returns.
func (s *scanner) object(member func(key []byte, keyPos int) error) error {
	return s.list('{', '}', "an object", func() error {
		if s.next() != '"' {
			return s.unexpected("a key in quotes")
		}
		keyPos := s.pos
		key, err := s.str()
		if err != nil {
			return err
		}
		if s.next() != ':' {
			return s.unexpected("':'")
		}
		s.pos++
		return member(key, keyPos)
	})
}

// array calls element before every element.
func (s *scanner) array(element func() error) error {
	return s.list('[', ']', "an array", element)
}

// list reads open, items separated by commas, and close.
func (s *scanner) list(open, end byte, what string, item func() error) error {
	if s.next() != open {
		return s.unexpected(what)
	}
	s.pos++
	if s.next() == end {
		s.pos++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		switch s.next() {
		case ',':
			s.pos++
		case end:
			s.pos++
			return nil
		default:
			return s.unexpected(fmt.Sprintf("',' or '%c'", end))
		}
	}
}

// str reads a string. The result is a view of the text unless the string has escapes.
func (s *scanner) str() ([]byte, error) {
	if s.next() != '"' {
		return nil, s.unexpected("a string")
	}
	start := s.pos + 1
	for i := start; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			s.pos = i + 1
			return s.text[start:i], nil
		case c == '\\':
			return s.escaped(start, i)
		case c < ' ':
			return nil, s.fail(i, "control character %#02x inside a string", c)
		}
	}
	return nil, s.fail(start-1, "a string without end")
}

// escaped continues str at the first backslash.
func (s *scanner) escaped(start, i int) ([]byte, error) {
	out := append([]byte(nil), s.text[start:i]...)
	for i < len(s.text) {
		c := s.text[i]
		switch {
		case c == '"':
			s.pos = i + 1
			return out, nil
		case c < ' ':
			return nil, s.fail(i, "control character %#02x inside a string", c)
		case c != '\\':
			out = append(out, c)
			i++
			continue
		}
		r, width := s.escape(i)
		if width == 0 {
			return nil, s.fail(i, "a broken escape inside a string")
		}
		out = utf8.AppendRune(out, r)
		i += width
	}
	return nil, s.fail(start-1, "a string without end")
}

// escape decodes the escape at i and says how long it is; width 0 means it is none.
func (s *scanner) escape(i int) (r rune, width int) {
	if i+1 >= len(s.text) {
		return 0, 0
	}
	switch c := s.text[i+1]; c {
	case '"', '\\', '/':
		return rune(c), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		high, ok := s.hex4(i + 2)
		switch {
		case !ok, high >= 0xDC00 && high <= 0xDFFF:
			return 0, 0
		case high < 0xD800 || high > 0xDBFF:
			return high, 6
		}
		// A rune beyond 0xFFFF is written as two escapes: its upper and its lower ten bits.
		if i+7 >= len(s.text) || s.text[i+6] != '\\' || s.text[i+7] != 'u' {
			return 0, 0
		}
		low, ok := s.hex4(i + 8)
		if !ok || low < 0xDC00 || low > 0xDFFF {
			return 0, 0
		}
		return 0x10000 + (high-0xD800)<<10 + (low - 0xDC00), 12
	}
	return 0, 0
}

func (s *scanner) hex4(i int) (rune, bool) {
	if i+4 > len(s.text) {
		return 0, false
	}
	var r rune
	for _, c := range s.text[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}
