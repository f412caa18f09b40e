package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"sparrow/internal/jsonscan"
)

// Reader reads one JSON text. It tracks the path of names and indices to the current value, for errors.
//
// After a problem, such as a wrong type or an unknown name, reading continues after the value. After malformed JSON
// nothing more is read: malformed is set, and the position moves to the end.
type Reader struct {
	Problems
	scan      jsonscan.Scanner
	path      []step
	malformed *Error

	strict  bool // whether unknown fields are errors
	ignored []string
}

// step is one part of a path: the index of an element if indexed is true, otherwise the name of a member.
type step struct {
	name    string
	index   int
	indexed bool
}

// NewReader returns a reader of a body, after checking that it is UTF-8.
func NewReader(body []byte) *Reader {
	c := &Reader{scan: jsonscan.Scanner{Text: body, Name: "body", MaxDepth: MaxDepth}}
	c.scan.Lone = func(at int) {
		c.Problem(CodeInvalidValue, "the escape at byte %d is half of a surrogate pair, which UTF-8 text cannot hold",
			at)
	}
	if at := jsonscan.InvalidUTF8(body); at >= 0 {
		c.fail("byte %d of the body (0x%02x) is not valid UTF-8; send JSON encoded as UTF-8", at, body[at])
	}
	return c
}

// Finish checks that only white space follows the value, and returns the first error or all problems.
func (c *Reader) Finish() *Error {
	c.check(c.scan.End("the end of the body"))
	if c.malformed != nil {
		return c.malformed
	}
	return c.err()
}

// fail stops reading because of malformed JSON. Only the first error is kept.
func (c *Reader) fail(format string, args ...any) {
	if c.malformed == nil {
		c.malformed = NewError(CodeInvalidJSON, c.Param(), format, args...)
	}
	c.scan.Pos = len(c.scan.Text)
}

// check returns true if err is nil, otherwise it calls fail.
func (c *Reader) check(err error) bool {
	if err != nil {
		c.fail("malformed JSON %v", err)
	}
	return err == nil
}

// Problem adds a problem of the value at the current path.
func (c *Reader) Problem(code Code, format string, args ...any) {
	if c.Full() {
		c.omitted++
		return
	}
	c.Add(code, c.Param(), format, args...)
}

// Param returns the current path in the notation that clients use, such as messages[2].content. Long paths are
// shortened.
func (c *Reader) Param() string {
	return c.spelt(240, "[%q]", func(i int) string { return fmt.Sprintf("[%d]", i) })
}

// spelt returns the current path, cut after most bytes; quoted is the format of names with other characters than
// PlainLetters allows.
func (c *Reader) spelt(most int, quoted string, index func(int) string) string {
	var b strings.Builder
	for _, s := range c.path {
		switch {
		case b.Len() > most:
			return b.String() + "..."
		case s.indexed:
			b.WriteString(index(s.index))
		case !PlainName(s.name):
			fmt.Fprintf(&b, quoted, jsonscan.Clip(s.name))
		default:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s.name)
		}
	}
	return b.String()
}

// Ignore skips the current value and records that it has no effect.
func (c *Reader) Ignore() {
	c.Note()
	c.Skip()
}

// Note records that the current value, or a part of it, has no effect.
func (c *Reader) Note() {
	if name := c.place(); !slices.Contains(c.ignored, name) {
		c.ignored = append(c.ignored, name)
	}
}

// place returns the current path for Decoder.Ignored: with [] for indices, and only characters that an HTTP header
// allows.
func (c *Reader) place() string {
	if len(c.ignored) >= maxIgnored {
		return "..."
	}
	return c.spelt(math.MaxInt, "[%+q]", func(int) string { return "[]" })
}

// PlainName reports whether a name can be written in a path without quotes.
func PlainName(name string) bool {
	return name != "" && len(name) <= MaxNameBytes && PlainLetters(name)
}

