package server

import (
	"context"
	"time"

	"sparrow"
	"sparrow/chat"
)

// Engine is the server's interface to an engine. Its methods may be called from any goroutine.
type Engine interface {
	// Stream submits a request. The stream ends early when ctx does.
	Stream(ctx context.Context, r sparrow.Request) (Stream, error)
	Info() sparrow.Info
	Stats() sparrow.Stats
	// Wait estimates how long a request of a tenant would wait.
	Wait(tenant, source string) time.Duration
	// Plans returns the latest steps, oldest first.
	Plans() []sparrow.PlanRecord
	Encode(text string, addSpecial bool) ([]int32, error)
	// Decode returns the bytes of the tokens, special tokens included; they need not be whole characters.
	Decode(ids []int32) (string, error)
	// Flush drops every cached page before the next step. Running requests continue.
	Flush(ctx context.Context) error
	// EncodeChat writes the prompt of a conversation and encodes it as a completion would; addSpecial also adds the
	// tokenizer's special tokens around the text.
	EncodeChat(r *chat.Request, addSpecial bool) ([]int32, error)
	// Sleep releases the engine's memory and Wake allocates it again; UpdateWeights loads the weights of another
	// checkpoint of the same shape. Running requests end first, or fail if abort is set.
	Sleep(ctx context.Context, abort bool) error
	Wake(ctx context.Context) error
	UpdateWeights(ctx context.Context, dir string, abort bool) error
	// Settle waits until the pages of finished answers can be read by other servers, or ctx ends.
	Settle(ctx context.Context)
}

// Stream returns the events of one request. One goroutine reads and closes it. The engine keeps events until they are
// read, so a slow reader delays no other request.
type Stream interface {
	// Next waits for an event; it returns false after the last one. Once the request's context has ended, the last
	// event arrives soon.
	Next() (sparrow.Event, bool)
	// Close cancels the request if it still runs.
	Close()
	// PromptTokens returns the length of the prompt.
	PromptTokens() int
	// Waited returns how long the request waited for its first step. If it has not run yet, this is the time so far.
	// Any goroutine may call it.
	Waited() time.Duration
	// Ignored returns the keywords of the request's schemas that the engine does not enforce.
	Ignored() []sparrow.Ignored
}

// Adapt wraps an open engine for the server.
func Adapt(e *sparrow.Engine) Engine { return adapter{e} }

type adapter struct{ *sparrow.Engine }

// Stream converts the engine's stream to the interface. It returns a nil interface instead of an interface with a nil
// pointer.
func (a adapter) Stream(ctx context.Context, r sparrow.Request) (Stream, error) {
	s, err := a.Engine.Stream(ctx, r)
	if err != nil {
		return nil, err
	}
	return s, nil
}
