package server

import "errors"

// ErrDraining means that the server shuts down: the request arrived after the beginning of the shutdown, or still ran
// after the grace period.
var ErrDraining = errors.New("server: shutting down")

// errGone means that the client has closed the connection, or has read nothing for Options.WriteTimeout.
var errGone = errors.New("server: the client closed the connection")

// ErrDeadline means that a request took longer than Options.RequestTimeout.
var ErrDeadline = errors.New("server: the request timed out")

// ErrCutShort means that an engine's stream ended without its last event.
var ErrCutShort = errors.New("server: the stream ended without a result")

// ErrOptions is wrapped by errors about invalid Options.
var ErrOptions = errors.New("server: invalid options")

// ErrLimits is wrapped by errors about invalid limits of tenants.
var ErrLimits = errors.New("server: invalid tenant limits")

// ErrKeys is wrapped by errors about files of keys.
var ErrKeys = errors.New("server: keys")