// PlainLetters reports whether a name consists only of ASCII letters, digits, '_' and '-'.
func PlainLetters(name string) bool {
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

// Shape returns the kind of the next value without consuming it.
func (c *Reader) Shape() jsonscan.Kind {
	kind, err := c.scan.Kind()
	c.check(err)
	return kind
}

// Members yields the name of each member of the current object; the loop's body must consume the value. A duplicate
// name is reported and skipped. The loop must not be left early.
func (c *Reader) Members(yield func(name string) bool) {
	if !c.enter() {
		return
	}
	var seen NameSet
	for first := true; c.more('}', first); first = false {
		text, err := c.scan.Member()
		if !c.check(err) {
			return
		}
		name := string(text)
		c.path = append(c.path, step{name: name})
		if seen.Add(name) {
			yield(name)
		} else {
			c.Problem(CodeDuplicate, "the name appears twice in the same object; send it once")
			c.Skip()
		}
		c.path = c.path[:len(c.path)-1]
	}
}

// Elements yields the index of each element of the current array; the loop's body must consume the value. The loop must
// not be left early.
func (c *Reader) Elements(yield func(i int) bool) {
	if !c.enter() {
		return
	}
	for i := 0; c.more(']', i == 0); i++ {
		c.path = append(c.path, step{index: i, indexed: true})
		yield(i)
		c.path = c.path[:len(c.path)-1]
	}
}

// enter consumes an opening bracket. The caller has checked the type with Shape.
func (c *Reader) enter() bool { return c.malformed == nil && c.check(c.scan.Enter()) }

// more reports whether another member or element follows. It consumes the comma or the closing bracket.
func (c *Reader) more(closing byte, first bool) bool {
	if c.malformed != nil {
		return false
	}
	more, err := c.scan.More(closing, first)
	return c.check(err) && more
}

// Skip consumes the current value, and checks its syntax and for duplicate names.
func (c *Reader) Skip() {
	switch c.Shape() {
	case jsonscan.Object:
		for range c.Members {
			c.Skip()
		}
	case jsonscan.Array:
		for range c.Elements {
			c.Skip()
		}
	case jsonscan.String:
		c.Text()
	case jsonscan.Number:
		c.numeral()
	case jsonscan.Bool, jsonscan.Null:
		c.Word()
	case jsonscan.None:
	}
}

// Raw consumes the current value and returns a copy of its text.
func (c *Reader) Raw() json.RawMessage {
	c.scan.Next()
	from := c.scan.Pos
	c.Skip()
	if c.malformed != nil {
		return nil
	}
	return json.RawMessage(append([]byte(nil), c.scan.Text[from:c.scan.Pos]...))
}

// NameSet is a set of names. Small sets are a slice, larger ones a map.
type NameSet struct {
	few  []string
	many map[string]struct{}
}

// Add adds a name. It returns false if the set already contains it.
func (s *NameSet) Add(name string) bool {
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

// Size returns the number of bytes of the body.
func (c *Reader) Size() int { return len(c.scan.Text) }

// Clean calls read and reports whether it has added no problems.
func (c *Reader) Clean(read func()) bool {
	before := len(c.list) + c.omitted
	read()
	return c.malformed == nil && len(c.list)+c.omitted == before
}

// FirstElement returns the kind of the first element of the current array; or None if it is empty.
func (c *Reader) FirstElement() jsonscan.Kind {
	ahead := Reader{scan: jsonscan.Scanner{Text: c.scan.Text, Pos: c.scan.Pos + 1}}
	if ahead.scan.Next() == ']' {
		return jsonscan.None
	}
	return ahead.Shape()
}

// ahead returns a reader that starts at the current value and does not advance c.
func (c *Reader) ahead() *Reader {
	return &Reader{scan: jsonscan.Scanner{Text: c.scan.Text, Pos: c.scan.Pos, MaxDepth: MaxDepth}}
}

// Peek returns a copy of the text of the current value without consuming it.
func (c *Reader) Peek() json.RawMessage { return c.ahead().Raw() }

// TextMember returns a string member of the current object, or "" if there is none. It consumes nothing.
func (c *Reader) TextMember(name string) string {
	ahead, found := c.ahead(), ""
	if ahead.Shape() != jsonscan.Object {
		return ""
	}
	for member := range ahead.Members {
		if member == name && ahead.Shape() == jsonscan.String {
			found = ahead.Text()
		} else {
			ahead.Skip()
		}
	}
	return found
}
