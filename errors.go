package sparrow

import (
	"errors"

	"sparrow/engine"
)

// ErrClosed means that the engine is shutting down or was closed.
var ErrClosed = engine.ErrClosed

// ErrQueueFull means that as many sequences wait as the configuration allows; try again later.
var ErrQueueFull = engine.ErrQueueFull

// ErrSchemaMemory means that the compiled schemas of requests that run or wait use all memory that is meant for them,
// or those of one tenant half of it; try again later.
var ErrSchemaMemory = errors.New("sparrow: compiled schemas use too much memory")

// ErrRequest is wrapped by every error about a request itself: it was refused and nothing was computed. A RequestError
// names the field.
var ErrRequest = engine.ErrRequest

// ErrContext is wrapped when a prompt, or the answer asked for after it, does not fit the context. The RequestError
// that wraps it too names the field.
var ErrContext = engine.ErrContext

// ErrStep means that the model failed on this request only; others were not affected.
var ErrStep = engine.ErrStep

// ErrSelfTest means that the self-test found a device that computes wrongly: the engine does not open.
var ErrSelfTest = engine.ErrSelfTest

// ErrAsleep means that the engine has given its memory back, or gets other weights; it accepts nothing until it wakes
// up.
var ErrAsleep = errors.New("sparrow: the engine is asleep")

// ErrDevice means that the device can no longer be used: everything that ran on it has failed, and no request is
// accepted any more.
var ErrDevice = engine.ErrDevice

// ErrUndecided means that Resolve cannot decide before the model is open.
var ErrUndecided = errors.New("sparrow: this cannot be resolved before the model is open")

// ErrNoTokenizer means that the checkpoint has no tokenizer, so that only prompts of token ids are accepted.
var ErrNoTokenizer = errors.New("sparrow: the model has no tokenizer (tokenizer.json or tiktoken.model next to " +
	"safetensors files, or tokenizer.ggml in a GGUF file), so it takes token ids alone: send them to POST " +
	"/v1/completions of 'sparrow serve', or set Request.Tokens in Go")

// RequestError is a problem of one field of a request, named as on the wire.
type RequestError = engine.RequestError
