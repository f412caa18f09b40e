package jinja

import (
	"errors"
	"fmt"
)

var (
	// ErrSyntax is wrapped by Compile when the source is not a template.
	ErrSyntax = errors.New("syntax error")
	// ErrUnsupported is wrapped by Compile and Render for a part of Jinja2 this package leaves out.
	ErrUnsupported = errors.New("unsupported")
	// ErrRuntime is wrapped by Render when an expression cannot be evaluated.
	ErrRuntime = errors.New("runtime error")
	// ErrRaised is wrapped by Render when the template itself calls raise_exception.
	ErrRaised = errors.New("raised by the template")
	// ErrLimit is wrapped when a template needs more than its limits allow.
	ErrLimit = errors.New("limit exceeded")
	// ErrJSON is wrapped by ParseJSON.
	ErrJSON = errors.New("invalid JSON")
)

// Error is a failure at a place in the template.
type Error struct {
	Line, Column int // both from 1; the column counts characters
	Err          error
}

// Error gives the place and the cause.
func (e *Error) Error() string {
	return fmt.Sprintf("line %d, column %d: %v", e.Line, e.Column, e.Err)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// pos is a byte offset in the template's source; Template turns it into a line and a column.
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

// failure is the panic value of an evaluation that cannot continue; rescue turns it into an error where the evaluation
// began. An expression is evaluated deep inside others, and nothing in between can handle its failure.
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
