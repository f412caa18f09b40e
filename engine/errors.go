package engine

import "errors"

// ErrClosed means that the engine is shutting down or was closed.
var ErrClosed = errors.New("sparrow: the engine is closed")

// ErrQueueFull means that the maximum number of sequences is waiting; try again later.
var ErrQueueFull = errors.New("sparrow: the queue is full")

// ErrRequest is wrapped by every error about an invalid request, which is refused before anything is computed. A
// RequestError names the field.
var ErrRequest = errors.New("sparrow: bad request")

// ErrContext means that a prompt, or the answer requested after it, does not fit in the context. The RequestError that
// also wraps it names the field.
var ErrContext = errors.New("sparrow: the context is too short")

// ErrStep means that the forward pass or the sampling of this request failed; other requests are not affected.
var ErrStep = errors.New("sparrow: the model failed on this request")

// RequestError describes a problem in one field of a request. Field is the field's name in the HTTP API.
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

// ErrSelfTest means that the self-test found wrong results on the device; the engine is not opened.
var ErrSelfTest = errors.New("sparrow: the self-test failed")

// ErrDevice means that the device can no longer be used: all its requests have failed, and no new request is accepted.
var ErrDevice = errors.New("sparrow: the device failed")

// diagnose returns the error with its cause, if Config.Diagnose knows one.
func (c *Config) diagnose(err error) error {
	if c.Diagnose == nil {
		return err
	}
	return c.Diagnose(err)
}
