package hub

import "errors"

// Callers find out with errors.Is what kind of failure an error is.
var (
	// ErrName is a text that is not a name of a model.
	ErrName = errors.New("hub: not a model name")
	// ErrNotCached is a model that is not in the cache, or not at that revision.
	ErrNotCached = errors.New("hub: not in the cache")
	// ErrIncomplete means that files of a model are missing in the cache.
	ErrIncomplete = errors.New("hub: files are missing in the cache")
	// ErrQuant is the name of a GGUF file that none or several of a model's files have.
	ErrQuant = errors.New("hub: the name does not select one GGUF file")
	// ErrNotFound is a model or a revision that the server does not have.
	ErrNotFound = errors.New("hub: not found on the server")
	// ErrDenied is a model that the server gives only to those with a token, or to others.
	ErrDenied = errors.New("hub: access denied")
	// ErrServer is an answer that does not follow the protocol, or contents that differ from the listed ones.
	ErrServer = errors.New("hub: bad response from the server")
	// ErrUnavailable is a server that could not be reached, or that still failed after every retry.
	ErrUnavailable = errors.New("hub: the server is not available")
)
