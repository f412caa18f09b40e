package jinja

import (
	"errors"
	"fmt"
)

var (
	// ErrSyntax means that the source is not a valid template; Compile returns it.
	ErrSyntax = errors.New("syntax error")
	// ErrUnsupported means that a template uses a part of Jinja2 that this package does not support.
	ErrUnsupported = errors.New("unsupported")
	// ErrRuntime means that an expression cannot be evaluated.
	ErrRuntime = errors.New("runtime error")
	// ErrRaised means that the template called raise_exception.
	ErrRaised = errors.New("raised by the template")
	// ErrLimit means that a template exceeded one of its [Limits].
	ErrLimit = errors.New("limit exceeded")
	// ErrJSON means that ParseJSON got invalid JSON.
	ErrJSON = errors.New("invalid JSON")
)

// Error is a failure at a position in the template.
type Error struct {
	Line, Column int // from 1; the column is counted in characters
	Err          error
}

// Error returns the position and the cause.
func (e *Error) Error() string {
	return fmt.Sprintf("line %d, column %d: %v", e.Line, e.Column, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// pos is a byte offset in the template's source; error messages convert it to a line and a column.
type pos int

// fault is an error with its position in the source.
type fault struct {
	at  pos
	err error
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

func syntaxf(at pos, format string, args ...any) error {
	return &fault{at, fmt.Errorf("%w: %s", ErrSyntax, fmt.Sprintf(format, args...))}
}

func unsupportedf(at pos, format string, args ...any) error {
	return &fault{at, fmt.Errorf("%w: %s", ErrUnsupported, fmt.Sprintf(format, args...))}
}

func limitf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrLimit, fmt.Sprintf(format, args...))
}

// failure is the panic value of an evaluation that cannot continue; rescue converts it to an error where the evaluation
// began. A panic is used because evaluation is deeply recursive and only its start handles errors.
type failure struct{ err error }

func runtimef(format string, args ...any) failure {
	return failure{fmt.Errorf("%w: %s", ErrRuntime, fmt.Sprintf(format, args...))}
}

// rescue, when deferred, recovers from a failure and stores its error; other panics are not recovered.
func rescue(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		*err = r.err
	default:
		panic(r)
	}
}
