package sparrow

import (
	"fmt"

	"sparrow/internal/sysmem"
	"sparrow/kv"
	"sparrow/plan"
)

// defaultContexts is how many full contexts the cache holds, memory permitting.
const defaultContexts = 4

// room is how large a cache is.
type room struct {
	pages  int
	window kv.Window // none unless the model is windowed
	bytes  int64     // of both
	states int64     // bytes of the states of all sequences that can run
}

// room sizes the cache: by what was asked for, or by what the machine has.
func (e *Engine) room(cfg *plan.Config) (room, error) {
	tokens := e.cfg.CacheTokens
	if tokens == 0 {
		tokens = defaultContexts * e.model.Config().MaxPositions
		if free := sysmem.Available(); free > 0 {
			// A quarter of what the machine can give: weights, activations and everything else need the rest.
			tokens = min(tokens, e.pagesIn(cfg, free/4)*cfg.Page)
		}
	}
	r := e.roomOf(cfg, tokens/cfg.Page)
	if r.pages < 1 {
		return r, fmt.Errorf("sparrow: a cache of %d tokens holds no page of %d tokens; ask for more with CacheTokens (--cache-tokens)", tokens, cfg.Page)
	}
	return r, nil
}

// pagesIn is how many pages, with the window pages and states that go with them, fit in that many bytes.
func (e *Engine) pagesIn(cfg *plan.Config, bytes int64) int {
	low, high := 0, int(bytes/max(e.model.PageBytes(cfg)-e.windowBytes(cfg), 1))
	for low < high {
		mid := low + (high-low+1)/2
		if r := e.roomOf(cfg, mid); r.bytes+r.states <= bytes {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// roomOf is a cache of that many pages.
func (e *Engine) roomOf(cfg *plan.Config, pages int) room {
	r := room{pages: pages, bytes: int64(pages) * (e.model.PageBytes(cfg) - e.windowBytes(cfg))}
	if e.windowed != nil {
		r.window = kv.SizeWindow(kv.Load{Pages: pages, PageTokens: cfg.Page, Window: e.windowed.Window(), Running: e.cfg.MaxRunning, StepTokens: e.cfg.StepTokens})
		r.bytes += int64(r.window.Pages) * e.windowBytes(cfg)
		r.states = int64(e.cfg.MaxRunning) * e.windowed.StateBytes(cfg)
	}
	return r
}

func (e *Engine) windowBytes(cfg *plan.Config) int64 {
	if e.windowed == nil {
		return 0
	}
	return e.windowed.WindowBytes(cfg)
}

// allocate makes the model's cache.
func (e *Engine) allocate(cfg *plan.Config, r room) error {
	if e.windowed == nil {
		return e.model.Allocate(cfg, r.pages)
	}
	return e.windowed.AllocateApart(cfg, r.pages, r.window.Pages)
}
