package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	"sparrow/internal/jsonscan"
)

// cursor reads one JSON text from front to back. It keeps the path of names and indices to the current value, which
// errors name.
//
// There are two kinds of errors. Problems (wrong type, unknown name) are collected, and reading continues behind the
// value. Malformed JSON is final: malformed is set, the position moves to the end, and every loop ends.
type cursor struct {
	jsonscan.Scanner
	path []step
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
type shape = jsonscan.Kind

const (
	shapeNone   = jsonscan.None // malformed, already reported
	shapeNull   = jsonscan.Null
	shapeBool   = jsonscan.Bool
	shapeNumber = jsonscan.Number
	shapeString = jsonscan.String
	shapeArray  = jsonscan.Array
	shapeObject = jsonscan.Object
)

// newCursor checks the encoding of the whole text once.
func newCursor(body []byte) *cursor {
	c := &cursor{Scanner: jsonscan.Scanner{Text: body, Name: "body", MaxDepth: MaxDepth}}
	c.Lone = func(at int) {
		c.problem(CodeInvalidValue, "the escape at byte %d is half of a surrogate pair, which UTF-8 text cannot hold",
			at)
	}
	if at := jsonscan.InvalidUTF8(body); at >= 0 {
		c.fail("byte %d of the body (0x%02x) is not valid UTF-8; send JSON encoded as UTF-8", at, body[at])
	}
	return c
}

// finish checks that only white space follows the value, and returns the first error or all problems.
func (c *cursor) finish() *Error {
	c.check(c.End("the end of the body"))
	if c.malformed != nil {
		return c.malformed
	}
	return c.err()
}

// fail ends reading. The first failure stays.
func (c *cursor) fail(format string, args ...any) {
	if c.malformed == nil {
		c.malformed = NewError(CodeInvalidJSON, c.param(), format, args...)
	}
	c.Pos = len(c.Text)
}

// check is fail for a syntax error; it says whether there was none.
func (c *cursor) check(err error) bool {
	if err != nil {
		c.fail("malformed JSON %v", err)
	}
	return err == nil
}

// problem reports something about the value at the current path. Once the report is full, problems are only counted.
func (c *cursor) problem(code Code, format string, args ...any) {
	if c.full() {
		c.omitted++
		return
	}
	c.add(code, c.param(), format, args...)
}

// param is the current path in the notation clients know, such as messages[2].content. A path that leads far into a
// schema is cut short.
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
			fmt.Fprintf(&b, "[%q]", jsonscan.Clip(s.name))
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

// shape looks at the next value without consuming it.
func (c *cursor) shape() shape {
	kind, err := c.Kind()
	c.check(err)
	return kind
}

// members yields the name of each member of the object at the cursor; the loop's body consumes the value. A name that
// appeared before is reported and its value skipped. The loop must not be left early.
func (c *cursor) members(yield func(name string) bool) {
	if !c.enter() {
		return
	}
	var seen nameSet
	for first := true; c.more('}', first); first = false {
		text, err := c.Member()
		if !c.check(err) {
			return
		}
		name := string(text)
		c.path = append(c.path, step{name: name})
		if seen.add(name) {
			yield(name)
		} else {
			c.problem(CodeDuplicate, "the name appears twice in the same object; send it once")
			c.skip()
		}
		c.path = c.path[:len(c.path)-1]
	}
}

// elements yields the index of each element of the array at the cursor; the loop's body consumes the value. The loop
// must not be left early.
func (c *cursor) elements(yield func(i int) bool) {
	if !c.enter() {
		return
	}
	for i := 0; c.more(']', i == 0); i++ {
		c.path = append(c.path, step{index: i, indexed: true})
		yield(i)
		c.path = c.path[:len(c.path)-1]
	}
}

// enter steps over the opening bracket, which shape has seen.
func (c *cursor) enter() bool { return c.malformed == nil && c.check(c.Enter()) }

// more says whether another member or element follows, and steps over the comma or the closing bracket.
func (c *cursor) more(closing byte, first bool) bool {
	if c.malformed != nil {
		return false
	}
	more, err := c.More(closing, first)
	return c.check(err) && more
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
	c.Next()
	from := c.Pos
	c.skip()
	if c.malformed != nil {
		return nil
	}
	return json.RawMessage(append([]byte(nil), c.Text[from:c.Pos]...))
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
