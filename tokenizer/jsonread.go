package tokenizer

import (
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonReader walks a JSON text value by value. The vocabulary and the merges of a
// large model are 250,000 strings; reading them in one pass, without building a
// map of the whole file, is what keeps loading under a tenth of a second.
// Small values are located with raw and left to encoding/json.
type jsonReader struct {
	data []byte
	pos  int
	buf  []byte // the last string that had escapes, unescaped
}

// object calls field with every key of the object at the cursor; field must
// consume the value. The key is valid until the next read.
func (r *jsonReader) object(field func(key []byte) error) error {
	return r.list('{', '}', func() error {
		key, err := r.str()
		if err != nil {
			return err
		}
		if r.peek() != ':' {
			return r.expected("':' after an object key")
		}
		r.pos++
		return field(key)
	})
}

// array calls item for every element of the array at the cursor; item must
// consume it.
func (r *jsonReader) array(item func() error) error {
	return r.list('[', ']', item)
}

// list reads open, items separated by commas, and close.
func (r *jsonReader) list(open, closing byte, item func() error) error {
	if r.peek() != open {
		return r.expected(strconv.QuoteRune(rune(open)))
	}
	r.pos++
	if r.peek() == closing {
		r.pos++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		switch r.peek() {
		case ',':
			r.pos++
		case closing:
			r.pos++
			return nil
		default:
			return r.expected("',' or " + strconv.QuoteRune(rune(closing)))
		}
	}
}

// str reads the string at the cursor. The result is valid until the next str.
func (r *jsonReader) str() ([]byte, error) {
	if r.peek() != '"' {
		return nil, r.expected("a string")
	}
	r.pos++
	start := r.pos
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; {
		case c == '"':
			s := r.data[start:r.pos]
			r.pos++
			return s, r.checkUTF8(s)
		case c == '\\':
			return r.escaped(start)
		case c < ' ':
			return nil, r.expected("no control character in a string")
		}
		r.pos++
	}
	return nil, r.expected("the end of a string")
}

// escaped continues a string that began at start and has its first escape at the
// cursor.
func (r *jsonReader) escaped(start int) ([]byte, error) {
	r.buf = append(r.buf[:0], r.data[start:r.pos]...)
	for r.pos < len(r.data) {
		c := r.data[r.pos]
		r.pos++
		switch {
		case c == '"':
			return r.buf, r.checkUTF8(r.buf)
		case c < ' ':
			return nil, r.expected("no control character in a string")
		case c != '\\':
			r.buf = append(r.buf, c)
			continue
		}
		if r.pos == len(r.data) {
			break
		}
		c = r.data[r.pos]
		r.pos++
		switch c {
		case '"', '\\', '/':
			r.buf = append(r.buf, c)
		case 'b':
			r.buf = append(r.buf, '\b')
		case 'f':
			r.buf = append(r.buf, '\f')
		case 'n':
			r.buf = append(r.buf, '\n')
		case 'r':
			r.buf = append(r.buf, '\r')
		case 't':
			r.buf = append(r.buf, '\t')
		case 'u':
			c, err := r.unicodeEscape()
			if err != nil {
				return nil, err
			}
			r.buf = utf8.AppendRune(r.buf, c)
		default:
			return nil, r.expected("a known escape")
		}
	}
	return nil, r.expected("the end of a string")
}

// unicodeEscape reads what follows \u, both halves of a surrogate pair.
func (r *jsonReader) unicodeEscape() (rune, error) {
	hi, err := r.hex4()
	if err != nil || !utf16.IsSurrogate(hi) {
		return hi, err
	}
	if r.pos+2 <= len(r.data) && r.data[r.pos] == '\\' && r.data[r.pos+1] == 'u' {
		r.pos += 2
		lo, err := r.hex4()
		if err != nil {
			return 0, err
		}
		if c := utf16.DecodeRune(hi, lo); c != utf8.RuneError {
			return c, nil
		}
	}
	return 0, r.expected("a surrogate pair")
}

func (r *jsonReader) hex4() (rune, error) {
	if r.pos+4 > len(r.data) {
		return 0, r.expected("four hexadecimal digits")
	}
	v, err := strconv.ParseUint(string(r.data[r.pos:r.pos+4]), 16, 16)
	if err != nil {
		return 0, r.expected("four hexadecimal digits")
	}
	r.pos += 4
	return rune(v), nil
}

// id reads a token id: a plain integer from 0 to maxID.
func (r *jsonReader) id() (int32, error) {
	r.peek()
	start, v := r.pos, 0
	for r.pos < len(r.data) && r.data[r.pos]-'0' <= 9 {
		v = v*10 + int(r.data[r.pos]-'0')
		if v > maxID {
			return 0, malformed("at byte %d: token id above %d", start, maxID)
		}
		r.pos++
	}
	if r.pos == start || (r.data[start] == '0' && r.pos > start+1) {
		r.pos = start
		return 0, r.expected("a token id")
	}
	return int32(v), nil
}

// raw returns the text of the value at the cursor. Only its extent is checked:
// whoever reads the value finds the errors inside.
func (r *jsonReader) raw() (json.RawMessage, error) {
	r.peek()
	start, depth := r.pos, 0
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; c {
		case '"':
			if err := r.skipString(); err != nil {
				return nil, err
			}
			if depth == 0 {
				return r.data[start:r.pos], nil
			}
			continue
		case '{', '[':
			depth++
		case '}', ']', ',':
			if depth == 0 {
				if r.pos == start {
					return nil, r.expected("a value")
				}
				return r.data[start:r.pos], nil
			}
			if c != ',' {
				depth--
				if depth == 0 {
					r.pos++
					return r.data[start:r.pos], nil
				}
			}
		}
		r.pos++
	}
	return nil, r.expected("the end of a value")
}

func (r *jsonReader) skipString() error {
	for r.pos++; r.pos < len(r.data); r.pos++ {
		switch r.data[r.pos] {
		case '"':
			r.pos++
			return nil
		case '\\':
			r.pos++
		}
	}
	r.pos = len(r.data)
	return r.expected("the end of a string")
}

// end checks that nothing but white space is left.
func (r *jsonReader) end() error {
	r.peek()
	if r.pos < len(r.data) {
		return r.expected("the end of the file")
	}
	return nil
}

// peek skips white space and returns the next byte, 0 at the end.
func (r *jsonReader) peek() byte {
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; c {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return c
		}
	}
	return 0
}

func (r *jsonReader) checkUTF8(s []byte) error {
	if !utf8.Valid(s) {
		return malformed("before byte %d: string is not valid UTF-8", r.pos)
	}
	return nil
}

func (r *jsonReader) expected(what string) error {
	if r.pos >= len(r.data) {
		return malformed("unexpected end at byte %d: expected %s", r.pos, what)
	}
	return malformed("at byte %d: expected %s, found %q", r.pos, what, r.data[r.pos])
}
