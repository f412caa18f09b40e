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
	"sparrow/sample"
	"sparrow/tokenizer"
	"sparrow/toolcall"
)

// Engine serves one model. Its methods may be called from any goroutine. It converts text to tokens and back;
// running.core (package engine) generates tokens, and only its loop uses the model.
type Engine struct {
	cfg     Config
	info    Info
	tok     *tokenizer.Tokenizer // nil if the checkpoint has no tokenizer
	format  chat.Format          // nil if no chat format is known for the checkpoint
	noChat  error                // parse error of the chat template, with Config.PromptsOnly; else nil
	grammar *grammar.Tokens      // nil if constrained output is not available
	// compilers limits concurrent compilations of the schemas and tools of requests.
	compilers *compilers
	// tools caches compiled tools; shown caches the text of tools in prompts.
	tools   *toolcall.Store
	shown   *chat.Memo
	eos     []int32
	noCalls sample.Mask // allows every token except the markers of tool calls; nil if the chat format has none
	// callTokens lists the markers of tool calls that are control tokens.
	callTokens []string
	// developers reports whether the chat format has a developer role.
	developers bool
	// replyMarkers lists the tokens that the parser of replies looks for.
	replyMarkers []int32

	asked Config // configuration as Open received it
	once  sync.Once
	// change is held while the engine is put to sleep, woken up or given new weights.
	change   sync.Mutex
	mu       sync.RWMutex
	parts    *parts
	running  *running    // nil while the engine sleeps
	last     Stats       // counters while the engine sleeps and after it is closed
	closed   bool        // Close was called; the engine cannot wake up again
	pagesAt  string      // address at which KV pages are served; empty if they are not served
	saver    *usageSaver // nil if expert choices are not counted
	closeErr error       // error of releasing memory, set within once
}

// running is the state of an engine while it is awake.
type running struct {
	core *engine.Engine
	dev  devices
}

// Info returns the description of the engine.
func (e *Engine) Info() Info { return e.info }

// Stats returns a snapshot of the counters. It includes all work up to the last event that was read from any stream.
// Counters restart when the engine wakes up or its weights are replaced.
func (e *Engine) Stats() Stats {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.running == nil {
		return e.last
	}
	return e.running.core.Stats()
}

// core returns the running engine, or an error if the engine is asleep or closed.
func (e *Engine) core() (*engine.Engine, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	switch {
	case e.closed:
		return nil, ErrClosed
	case e.running == nil:
		return nil, ErrAsleep
	}
	return e.running.core, nil
}

// ServePages serves cached pages in host memory to other engines, until the listener or the engine is closed.
func (e *Engine) ServePages(l net.Listener) error {
	c, err := e.core()
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.pagesAt = l.Addr().String()
	e.mu.Unlock()
	return c.ServePages(l)
}

// Settle waits until other servers can read the KV pages of all requests that have ended.
func (e *Engine) Settle(ctx context.Context) {
	if c, err := e.core(); err == nil {
		c.Settle(ctx)
	}
}

// Wait estimates how long a request of a tenant would wait before it runs.
func (e *Engine) Wait(tenant, source string) time.Duration {
	c, err := e.core()
	if err != nil {
		return 0
	}
	return c.Wait(tenant, source)
}

// Flush removes every page from the prefix cache before the next step. Running requests continue; later requests do not
// reuse pages that were computed before the call.
func (e *Engine) Flush(ctx context.Context) error {
	c, err := e.core()
	if err != nil {
		return err
	}
	return c.Flush(ctx)
}

// Plans returns the recent forward passes, oldest first.
func (e *Engine) Plans() []PlanRecord {
	c, err := e.core()
	if err != nil {
		return nil
	}
	return c.Plans()
}

// Close stops the engine: no new request is accepted, and requests in flight run to their end. If ctx ends first, they
// fail with ErrClosed. Every call returns after the engine has stopped and released its memory, with the error of the
// release.
func (e *Engine) Close(ctx context.Context) error {
	if c, err := e.core(); err == nil {
		c.Close(ctx) // if its ctx ends, a second call ends the requests that the first call waits for
	}
	e.once.Do(func() {
		e.change.Lock()
		defer e.change.Unlock()
		e.mu.Lock()
		e.closed = true
		e.mu.Unlock()
		e.closeErr = errors.Join(e.stop(ctx), e.saver.close(), e.parts.source.Close())
	})
	return e.closeErr
}
