package tokenizer

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrMalformed is returned when tokenizer.json or tokenizer_config.json is not
	// JSON of the expected shape, or contradicts itself.
	ErrMalformed = errors.New("malformed tokenizer file")

	// ErrUnsupported is returned when tokenizer.json asks for a component or an
	// option this package does not implement. The message names what was found and
	// what would have been accepted.
	ErrUnsupported = errors.New("unsupported tokenizer component")

	// ErrUnencodable is returned by Encode when the vocabulary has no token for a
	// character of the text: no byte token, no byte fallback, no unknown token.
	ErrUnencodable = errors.New("text cannot be encoded")

	// ErrTooLong is returned by Encode when a text has more tokens than the limit.
	ErrTooLong = errors.New("text exceeds the limit")

	// ErrPattern is returned by Encode when matching a pre-tokenizer pattern went
	// beyond the limits set in pattern.go.
	ErrPattern = errors.New("pre-tokenizer pattern exceeded its limits")
)

// unsupported states which kind of component was found and which ones are known.
func unsupported(component, found string, known ...string) error {
	return fmt.Errorf("%w: %s %q; supported: %s", ErrUnsupported, component, found, strings.Join(known, ", "))
}

// malformed wraps ErrMalformed with a formatted reason.
func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}
