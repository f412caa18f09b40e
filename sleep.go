package sparrow

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"runtime/debug"
)

// Sleep releases the memory of the device: cache, weights and passes. Running requests end first, or fail with
// ErrClosed if abort is set or ctx ends. New requests are refused with ErrAsleep. Files of the checkpoint stay mapped,
// so that waking up reads them from memory if the system kept them. Cached pages on a disk or in a store are kept too.
func (e *Engine) Sleep(ctx context.Context, abort bool) error {
	e.change.Lock()
	defer e.change.Unlock()
	if abort {
		ctx = ended()
	}
	if err := e.stop(ctx); err != nil {
		return fmt.Errorf("sparrow: releasing memory: %w", err)
	}
	return nil
}

// Wake undoes Sleep: it loads the weights and starts with an empty cache. It does nothing while the engine is awake.
func (e *Engine) Wake(ctx context.Context) error {
	e.change.Lock()
	defer e.change.Unlock()
	if _, err := e.core(); !errors.Is(err, ErrAsleep) {
		return err
	}
	return e.start(ctx, e.parts)
}

// UpdateWeights loads the weights of another checkpoint of the same shape, between steps. Running requests end first
// with the old weights, or fail if abort is set or ctx ends; until the new weights are loaded, requests are refused
// with ErrAsleep. Nothing that was computed with the old weights is reused. If the new weights cannot be used, the old
// weights stay, with an empty cache. A sleeping engine stays asleep and wakes up with the new weights.
func (e *Engine) UpdateWeights(ctx context.Context, dir string, abort bool) error {
	e.change.Lock()
	defer e.change.Unlock()
	if _, err := e.core(); errors.Is(err, ErrClosed) {
		return err
	}
	p, err := readParts(dir)
	if err != nil {
		return err
	}
	// The tokenizer and chat format stay: only weights are new.
	p.tokenizer, p.tokenizerConfig, p.generation = e.parts.tokenizer, e.parts.tokenizerConfig, e.parts.generation
	if !reflect.DeepEqual(p.source.Model, e.parts.source.Model) {
		return errors.Join(fmt.Errorf("%w: the config.json of the checkpoint in %s differs from that of the served "+
			"model; want a checkpoint with the same config.json", ErrRequest, dir), p.source.Close())
	}
	if c, err := e.core(); err == nil {
		c.Discard()
		if abort {
			ctx = ended()
		}
		if err := e.stop(ctx); err != nil {
			e.cfg.Log.Warn("releasing the memory of the old weights failed", "error", err)
		}
		if err := e.start(context.Background(), p); err != nil {
			err = fmt.Errorf("sparrow: loading the weights in %s: %w; the old weights stay in use", dir, err)
			return errors.Join(err, p.source.Close(), e.start(context.Background(), e.parts))
		}
	}
	old := e.parts
	e.mu.Lock()
	e.parts = p
	e.mu.Unlock()
	return old.source.Close()
}

// ended returns a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// stop ends the core and releases its memory. The caller holds change.
func (e *Engine) stop(ctx context.Context) error {
	e.mu.Lock()
	r := e.running
	e.running, e.last.Asleep = nil, !e.closed
	e.mu.Unlock()
	if r == nil {
		return nil
	}
	r.core.Close(ctx)
	e.mu.Lock()
	e.last = r.core.Stats() // includes the counters of requests that ended while the core closed
	e.last.Asleep = !e.closed
	e.mu.Unlock()
	if l := e.cfg.CacheEvents; l != nil {
		l.Cleared() // called here because the loop, which otherwise reports changes, has ended
	}
	err := r.dev.Close()
	debug.FreeOSMemory()
	return err
}

// start makes a core for the weights of a checkpoint and runs it. The caller holds change.
func (e *Engine) start(ctx context.Context, p *parts) error {
	r, _, err := begin(ctx, e.asked, p)
	if err != nil {
		return err
	}
	if e.pagesAt != "" {
		l, err := net.Listen("tcp", e.pagesAt)
		if err == nil {
			err = r.core.ServePages(l)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("sparrow: serving pages again: %w", err), r.abandon())
		}
	}
	go r.core.Run()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running, e.last = r, Stats{}
	return nil
}
