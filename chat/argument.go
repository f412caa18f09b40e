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

// readValue emits an argument's key and changes to the state that reads its value.
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

// stringValue emits the text of a string value as soon as it is generated.
func (s *stream) stringValue() bool {
	text, which := s.text(s.value.end)
	s.arguments(jinja.EscapeJSON(text))
	if which < 0 {
		return s.cutShort()
	}
	s.arguments(`"`)
	return s.enter(s.value.next)
}

// otherValue waits for the end of a value that is not a string, because incomplete JSON cannot be parsed.
func (s *stream) otherValue() bool {
	text, which := s.upTo(s.value.end)
	if which < 0 {
		if s.done {
			s.arguments(s.consume(len(s.buf))) // the incomplete value is delivered as arguments
		}
		return s.cutShort()
	}
	s.arguments(s.value.kind.json(text))
	return s.enter(s.value.next)
}

// cutShort replaces wait in a state that delivers text immediately, because such a state has no undelivered text at the
// end of the reply.
func (s *stream) cutShort() bool {
	if s.done {
		s.commit()
		return s.wait()
	}
	return false
}

// finish emits the closing brace of the arguments.
func (s *stream) finish() {
	if s.args == 0 {
		s.arguments("{}")
		return
	}
	s.arguments("}")
}

// json converts the text of a value to JSON. If the text of a value that is not a string does not parse, it becomes a
// JSON string.
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
