package sparrow

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"runtime/debug"
)

// Sleep releases the device memory of cache, weights and passes. Running requests complete first, or fail with
// ErrClosed if abort is true or ctx ends. New requests fail with ErrAsleep. Files of the checkpoint stay mapped, so
// that Wake may read them from the page cache. Cached pages on disk and in a store are kept.
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

// Wake loads the weights again and starts with an empty cache. It does nothing unless the engine is asleep.
func (e *Engine) Wake(ctx context.Context) error {
	e.change.Lock()
	defer e.change.Unlock()
	if _, err := e.core(); !errors.Is(err, ErrAsleep) {
		return err
	}
	return e.start(ctx, e.parts)
}

// UpdateWeights loads the weights of another checkpoint with the same shape. Running requests complete first, or fail
// if abort is true or ctx ends. Until the new weights are loaded, requests fail with ErrAsleep. The cache is emptied.
// If the new weights cannot be used, the old ones are loaded again. A sleeping engine stays asleep; Wake then loads the
// new weights.
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
	// The tokenizer and chat format are not replaced.
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

// ended returns a cancelled context.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// stop closes the core and releases its memory. The caller holds change.
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
	e.last = r.core.Stats() // includes requests that ended while the core closed
	e.last.Asleep = !e.closed
	e.mu.Unlock()
	if l := e.cfg.CacheEvents; l != nil {
		l.Cleared() // the core's loop has ended, so it does not report this
	}
	err := r.dev.Close()
	debug.FreeOSMemory()
	return err
}

// start creates a core for the weights of a checkpoint and runs its loop. The caller holds change.
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
