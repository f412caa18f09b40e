package openai

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// cursor reads one JSON text from front to back. It knows where it is, as a byte offset and as a path of names and
// indices, so that every complaint can say so.
//
// There are two kinds of complaint. Problems (wrong type, unknown name) are collected and reading goes on behind the
// value. Malformed JSON is final: err is set, pos jumps to the end, and every loop ends.
type cursor struct {
	data  []byte
	pos   int
	depth int
	path  []step
	problems
	malformed *Error
}

// step is one link of a path: a member's name, or an element's index when name is empty and indexed is set.
type step struct {
	name    string
	index   int
	indexed bool
}

// shape is the JSON type of the next value.
type shape int

const (
	shapeNone shape = iota // malformed, already reported
	shapeNull
	shapeBool
	shapeNumber
	shapeString
	shapeArray
	shapeObject
)

func (s shape) String() string {
	switch s {
	case shapeNull:
		return "null"
	case shapeBool:
		return "a boolean"
	case shapeNumber:
		return "a number"
	case shapeString:
		return "a string"
	case shapeArray:
		return "an array"
	case shapeObject:
		return "an object"
	case shapeNone:
	}
	return "nothing"
}

// newCursor checks the encoding of the whole text once; strings need no second look.
func newCursor(body []byte) *cursor {
	c := &cursor{data: body}
	if !utf8.Valid(body) {
		at := 0
		for at < len(body) {
			r, size := utf8.DecodeRune(body[at:])
			if r == utf8.RuneError && size == 1 {
				break
			}
			at += size
		}
		c.fail("byte %d of the body (0x%02x) is not valid UTF-8; send JSON encoded as UTF-8", at, body[at])
	}
	return c
}

// finish wants nothing but white space behind the value and gives the verdict.
func (c *cursor) finish() *Error {
	c.space()
	if c.malformed == nil && c.pos < len(c.data) {
		c.syntax("expected the end of the body, found %s", c.found())
	}
	if c.malformed != nil {
		return c.malformed
	}
	return c.err()
}

// fail ends the reading for good. The first failure stays.
func (c *cursor) fail(format string, args ...any) {
	if c.malformed == nil {
		c.malformed = NewError(CodeInvalidJSON, c.param(), format, args...)
	}
	c.pos = len(c.data)
}

// syntax is fail for malformed JSON at the current offset.
func (c *cursor) syntax(format string, args ...any) {
	c.fail("malformed JSON at byte %d: %s", c.pos, fmt.Sprintf(format, args...))
}

// problem reports something about the value at the current path. Once the report is full, problems are only counted.
func (c *cursor) problem(code Code, format string, args ...any) {
	if c.full() {
		c.omitted++
		return
	}
	c.add(code, c.param(), format, args...)
}

// param is the current path in the notation clients know, such as messages[2].content. A path that leads far into a schema
// is cut short.
func (c *cursor) param() string {
	const most = 240
	var b strings.Builder
	for _, s := range c.path {
		switch {
		case b.Len() > most:
			return b.String() + "..."
		case s.indexed:
			fmt.Fprintf(&b, "[%d]", s.index)
		case !plainName(s.name):
			fmt.Fprintf(&b, "[%q]", clip(s.name))
		default:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s.name)
		}
	}
	return b.String()
}

// plainName says whether a name reads well in a path without quotes.
func plainName(name string) bool {
	if name == "" || len(name) > MaxNameBytes {
		return false
	}
	for i := range len(name) {
		if !nameByte(name[i]) {
			return false
		}
	}
	return true
}

