package server

import "errors"

// ErrDraining ends requests that still run after the grace period of a shutdown, and refuses requests that arrive after
// the shutdown began.
var ErrDraining = errors.New("server: shutting down")

// errGone means that the connection accepted no more bytes: the client closed it, or stopped reading for
// Options.WriteTimeout.
var errGone = errors.New("server: the client closed the connection")

// ErrDeadline ends a request that ran longer than Options.RequestTimeout.
var ErrDeadline = errors.New("server: the request timed out")

// ErrCutShort means that an engine's stream ended without its last event.
var ErrCutShort = errors.New("server: the stream ended without a result")

// ErrOptions is wrapped by every error about Options.
var ErrOptions = errors.New("server: bad options")

// ErrLimits is wrapped by every error about the limits of tenants.
var ErrLimits = errors.New("server: bad tenant limits")

// ErrKeys is wrapped by every error about a file of keys.
var ErrKeys = errors.New("server: keys")
