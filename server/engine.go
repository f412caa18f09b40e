package server

import (
	"context"
	"time"

	"sparrow"
	"sparrow/chat"
)

// Engine is the interface of an engine to the server. Its methods must be safe for concurrent use.
type Engine interface {
	// Stream submits a request. If ctx ends, the request is cancelled.
	Stream(ctx context.Context, r sparrow.Request) (Stream, error)
	Info() sparrow.Info
	Stats() sparrow.Stats
	// Wait estimates the time that a new request of a tenant would wait.
	Wait(tenant, source string) time.Duration
	// Plans returns recent forward passes, oldest first.
	Plans() []sparrow.PlanRecord
	Encode(text string, addSpecial bool) ([]int32, error)
	// Decode returns the bytes of tokens, including special tokens; they may end inside a character.
	Decode(ids []int32) (string, error)
	// Flush empties the prefix cache before the next step. Running requests continue.
	Flush(ctx context.Context) error
	// EncodeChat returns the token ids of a conversation's prompt; addSpecial adds the tokenizer's special tokens.
	EncodeChat(r *chat.Request, addSpecial bool) ([]int32, error)
	// Sleep releases the engine's memory and Wake allocates it again; UpdateWeights loads weights of another checkpoint
	// with the same shape. Running requests complete first, or fail if abort is true.
	Sleep(ctx context.Context, abort bool) error
	Wake(ctx context.Context) error
	UpdateWeights(ctx context.Context, dir string, abort bool) error
	// Settle waits until other servers can read the KV pages of all requests that have ended, or until ctx ends.
	Settle(ctx context.Context)
}

// Stream returns the events of one request. Only one goroutine may use it. Events are queued until they are read, so
// that a slow reader does not delay other requests.
type Stream interface {
	// Next waits for an event; it returns false after the last one. After the request's context has ended, the last
	// event follows soon.
	Next() (sparrow.Event, bool)
	// Close cancels the request if it still runs.
	Close()
	// PromptTokens returns the length of the prompt.
	PromptTokens() int
	// Waited returns the time that the request has waited for its first step so far. It is safe for concurrent use.
	Waited() time.Duration
	// Ignored returns the schema keywords of the request that the engine does not enforce.
	Ignored() []sparrow.Ignored
}

// Adapt returns an open engine as an Engine for the server.
func Adapt(e *sparrow.Engine) Engine { return adapter{e} }

type adapter struct{ *sparrow.Engine }

// Stream submits a request. After an error the result is a nil interface, not an interface with a nil pointer.
func (a adapter) Stream(ctx context.Context, r sparrow.Request) (Stream, error) {
	s, err := a.Engine.Stream(ctx, r)
	if err != nil {
		return nil, err
	}
	return s, nil
}