func nameByte(b byte) bool {
	return b == '_' || b == '-' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

// clip shortens what a client sent to what an error message can carry.
func clip(s string) string {
	const most = 48
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

func (c *cursor) space() {
	for c.pos < len(c.data) {
		switch c.data[c.pos] {
		case ' ', '\t', '\n', '\r':
			c.pos++
		default:
			return
		}
	}
}

// peek is the next byte that is not white space, or 0 at the end. A zero byte in the text is malformed anyway.
func (c *cursor) peek() byte {
	c.space()
	if c.pos >= len(c.data) {
		return 0
	}
	return c.data[c.pos]
}

// found describes the next character for an error message.
func (c *cursor) found() string {
	if c.pos >= len(c.data) {
		return "the end of the body"
	}
	r, _ := utf8.DecodeRune(c.data[c.pos:])
	return fmt.Sprintf("%q", r)
}

// shape looks at the next value without consuming it.
func (c *cursor) shape() shape {
	switch b := c.peek(); {
	case b == '{':
		return shapeObject
	case b == '[':
		return shapeArray
	case b == '"':
		return shapeString
	case b == 't', b == 'f':
		return shapeBool
	case b == 'n':
		return shapeNull
	case b == '-', b >= '0' && b <= '9':
		return shapeNumber
	}
	for _, word := range []string{"NaN", "Infinity"} {
		if strings.HasPrefix(string(c.data[c.pos:min(c.pos+len(word), len(c.data))]), word) {
			c.syntax("%s is not a JSON number", word)
			return shapeNone
		}
	}
	c.syntax("expected a value, found %s", c.found())
	return shapeNone
}

// members yields the name of each member of the object at the cursor; the loop's body consumes the value. A name that
// appeared before is reported and its value skipped. The loop must not be left early.
func (c *cursor) members(yield func(name string) bool) {
	if !c.enter() {
		return
	}
	var seen nameSet
	for first := true; c.more('}', first); first = false {
		if c.peek() != '"' {
			c.syntax("expected a name in double quotes, found %s", c.found())
			return
		}
		name := c.text()
		if c.peek() != ':' {
			c.syntax("expected ':' after the name %q, found %s", clip(name), c.found())
			return
		}
		c.pos++
		c.path = append(c.path, step{name: name})
		if seen.add(name) {
			yield(name)
		} else {
			c.problem(CodeDuplicate, "the name appears twice in the same object; send it once")
			c.skip()
		}
		c.path = c.path[:len(c.path)-1]
	}
	c.depth--
}

// elements yields the index of each element of the array at the cursor; the loop's body consumes the value. The loop must
// not be left early.
func (c *cursor) elements(yield func(i int) bool) {
	if !c.enter() {
		return
	}
	for i := 0; c.more(']', i == 0); i++ {
		c.path = append(c.path, step{index: i, indexed: true})
		yield(i)
		c.path = c.path[:len(c.path)-1]
	}
	c.depth--
}

// enter steps over the opening bracket, which shape has seen.
func (c *cursor) enter() bool {
	if c.malformed != nil {
		return false
	}
	if c.depth++; c.depth > MaxDepth {
		c.fail("the value at byte %d is nested deeper than %d levels", c.pos, MaxDepth)
		return false
	}
	c.pos++
	return true
}

// more says whether another member or element follows, and steps over the comma or the closing bracket.
func (c *cursor) more(closer byte, first bool) bool {
	if c.malformed != nil {
		return false
	}
	b := c.peek()
	if b == closer {
		c.pos++
		return false
	}
	if first && b != 0 {
		return true
	}
	if b != ',' {
		c.syntax("expected ',' or %q, found %s", closer, c.found())
		return false
	}
	c.pos++
	if c.peek() == closer {
		c.syntax("no value follows the comma, found %s", c.found())
		return false
	}
	return true
}

// skip consumes the value at the cursor, checking its syntax and its names.
func (c *cursor) skip() {
	switch c.shape() {
	case shapeObject:
		for range c.members {
			c.skip()
		}
	case shapeArray:
		for range c.elements {
			c.skip()
		}
	case shapeString:
		c.text()
	case shapeNumber:
		c.numeral()
	case shapeBool, shapeNull:
		c.word()
	case shapeNone:
	}
}

// raw consumes the value at the cursor and returns a copy of its text, names in the order they came.
func (c *cursor) raw() json.RawMessage {
	c.space()
	from := c.pos
	c.skip()
	if c.malformed != nil {
		return nil
	}
	return json.RawMessage(append([]byte(nil), c.data[from:c.pos]...))
}

// nameSet remembers the names of one object; small ones need no map.
type nameSet struct {
	few  []string
	many map[string]struct{}
}

// add says whether the name is new.
func (s *nameSet) add(name string) bool {
	if s.many == nil {
		for _, old := range s.few {
			if old == name {
				return false
			}
		}
		if len(s.few) < 16 {
			s.few = append(s.few, name)
			return true
		}
		s.many = make(map[string]struct{}, 4*len(s.few))
		for _, old := range s.few {
			s.many[old] = struct{}{}
		}
	}
	before := len(s.many)
	s.many[name] = struct{}{}
	return len(s.many) > before
}
