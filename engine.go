package sparrow

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"sparrow/chat"
	"sparrow/engine"
	"sparrow/grammar"
	"sparrow/kernel"
	"sparrow/model/family"
	"sparrow/sample"
	"sparrow/tokenizer"
)

// Engine serves one model. Its methods may be called from any goroutine. It turns text into tokens and back; generating
// is the work of its core, whose loop is the only user of the model.
type Engine struct {
	cfg     Config
	info    Info
	core    *engine.Engine
	tok     *tokenizer.Tokenizer // nil without one
	format  chat.Format          // nil without one
	grammar *grammar.Tokens      // nil without one
	eos     []int32
	noCalls sample.Mask // every token but the markers of tool calls; nil where calls have none
	// callTokens are the markers of tool calls that are control tokens
	callTokens []string

	source   *family.Source
	dev      kernel.Device
	once     sync.Once
	closeErr error // of the release, set inside once
}

// Info describes the engine.
func (e *Engine) Info() Info { return e.info }

// Stats is a snapshot of counters. It includes everything up to the last event that a stream's reader has seen.
func (e *Engine) Stats() Stats { return e.core.Stats() }

// ServePages hands cached pages in host memory to other engines, until the listener or the engine is closed.
func (e *Engine) ServePages(l net.Listener) error { return e.core.ServePages(l) }

// Settle waits until the pages of everything that has been answered so far can be pulled by others.
func (e *Engine) Settle(ctx context.Context) { e.core.Settle(ctx) }

// Wait estimates how long a request of a tenant would wait before it runs.
func (e *Engine) Wait(tenant string) time.Duration { return e.core.Wait(tenant) }

// Flush gives up every page of the prefix cache before the next step. Requests that run go on; nothing that was
// computed before is reused.
func (e *Engine) Flush(ctx context.Context) error { return e.core.Flush(ctx) }

// Plans lists recent forward passes, oldest first.
func (e *Engine) Plans() []PlanRecord { return e.core.Plans() }

// Close stops the engine: no request is accepted any more, those in flight run to their end. When ctx ends first they
// fail with ErrClosed. Every call returns once the engine is stopped and its memory is given back, with the error of
// that.
func (e *Engine) Close(ctx context.Context) error {
	e.core.Close(ctx)
	e.once.Do(func() { e.closeErr = errors.Join(e.dev.Close(), e.source.Close()) })
	return e.closeErr
}
