package tokenizer

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrMalformed means that tokenizer.json or tokenizer_config.json is not JSON of the expected structure, or is
	// inconsistent.
	ErrMalformed = errors.New("malformed tokenizer file")

	// ErrUnsupported means that tokenizer.json contains a component or an option that this package does not implement.
	// The message names it and those that are supported.
	ErrUnsupported = errors.New("unsupported tokenizer component")

	// ErrUnencodable means that the vocabulary has no token for a character of the text: neither byte tokens nor
	// byte-fallback tokens nor an unknown token.
	ErrUnencodable = errors.New("the text cannot be encoded")

	// ErrTooLong means that a text has more tokens than the limit.
	ErrTooLong = errors.New("the text exceeds the limit")

	// ErrPattern means that a pattern of the pre-tokenizer exceeded the limits in pattern.go.
	ErrPattern = errors.New("the pattern of the pre-tokenizer exceeded its time or step limit")
)

// unsupported returns an error with the component that was found and those that are supported.
func unsupported(component, found string, known ...string) error {
	return fmt.Errorf("%w: %s %q; supported: %s", ErrUnsupported, component, found, strings.Join(known, ", "))
}

// malformed returns an ErrMalformed with a formatted reason.
func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}
