package plan

import (
	"fmt"
	"strings"
)

// enum maps a closed set of small numbers to texts: words[i] is the text of value i. The zero value of most sets
// means "unset" and has the empty text.
type enum[T ~uint8] struct {
	noun  string
	words []string
}

func (e *enum[T]) text(v T) string {
	if int(v) < len(e.words) {
		return e.words[v]
	}
	return fmt.Sprintf("%s(%d)", e.noun, uint8(v))
}

func (e *enum[T]) marshal(v T) ([]byte, error) {
	if int(v) >= len(e.words) {
		return nil, fmt.Errorf("plan: %s %d is unknown; supported: %s", e.noun, uint8(v), e.list())
	}
	return []byte(e.words[v]), nil
}

func (e *enum[T]) unmarshal(v *T, text []byte) error {
	parsed, ok := e.find(string(text))
	if !ok {
		return fmt.Errorf("plan: unknown %s %q; supported: %s", e.noun, text, e.list())
	}
	*v = parsed
	return nil
}

// find returns the value of a word. Case, and the choice between - and _, do not matter.
func (e *enum[T]) find(word string) (T, bool) {
	folded := fold(word)
	for i, w := range e.words {
		if fold(w) == folded {
			return T(i), true
		}
	}
	return 0, false
}

func (e *enum[T]) list() string {
	named := make([]string, 0, len(e.words))
	for _, w := range e.words {
		if w != "" {
			named = append(named, w)
		}
	}
	return strings.Join(named, ", ")
}

func fold(s string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimSpace(s)), "_", "-")
}
