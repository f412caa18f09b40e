package engine

import (
	"fmt"

	"sparrow/internal/sysmem"
	"sparrow/kv"
	"sparrow/plan"
)

// defaultContexts is how many full contexts the cache holds, memory permitting.
const defaultContexts = 4

// cacheSize is how large a cache is.
type cacheSize struct {
	pages  int
	window kv.Window // none unless the model is windowed
	bytes  int64     // of both
	states int64     // bytes of the states of all sequences that can run
}

func (s *cacheSize) total() int64 { return s.bytes + s.states }

// sizeCache sizes the cache: by what was asked for, or by what the machine has.
func (e *Engine) sizeCache(cfg *plan.Config) (cacheSize, error) {
	tokens := e.cfg.CacheTokens
	if tokens == 0 {
		tokens = defaultContexts * e.model.Config().MaxPositions
		if free := sysmem.Available(); free > 0 {
			// A quarter of the free memory: weights, activations and everything else need the rest.
			tokens = min(tokens, e.pagesIn(cfg, free/4)*cfg.Page)
		}
	}
	if err := e.checkCache(cfg, tokens); err != nil {
		return cacheSize{}, err
	}
	s := e.cacheOf(cfg, tokens/cfg.Page)
	if s.pages < 1 {
		return s, fmt.Errorf("sparrow: a cache of %d tokens holds no page of %d tokens; ask for more with CacheTokens (--cache-tokens)",
			tokens, cfg.Page)
	}
	return s, nil
}

// maxCacheBytes bounds a cache on a machine whose memory is not known; it keeps the arithmetic within an integer.
const maxCacheBytes int64 = 1 << 46

// cacheLimit is the most memory a cache can have: what the machine has, less an eighth for everything else and less the weights. Weights
// that do not all fit are read from their files again and again, and leave the cache half of the memory.
func (e *Engine) cacheLimit() int64 {
	total := sysmem.Total()
	if total == 0 {
		return maxCacheBytes
	}
	total -= total / 8
	return max(total-e.cfg.WeightBytes, total/2)
}

// checkCache refuses a cache that the machine cannot hold. The system gives out the memory of the cache as it fills, so a larger one
// would end the process later.
func (e *Engine) checkCache(cfg *plan.Config, tokens int) error {
	limit := e.cacheLimit()
	pages := e.pagesIn(cfg, limit)
	if tokens/cfg.Page <= pages {
		return nil
	}
	// In floating point: the bytes of a very large number of tokens overflow an integer.
	more := e.cacheOf(cfg, pages+1)
	asked := float64(tokens/cfg.Page) / float64(pages+1) * float64(more.total())
	const gib = 1 << 30
	machine := "the system does not say how much memory it has"
	if total := sysmem.Total(); total > 0 {
		machine = fmt.Sprintf("the machine has %.1f, the weights take %.1f", float64(total)/gib, float64(e.cfg.WeightBytes)/gib)
	}
	err := fmt.Errorf("sparrow: a cache of %d tokens needs %.1f GiB; %.1f GiB are there for it (%s)",
		tokens, asked/gib, float64(limit)/gib, machine)
	if pages < 1 {
		return fmt.Errorf("%w: not one page of %d tokens fits beside the states of %d sequences; ask for a smaller layout (--kv) or "+
			"fewer sequences (--max-running)", err, cfg.Page, e.cfg.MaxRunning)
	}
	return fmt.Errorf("%w: ask for at most --cache-tokens %d, or leave it out to size the cache by what is free", err, pages*cfg.Page)
}

// pagesIn is how many pages, with the window pages and states that go with them, fit in that many bytes.
func (e *Engine) pagesIn(cfg *plan.Config, bytes int64) int {
	low, high := 0, int(bytes/max(e.model.PageBytes(cfg)-e.windowBytes(cfg), 1))
	for low < high {
		mid := low + (high-low+1)/2
		if s := e.cacheOf(cfg, mid); s.total() <= bytes {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// cacheOf is the size of a cache of that many pages.
func (e *Engine) cacheOf(cfg *plan.Config, pages int) cacheSize {
	s := cacheSize{pages: pages, bytes: int64(pages) * (e.model.PageBytes(cfg) - e.windowBytes(cfg))}
	if e.windowed != nil {
		s.window = kv.SizeWindow(kv.Load{Pages: pages, PageTokens: cfg.Page, Window: e.windowed.Window(), Running: e.cfg.MaxRunning,
			StepTokens: e.cfg.StepTokens})
		s.bytes += int64(s.window.Pages) * e.windowBytes(cfg)
		s.states = int64(e.cfg.MaxRunning) * e.windowed.StateBytes(cfg)
	}
	return s
}

func (e *Engine) windowBytes(cfg *plan.Config) int64 {
	if e.windowed == nil {
		return 0
	}
	return e.windowed.WindowBytes(cfg)
}

// allocateCache makes the model's cache.
func (e *Engine) allocateCache(cfg *plan.Config, s cacheSize) error {
	if e.windowed == nil {
		return e.model.Allocate(cfg, s.pages)
	}
	return e.windowed.AllocateApart(cfg, s.pages, s.window.Pages)
}
