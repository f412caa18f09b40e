package chat

import (
	"strings"

	"sparrow/internal/jinja"
)

// value is the argument value that is being read: its kind, the marker that ends it, and the state after it.
type value struct {
	kind valueKind
	end  string
	next func() bool
}

// readValue emits an argument's key and enters the state that reads its value.
func (s *stream) readValue(key string, v value) bool {
	before := ", "
	if s.args == 0 {
		before = "{"
	}
	s.args++
	s.value = v
	s.arguments(before + `"` + jinja.EscapeJSON(key) + `": `)
	if v.kind != valueString {
		return s.enter(s.otherValue)
	}
	s.arguments(`"`)
	return s.enter(s.stringValue)
}

// stringValue emits a string as it arrives.
func (s *stream) stringValue() bool {
	text, which := s.text(s.value.end)
	s.arguments(jinja.EscapeJSON(text))
	if which < 0 {
		return s.cutShort()
	}
	s.arguments(`"`)
	return s.enter(s.value.next)
}

// otherValue waits for the whole value, because only then it can be parsed as JSON.
func (s *stream) otherValue() bool {
	text, which := s.upTo(s.value.end)
	if which < 0 {
		if s.done {
			s.arguments(s.consume(len(s.buf))) // the incomplete value is part of the call
		}
		return s.cutShort()
	}
	s.arguments(s.value.kind.json(text))
	return s.enter(s.value.next)
}

// cutShort is called instead of wait in a state that delivers its text immediately: at the end of the reply no text
// is pending.
func (s *stream) cutShort() bool {
	if s.done {
		s.commit()
		return s.wait()
	}
	return false
}

// finish emits the end of the arguments.
func (s *stream) finish() {
	if s.args == 0 {
		s.arguments("{}")
		return
	}
	s.arguments("}")
}

// json writes the text of a value as JSON. Text that should not be a string but does not parse is kept as a string
// rather than lost.
func (k valueKind) json(text string) string {
	quoted := `"` + jinja.EscapeJSON(text) + `"`
	if k == valueString {
		return quoted
	}
	v, err := jinja.ParseJSON([]byte(strings.TrimSpace(text)))
	if err != nil {
		return quoted
	}
	if _, isString := v.(string); k == valueMixed && (isString || !k.admits(v)) {
		return quoted
	}
	out, err := jinja.JSON(v)
	if err != nil {
		return quoted
	}
	return out
}
