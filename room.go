package sparrow

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/kernel/host"
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
	step   int64     // bytes that the largest step over such a cache takes
}

// memory is what the device had when the weights were there; 0 where it does not say.
type memory struct{ free, total int64 }

// room sizes the cache: by what was asked for, or by what the device has free.
func (e *Engine) room(cfg *plan.Config) (_ room, err error) {
	if e.memory.free, e.memory.total, err = kernel.MemoryFree(e.dev); err != nil {
		return room{}, err
	}
	tokens := e.cfg.CacheTokens
	if tokens == 0 {
		tokens = defaultContexts * e.model.Config().MaxPositions
		if free := e.memory.free; free > 0 {
			// Pages take a quarter of what the device can give: activations and everything else need the rest.
			tokens = min(tokens, cfg.Page*e.mostPages(cfg, free/4, func(r room) bool {
				return r.bytes <= free/4 && r.all() <= spare(free, e.mapped(cfg))
			}))
		}
	}
	if err := e.fits(cfg, tokens); err != nil {
		return room{}, err
	}
	r := e.roomOf(cfg, tokens/cfg.Page)
	if r.pages < 1 {
		return r, fmt.Errorf("sparrow: a cache of %d tokens holds no page of %d tokens; ask for more with CacheTokens (--cache-tokens)", tokens, cfg.Page)
	}
	return r, nil
}

// mostCache is the memory a cache may take on a machine whose size is not known; it bounds the arithmetic, not the machine.
const mostCache int64 = 1 << 46

// cacheLimit is the memory a cache and the steps over it can have at most.
func (e *Engine) cacheLimit() int64 {
	if e.memory.total == 0 {
		return mostCache
	}
	return spare(e.memory.total, e.source.Weights.Bytes())
}

// spare is what is left of memory beside the weights, less an eighth for everything else. Weights that do not all fit
// are read from their files again and again, and leave half of the memory.
func spare(memory, weights int64) int64 {
	memory -= memory / 8
	return max(memory-weights, memory/2)
}

// mapped is the bytes of weights that lie in pages of a file, which count as free memory.
func (e *Engine) mapped(cfg *plan.Config) int64 {
	if e.cfg.Pack || cfg.Hardware.Arch != plan.CPU {
		return 0
	}
	return e.source.Weights.Bytes()
}

// fits refuses a cache that the machine cannot hold. Memory of the cache is taken as it fills, so a larger one would end the process later.
func (e *Engine) fits(cfg *plan.Config, tokens int) error {
	limit := e.cacheLimit()
	pages := e.pagesIn(cfg, limit)
	if tokens/cfg.Page <= pages {
		return nil
	}
	// In floating point, because an absurd number of tokens has more bytes than an integer counts.
	page := e.roomOf(cfg, pages+1)
	asked := float64(tokens/cfg.Page) / float64(pages+1) * float64(page.all())
	const gib = 1 << 30
	machine := "the system does not say how much memory it has"
	if total := e.memory.total; total > 0 {
		machine = fmt.Sprintf("the machine has %.1f, the weights take %.1f", float64(total)/gib, float64(e.source.Weights.Bytes())/gib)
	}
	err := fmt.Errorf("sparrow: a cache of %d tokens needs %.1f GiB; %.1f GiB are there for it (%s)", tokens, asked/gib, float64(limit)/gib, machine)
	if pages < 1 {
		return fmt.Errorf("%w: not one page of %d tokens fits beside the states of %d sequences; ask for a smaller layout (--kv) or fewer sequences (--max-running)", err, cfg.Page, e.cfg.MaxRunning)
	}
	return fmt.Errorf("%w: ask for at most --cache-tokens %d, or leave it out to size the cache by what is free", err, pages*cfg.Page)
}

// packable refuses weights that are to be packed and do not fit.
func packable(c Config, weights int64) error {
	if !c.Pack {
		return nil
	}
	if err := host.RoomToPack(weights); err != nil {
		return fmt.Errorf("sparrow: %w", err)
	}
	return nil
}

// pagesIn is how many pages, with the window pages, states and steps that go with them, fit in that many bytes.
func (e *Engine) pagesIn(cfg *plan.Config, bytes int64) int {
	return e.mostPages(cfg, bytes, func(r room) bool { return r.all() <= bytes })
}

// mostPages is the largest number of pages of that many bytes whose room fits. What a room takes grows with its pages.
func (e *Engine) mostPages(cfg *plan.Config, bytes int64, fits func(room) bool) int {
	low, high := 0, int(bytes/max(e.model.PageBytes(cfg)-e.windowBytes(cfg), 1))
	for low < high {
		mid := low + (high-low+1)/2
		if fits(e.roomOf(cfg, mid)) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// all is the memory that comes with a cache.
func (r room) all() int64 { return r.bytes + r.states + r.step }

// roomOf is a cache of that many pages.
func (e *Engine) roomOf(cfg *plan.Config, pages int) room {
	r := room{pages: pages, bytes: int64(pages) * (e.model.PageBytes(cfg) - e.windowBytes(cfg))}
	r.step = e.stepBytes(cfg, min(e.model.Config().MaxPositions, pages*cfg.Page))
	if e.windowed != nil {
		r.window = kv.SizeWindow(kv.Load{Pages: pages, PageTokens: cfg.Page, Window: e.windowed.Window(), Running: e.cfg.MaxRunning, StepTokens: e.cfg.StepTokens})
		r.bytes += int64(r.window.Pages) * e.windowBytes(cfg)
		r.states = int64(e.cfg.MaxRunning) * e.windowed.StateBytes(cfg)
	}
	return r
}

// stepBytes is what a step takes at most where sequences reach a context: all its tokens at the end of one.
func (e *Engine) stepBytes(cfg *plan.Config, context int) int64 {
	chunk := min(e.cfg.StepTokens, context)
	if chunk == 0 {
		return 0
	}
	worst, err := plan.Build(*cfg, plan.NewBatch(plan.ModeExtend, plan.ExtendRequest(chunk, context-chunk)))
	if err != nil {
		return 0 // told when the engine's own context is planned for
	}
	return worst.TransientBytes
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
	return e.windowed.AllocateWindows(cfg, r.pages, r.window.Pages)
}
