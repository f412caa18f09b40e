// Package jsonscan is a JSON parser that builds no tree. It returns names, strings and numbers one by one, as slices of
// the text if possible, with byte offsets.
//
// It is used instead of encoding/json, which accepts duplicate names (a checkpoint header could describe a tensor
// twice), returns no offsets of values, and allocates for every token of a vocabulary.
package jsonscan

import (
	"fmt"
	"unicode/utf8"
)

// Scanner reads a JSON text. All fields except Text are optional.
type Scanner struct {
	Text []byte // valid UTF-8; check it with InvalidUTF8
	Pos  int    // offset of the next byte
	Name string // name of the text for errors, such as "body" or "header"

	// MaxDepth is the maximum nesting depth of arrays and objects; 0 means 128.
	MaxDepth int

	// Lone, if not nil, is called with the offset of an escape of a single surrogate, which is then read as U+FFFD. If
	// Lone is nil, such an escape is a syntax error.
	Lone func(at int)

	depth int
	buf   []byte // unescaped text of the last string with escapes
}

// SyntaxError means that the text is not JSON, or that a value has another type than expected.
type SyntaxError struct {
	Pos    int
	Reason string
}

// Error returns the offset and the reason.
func (e *SyntaxError) Error() string { return fmt.Sprintf("at byte %d: %s", e.Pos, e.Reason) }

// InvalidUTF8 returns the offset of the first byte that is not UTF-8, or -1.
func InvalidUTF8(text []byte) int {
	if utf8.Valid(text) {
		return -1
	}
	at := 0
	for {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
}

// Kind is the type of a JSON value.
type Kind int

// The kinds of values.
const (
	None Kind = iota // no value
	Null
	Bool
	Number
	String
	Array
	Object
)

// String returns the kind with an article, such as "a string".
func (k Kind) String() string {
	switch k {
	case Null:
		return "null"
	case Bool:
		return "a boolean"
	case Number:
		return "a number"
	case String:
		return "a string"
	case Array:
		return "an array"
	case Object:
		return "an object"
	case None:
	}
	return "nothing"
}

// Kind returns the kind of the next value without reading the value.
func (s *Scanner) Kind() (Kind, error) {
	switch b := s.Next(); {
	case b == '{':
		return Object, nil
	case b == '[':
		return Array, nil
	case b == '"':
		return String, nil
	case b == 't', b == 'f':
		return Bool, nil
	case b == 'n':
		return Null, nil
	case b == '-', b >= '0' && b <= '9':
		return Number, nil
	}
	for _, word := range []string{"NaN", "Infinity"} {
		if s.has(word) {
			return None, s.Errorf(s.Pos, "%s is not a JSON number", word)
		}
	}
	return None, s.Expected("a value")
}

// Next skips white space and returns the next byte, or 0 at the end of the text. A zero byte is never valid JSON.
func (s *Scanner) Next() byte {
	for s.Pos < len(s.Text) {
		switch c := s.Text[s.Pos]; c {
		case ' ', '\t', '\n', '\r':
			s.Pos++
		default:
			return c
		}
	}
	return 0
}

// End returns an error unless only white space follows. what describes the expected end in the error, such as "the end
// of the body".
func (s *Scanner) End(what string) error {
	if s.Next(); s.Pos < len(s.Text) {
		return s.Expected(what)
	}
	return nil
}

// Errorf returns a syntax error at an offset.
func (s *Scanner) Errorf(at int, format string, args ...any) error {
	return &SyntaxError{Pos: at, Reason: fmt.Sprintf(format, args...)}
}

// Expected returns a syntax error with what was expected and the text at the current position.
func (s *Scanner) Expected(what string) error {
	return s.Errorf(s.Pos, "expected %s, found %s", what, s.found())
}

func (s *Scanner) found() string {
	if s.Pos >= len(s.Text) {
		return "the end of the " + s.name()
	}
	r, _ := utf8.DecodeRune(s.Text[s.Pos:])
	return fmt.Sprintf("%q", r)
}

func (s *Scanner) name() string {
	if s.Name == "" {
		return "text"
	}
	return s.Name
}

// Object reads an object. It calls member for every name with its offset; member must read the value. The name is valid
// until the next string is read.
func (s *Scanner) Object(member func(name []byte, at int) error) error {
	if s.Next() != '{' {
		return s.Expected("an object")
	}
	if err := s.Enter(); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := s.More('}', first)
		if err != nil || !more {
			return err
		}
		s.Next()
		at := s.Pos
		name, err := s.Member()
		if err != nil {
			return err
		}
		if err := member(name, at); err != nil {
			return err
		}
	}
}

// Array reads an array. It calls element for every element; element must read it.
func (s *Scanner) Array(element func() error) error {
	if s.Next() != '[' {
		return s.Expected("an array")
	}
	if err := s.Enter(); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := s.More(']', first)
		if err != nil || !more {
			return err
		}
		if err := element(); err != nil {
			return err
		}
	}
}

// Enter reads an opening bracket and checks the nesting depth.
func (s *Scanner) Enter() error {
	limit := s.MaxDepth
	if limit == 0 {
		limit = 128
	}
	if s.depth++; s.depth > limit {
		return s.Errorf(s.Pos, "values are nested deeper than %d levels", limit)
	}
	s.Pos++
	return nil
}

// More reports whether another member or element follows. It reads the comma or the closing bracket; first is true
// before the first element.
func (s *Scanner) More(closing byte, first bool) (bool, error) {
	b := s.Next()
	if b == closing {
		s.Pos++
		s.depth--
		return false, nil
	}
	if first && b != 0 {
		return true, nil
	}
	if b != ',' {
		return false, s.Expected(fmt.Sprintf("',' or %q", closing))
	}
	s.Pos++
	if s.Next() == closing {
		return false, s.Errorf(s.Pos, "no value follows the comma, found %s", s.found())
	}
	return true, nil
}

// Member reads the name of a member and the colon. The name is valid until the next string is read.
func (s *Scanner) Member() ([]byte, error) {
	if s.Next() != '"' {
		return nil, s.Expected("a name in double quotes")
	}
	name, err := s.Str()
	if err != nil {
		return nil, err
	}
	if s.Next() != ':' {
		return nil, s.Expected(fmt.Sprintf("':' after the name %q", Clip(string(name))))
	}
	s.Pos++
	return name, nil
}

// Skip reads a value of any kind and checks its syntax.
func (s *Scanner) Skip() error {
	kind, err := s.Kind()
	if err != nil {
		return err
	}
	switch kind {
	case Object:
		return s.Object(func([]byte, int) error { return s.Skip() })
	case Array:
		return s.Array(s.Skip)
	case String:
		_, err = s.Str()
	case Number:
		_, err = s.Number()
	case Bool, Null, None:
		_, err = s.Word()
	}
	return err
}

// Raw reads a value of any kind and returns its text, a slice of Text.
func (s *Scanner) Raw() ([]byte, error) {
	s.Next()
	from := s.Pos
	err := s.Skip()
	return s.Text[from:s.Pos], err
}

func (s *Scanner) has(word string) bool {
	return string(s.Text[s.Pos:min(s.Pos+len(word), len(s.Text))]) == word
}

// Clip shortens a text for error messages.
func Clip(piece string) string {
	const most = 48
	if len(piece) <= most {
		return piece
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(piece[cut]) {
		cut--
	}
	return piece[:cut] + "..."
}
