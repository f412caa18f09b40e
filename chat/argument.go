package chat

import (
	"strings"

	"sparrow/chat/jinja"
)

// key hands out what comes before an argument's value: the opening brace or a comma, and the key.
func (s *stream) key(name string) {
	before := ", "
	if s.args == 0 {
		before = "{"
	}
	s.args++
	s.arguments(before + `"` + jinja.EscapeJSON(name) + `": `)
}

// value hands out an argument's value, read from its text by what the tool's schema says about it.
func (s *stream) value(kind valueKind, text string) {
	s.arguments(kind.json(text))
}

// finish hands out the end of the arguments.
func (s *stream) finish() {
	if s.args == 0 {
		s.arguments("{}")
		return
	}
	s.arguments("}")
}

// json writes the text of a value as JSON. Text that should be something else than a string but does not parse is kept as
// a string rather than lost.
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

// cutShort is wait for a state that delivers as it goes: at the end of the reply nothing is left over.
func (s *stream) cutShort() bool {
	if s.done {
		s.commit()
		return s.wait()
	}
	return false
}
