package tokenizer

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrMalformed means that tokenizer.json or tokenizer_config.json is not JSON of the expected structure, or
	// contradicts itself.
	ErrMalformed = errors.New("malformed tokenizer file")

	// ErrUnsupported means that tokenizer.json contains a component or an option that this package does not implement.
	// The message names what was found and what is supported.
	ErrUnsupported = errors.New("unsupported tokenizer component")

	// ErrUnencodable means that the vocabulary has no token for a character of the text: no byte token, no byte
	// fallback, no unknown token.
	ErrUnencodable = errors.New("text cannot be encoded")

	// ErrTooLong means that a text has more tokens than the limit.
	ErrTooLong = errors.New("text exceeds the limit")

	// ErrPattern means that matching a pre-tokenizer pattern exceeded the limits in pattern.go.
	ErrPattern = errors.New("pre-tokenizer pattern exceeded its limits")
)

// unsupported returns an error with the component that was found and the supported ones.
func unsupported(component, found string, known ...string) error {
	return fmt.Errorf("%w: %s %q; supported: %s", ErrUnsupported, component, found, strings.Join(known, ", "))
}

// malformed wraps ErrMalformed with a formatted reason.
func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}
