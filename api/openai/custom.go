package openai

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"sparrow/internal/wire"
)

// customMember is the only argument of the function that replaces a custom tool, because the models support only
// functions.
const customMember = "input"

// CustomArguments returns the input of a custom tool as the arguments of a function.
func CustomArguments(input string) string {
	return `{"` + customMember + `": ` + string(wire.AppendString(nil, input)) + `}`
}

// CustomSchema returns the JSON schema of the arguments that CustomArguments returns. pattern, if not empty, is a
// regular expression that the input must match.
func CustomSchema(pattern string) json.RawMessage {
	text := []byte(`{"type": "object", "properties": {"` + customMember + `": {"type": "string"`)
	if pattern != "" {
		text = wire.AppendString(append(text, `, "pattern": `...), pattern)
	}
	return append(text, `}}, "required": ["`+customMember+`"], "additionalProperties": false}`...)
}

// CustomInput reads the streamed arguments of a call of a custom tool and returns the tool's input.
type CustomInput struct {
	state  inputState
	name   []byte // name of the member that is being read
	depth  int    // number of open brackets inside a value that is not a string
	quoted bool   // whether the position is inside a string of such a value
	escape []byte // escape sequence so far, from the backslash on; empty outside of one
	high   string // escape of the first half of a surrogate pair, or empty
}

type inputState uint8

const (
	inputOutside inputState = iota // before a member
	inputName                      // inside the name of a member
	inputColon                     // before the value of a member
	inputText                      // inside a string
	inputOther                     // inside a value that is not a string
)

// Feed reads more of the arguments, split at any byte.
func (r *CustomInput) Feed(piece string) string {
	var out strings.Builder
	for i := range len(piece) {
		r.byte(piece[i], &out)
	}
	return out.String()
}

func (r *CustomInput) byte(b byte, out *strings.Builder) {
	wanted := string(r.name) == customMember
	switch r.state {
	case inputOutside:
		if b == '"' {
			r.state, r.name = inputName, r.name[:0]
		}
	case inputName:
		if b == '"' {
			r.state = inputColon
		} else {
			r.name = append(r.name, b)
		}
	case inputColon:
		switch {
		case strings.IndexByte(": \t\r\n", b) >= 0:
		case b == '"':
			r.state = inputText
		default:
			r.state, r.depth, r.quoted = inputOther, 0, false
			r.other(b, wanted, out)
		}
	case inputText:
		if r.high != "" && len(r.escape) == 0 && b != '\\' { // the second half of the surrogate pair is missing
			if r.high = ""; wanted {
				out.WriteRune(utf8.RuneError)
			}
		}
		switch {
		case len(r.escape) > 0:
			r.escaped(b, wanted, out)
		case b == '\\':
			r.escape = append(r.escape, b)
		case b == '"':
			r.state = inputOutside
		case wanted:
			out.WriteByte(b)
		}
	case inputOther:
		r.other(b, wanted, out)
	}
}

// other reads one byte of a value that is not a string. The JSON text of such a value becomes the input.
func (r *CustomInput) other(b byte, wanted bool, out *strings.Builder) {
	switch {
	case len(r.escape) > 0:
		r.escape = r.escape[:0]
	case r.quoted && b == '\\':
		r.escape = append(r.escape, b)
	case b == '"':
		r.quoted = !r.quoted
	case r.quoted:
	case b == '{' || b == '[':
		r.depth++
	case (b == '}' || b == ']' || b == ',') && r.depth == 0:
		r.state = inputOutside
		return
	case b == '}' || b == ']':
		r.depth--
	}
	if wanted {
		out.WriteByte(b)
	}
}

// escaped reads one byte of an escape sequence in a string.
func (r *CustomInput) escaped(b byte, wanted bool, out *strings.Builder) {
	r.escape = append(r.escape, b)
	if r.escape[1] == 'u' && len(r.escape) < len(`\u0000`) {
		return
	}
	var text string
	switch {
	case r.high == "" && len(r.escape) > 2 && r.escape[2]|0x20 == 'd' && strings.IndexByte("89abAB", r.escape[3]) >= 0:
		r.high = string(r.escape)
	default: // a single surrogate becomes U+FFFD; an invalid escape adds no text
		_ = json.Unmarshal([]byte(`"`+r.high+string(r.escape)+`"`), &text)
		r.high = ""
	}
	r.escape = r.escape[:0]
	if wanted {
		out.WriteString(text)
	}
}
