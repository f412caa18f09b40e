package chat

import (
	"strings"
	"unicode/utf8"
)

// closeObject completes the text of a JSON object that was cut off, such as the arguments of a call in a reply that
// reached its token limit. An incomplete string is closed. A member name without a value, a number or a literal at the
// end is dropped, because it may be incomplete. ok is false if the text does not begin with an object or the object is
// complete.
func closeObject(text string) (whole string, ok bool) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "{") {
		return "", false
	}
	var closers []byte // closing brackets of the open brackets, innermost last
	name := false      // whether the next string of an object is a name
	end := 0           // text[:end] followed by the closers is valid JSON
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{':
			closers, name, end = append(closers, '}'), true, i+1
		case '[':
			closers, name, end = append(closers, ']'), false, i+1
		case '}', ']':
			closers, end = closers[:len(closers)-1], i+1
			if len(closers) == 0 {
				return "", false
			}
		case ',':
			name, end = closers[len(closers)-1] == '}', i
		case ':':
			name = false
		case '"':
			stop, closed := stringEnd(text, i+1)
			switch {
			case closed && !name:
				end = stop + 1
			case !closed && !name:
				return text[:stop] + `"` + reversed(closers), true
			}
			i = stop
		}
	}
	return text[:end] + reversed(closers), true
}

// stringEnd returns the end of a string that begins at from: its closing quote, or the position after its last whole
// character.
func stringEnd(text string, from int) (end int, closed bool) {
	for i := from; i < len(text); {
		size := 0
		switch {
		case text[i] == '"':
			return i, true
		case text[i] != '\\':
			_, size = utf8.DecodeRuneInString(text[i:])
		case i+1 < len(text) && text[i+1] == 'u':
			size = len(`\u0000`)
		default:
			size = len(`\n`)
		}
		if i+size > len(text) {
			return i, false
		}
		i += size
	}
	return len(text), false
}

func reversed(closers []byte) string {
	var b strings.Builder
	for i := len(closers) - 1; i >= 0; i-- {
		b.WriteByte(closers[i])
	}
	return b.String()
}
