package hub

import "errors"

// Errors; callers distinguish them with errors.Is.
var (
	// ErrName means that a text is not a name of a model.
	ErrName = errors.New("hub: not a model name")
	// ErrNotCached means that a model is not in the cache, or not with this revision.
	ErrNotCached = errors.New("hub: not in the cache")
	// ErrIncomplete means that files of a model are missing in the cache.
	ErrIncomplete = errors.New("hub: files are missing in the cache")
	// ErrQuant means that the quant of a name matches none or several of a repository's GGUF models.
	ErrQuant = errors.New("hub: the name does not select one GGUF file")
	// ErrNotFound means that the server does not have the model or the revision.
	ErrNotFound = errors.New("hub: not found on the server")
	// ErrDenied means that the server requires a token for the model, or that the token is not allowed to read it.
	ErrDenied = errors.New("hub: access denied")
	// ErrServer means that a response violates the protocol, or that a file's hash differs from the listed hash.
	ErrServer = errors.New("hub: bad response from the server")
	// ErrUnavailable means that the server could not be reached, or still failed after all retries.
	ErrUnavailable = errors.New("hub: the server is not available")
)
