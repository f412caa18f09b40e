package sparrow

import (
	"errors"

	"sparrow/engine"
)

// ErrClosed means that the engine is shutting down or was closed.
var ErrClosed = engine.ErrClosed

// ErrQueueFull means that the maximum number of sequences is waiting; try again later.
var ErrQueueFull = engine.ErrQueueFull

// ErrSchemaMemory means that the compiled schemas of running and waiting requests use all memory reserved for schemas,
// or those of one tenant use half of it; try again later.
var ErrSchemaMemory = errors.New("sparrow: compiled schemas use too much memory")

// ErrRequest is wrapped by errors about an invalid request, for which nothing was computed. A RequestError names the
// field.
var ErrRequest = engine.ErrRequest

// ErrContext means that a prompt, or a prompt and its answer, does not fit in the context. A RequestError that wraps it
// names the field.
var ErrContext = engine.ErrContext

// ErrStep means that the forward pass of this request failed; other requests were not affected.
var ErrStep = engine.ErrStep

// ErrSelfTest means that the self-test found wrong results on the device. Open returns it.
var ErrSelfTest = engine.ErrSelfTest

// ErrAsleep means that the engine is asleep or loading other weights. It accepts no requests until it is woken up.
var ErrAsleep = errors.New("sparrow: the engine is asleep")

// ErrDevice means that the device failed. All running requests fail, and no new request is accepted.
var ErrDevice = engine.ErrDevice

// ErrUndecided means that Resolve needs information that is only known after the model was opened.
var ErrUndecided = errors.New("sparrow: the configuration of several ranks is known only when the model is open")

// ErrNoTokenizer means that the checkpoint has no tokenizer, so that only prompts of token ids are accepted.
var ErrNoTokenizer = errors.New("sparrow: the model has no tokenizer (tokenizer.json or tiktoken.model next to " +
	"safetensors files, or tokenizer.ggml in a GGUF file), so it accepts only token ids: send them to POST " +
	"/v1/completions of 'sparrow serve', or set Request.Tokens in Go")

// RequestError describes a problem in one field of a request, named as on the wire.
type RequestError = engine.RequestError
