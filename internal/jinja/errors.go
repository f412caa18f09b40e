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
	// ErrRaised means that the template itself called raise_exception.
	ErrRaised = errors.New("raised by the template")
	// ErrLimit means that a template exceeded its limits.
	ErrLimit = errors.New("limit exceeded")
	// ErrJSON means that ParseJSON got invalid JSON.
	ErrJSON = errors.New("invalid JSON")
)

// Error is a failure at a position in the template.
type Error struct {
	Line, Column int // both from 1; the column counts characters
	Err          error
}

// Error returns the position and the cause.
func (e *Error) Error() string {
	return fmt.Sprintf("line %d, column %d: %v", e.Line, e.Column, e.Err)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// pos is a byte offset in the template's source; Template converts it to a line and a column.
type pos int

// fault is an error with a position, before the source text is added.
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
// began. Expressions are evaluated deep inside others, and no level in between can handle a failure.
type failure struct{ err error }

func runtimef(format string, args ...any) failure {
	return failure{fmt.Errorf("%w: %s", ErrRuntime, fmt.Sprintf(format, args...))}
}

// rescue stores the failure that ended an evaluation; other panics continue. It is deferred.
func rescue(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		*err = r.err
	default:
		panic(r)
	}
}
