package engine

import "errors"

// ErrClosed means that the engine is shutting down or was closed.
var ErrClosed = errors.New("sparrow: the engine is closed")

// ErrQueueFull means that the maximum number of sequences is waiting; try again later.
var ErrQueueFull = errors.New("sparrow: the queue is full")

// ErrRequest is wrapped by every error about a request itself: it was refused and nothing was computed. A RequestError
// names the field.
var ErrRequest = errors.New("sparrow: bad request")

// ErrContext means that a prompt, or the answer requested after it, does not fit in the context. The RequestError that
// also wraps it names the field.
var ErrContext = errors.New("sparrow: the context is too short")

// ErrStep means that the model failed on this request only; others were not affected.
var ErrStep = errors.New("sparrow: the model failed on this request")

// RequestError describes a problem in one field of a request, named as on the wire.
type RequestError struct {
	Field  string
	Reason string
	Err    error // error that found the problem, such as a grammar's error about a schema; may be nil
}

func (e *RequestError) Error() string { return ErrRequest.Error() + ": " + e.Field + ": " + e.Reason }

// Unwrap returns ErrRequest and the error that caused the refusal.
func (e *RequestError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrRequest}
	}
	return []error{ErrRequest, e.Err}
}

// ErrSelfTest means that the self-test found wrong results on the device; the engine does not open.
var ErrSelfTest = errors.New("sparrow: the self-test failed")

// ErrDevice means that the device can no longer be used: all its requests have failed, and no new request is accepted.
var ErrDevice = errors.New("sparrow: the device failed")

// diagnose adds the cause to an error, if it is known.
func (c *Config) diagnose(err error) error {
	if c.Diagnose == nil {
		return err
	}
	return c.Diagnose(err)
}
