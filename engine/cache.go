package engine

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/kv"
	"sparrow/plan"
	"sparrow/sched"
	"sparrow/step"
)

// defaultContexts is how many full contexts the cache holds, memory permitting.
const defaultContexts = 4

// cacheSize is how large a cache is.
type cacheSize struct {
	pages  int
	window kv.Window // none unless the model is windowed
	bytes  int64     // of both
	states int64     // bytes of the states of all sequences that can run
	arena  int64     // bytes that the largest pass over such a cache takes
}

func (s *cacheSize) total() int64 { return s.bytes + s.states + s.arena }

// deviceMemory is what the device had when the weights were loaded; 0 where it does not say.
type deviceMemory struct{ free, total int64 }

// sizeCache sizes the cache: by what was asked for, or by what the device has free.
func (e *Engine) sizeCache(cfg *plan.Config) (_ cacheSize, err error) {
	if e.memory.free, e.memory.total, err = kernel.MemoryFree(e.model.Device()); err != nil {
		return cacheSize{}, err
	}
	tokens := e.cfg.CacheTokens
	switch free := e.memory.free; {
	case tokens > 0:
	case onDevice(cfg):
		// The memory of a GPU has no other use: as much as all sequences that can run may fill.
		tokens = min(e.cfg.MaxRunning*e.model.Config().MaxPositions, cfg.Page*e.pagesIn(cfg, e.cacheLimit(cfg)))
	default:
		tokens = defaultContexts * e.model.Config().MaxPositions
		if free > 0 {
			// Pages take a quarter of the free memory: activations and everything else need the rest.
			tokens = min(tokens, cfg.Page*e.mostPages(cfg, free/4, func(s cacheSize) bool {
				return s.bytes <= free/4 && s.total() <= spare(free, e.mapped(cfg))
			}))
		}
	}
	if err := e.checkCache(cfg, tokens); err != nil {
		return cacheSize{}, err
	}
	s := e.cacheOf(cfg, wholePages(tokens, cfg.Page))
	if s.pages < 1 {
		return s, fmt.Errorf("sparrow: a cache of %d tokens holds no page of %d tokens; "+
			"ask for more with CacheTokens (--cache-tokens)",
			tokens, cfg.Page)
	}
	return s, nil
}

// wholePages is how many pages hold so many tokens; who asks for 100 tokens gets no fewer.
func wholePages(tokens, page int) int {
	n := tokens / page
	if tokens%page > 0 {
		n++
	}
	return n
}

// maxCacheBytes bounds a cache on a machine whose memory is not known; it keeps the arithmetic within an integer.
const maxCacheBytes int64 = 1 << 46

// cacheLimit is the most memory that a cache and the passes over it can have. On a GPU that is what is free beside the
// weights, less what operations take and a sixteenth for everything else.
func (e *Engine) cacheLimit(cfg *plan.Config) int64 {
	switch {
	case e.memory.total == 0:
		return maxCacheBytes
	case onDevice(cfg):
		return max(e.memory.free-e.memory.free/16-e.cfg.ReservedBytes, 0)
	}
	return spare(e.memory.total, e.cfg.WeightBytes)
}

// spare is what is left of memory beside the weights, less an eighth for everything else. Weights that do not all fit
// are read from their files again and again, and leave half of the memory.
func spare(memory, weights int64) int64 {
	memory -= memory / 8
	return max(memory-weights, memory/2)
}

// mapped is the bytes of weights that lie in pages of a file, which count as free memory.
func (e *Engine) mapped(cfg *plan.Config) int64 {
	if e.cfg.Packed || cfg.Hardware.Arch != plan.CPU {
		return 0
	}
	return e.cfg.WeightBytes
}

// checkCache refuses a cache that the machine cannot hold. The system gives out the memory of the cache as it fills, so
// a larger one would end the process later.
func (e *Engine) checkCache(cfg *plan.Config, tokens int) error {
	limit := e.cacheLimit(cfg)
	pages := e.pagesIn(cfg, limit)
	if wholePages(tokens, cfg.Page) <= pages {
		return nil
	}
	// In floating point: the bytes of a very large number of tokens overflow an integer.
	more := e.cacheOf(cfg, pages+1)
	asked := float64(tokens/cfg.Page) / float64(pages+1) * float64(more.total())
	const gib = 1 << 30
	machine := "the system does not say how much memory it has"
	if total := e.memory.total; total > 0 {
		machine = fmt.Sprintf("the machine has %.1f, the weights take %.1f", float64(total)/gib,
			float64(e.cfg.WeightBytes)/gib)
		if onDevice(cfg) {
			machine = fmt.Sprintf("the GPU has %.1f, %.1f of them free beside the weights", float64(total)/gib,
				float64(e.memory.free)/gib)
		}
	}
	err := fmt.Errorf("sparrow: a cache of %d tokens needs %.1f GiB; %.1f GiB are there for it (%s)",
		tokens, asked/gib, float64(limit)/gib, machine)
	if pages < 1 {
		return fmt.Errorf("%w: not one page of %d tokens fits beside the states of %d sequences; "+
			"ask for a smaller layout (--kv) or fewer sequences (--max-running)", err, cfg.Page, e.cfg.MaxRunning)
	}
	return fmt.Errorf("%w: ask for at most --cache-tokens %d, or leave it out to size the cache by what is free", err,
		pages*cfg.Page)
}

// pagesIn is how many pages, with the window pages, states and passes that go with them, fit in that many bytes.
func (e *Engine) pagesIn(cfg *plan.Config, bytes int64) int {
	return e.mostPages(cfg, bytes, func(s cacheSize) bool { return s.total() <= bytes })
}

// mostPages is the largest number of pages of that many bytes whose cache fits. What a cache takes grows with its
// pages.
func (e *Engine) mostPages(cfg *plan.Config, bytes int64, fits func(cacheSize) bool) int {
	low, high := 0, int(bytes/max(e.model.PageBytes(cfg)-e.windowBytes(cfg), 1))
	for low < high {
		mid := low + (high-low+1)/2
		if fits(e.cacheOf(cfg, mid)) {
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
	s.arena = e.arenaBytes(cfg, min(e.model.Config().MaxPositions, pages*cfg.Page))
	if e.windowed != nil {
		s.window = kv.SizeWindow(kv.Load{Pages: pages, PageTokens: cfg.Page, Window: e.windowed.Window(),
			Running: e.cfg.MaxRunning, StepTokens: e.cfg.StepTokens})
		s.bytes += int64(s.window.Pages) * e.windowBytes(cfg)
		s.states = int64(e.cfg.MaxRunning) * e.windowed.StateBytes(cfg)
	}
	return s
}

// arenaBytes is the memory of passes over sequences of at most context tokens; 0 where no pass can be planned, which
// New then reports for the engine's own context.
func (e *Engine) arenaBytes(cfg *plan.Config, context int) int64 {
	n, err := step.Measure(e.model, *cfg, e.limits(context))
	if err != nil {
		return 0
	}
	if e.divides() {
		inner, err := step.Measure(e.model, *cfg, e.innerLimits(context))
		if err != nil {
			return 0
		}
		n += inner
	}
	return n
}

// limits bound the passes of sequences of at most context tokens.
func (e *Engine) limits(context int) step.Limits {
	l := step.Limits{Rows: e.cfg.StepTokens, Requests: min(e.cfg.MaxRunning, e.cfg.StepTokens),
		Prompts: sched.DefaultMaxPrompts, Context: max(context, 1), PromptLogits: e.promptLogits(),
		Draws: e.draws, PadStates: e.cfg.PadStates}
	if e.cfg.NoGraphs {
		l.GraphBytes = -1
	}
	e.limitRecords(&l)
	return l
}

func (e *Engine) windowBytes(cfg *plan.Config) int64 {
	if e.windowed == nil {
		return 0
	}
	return e.windowed.WindowBytes(cfg)
}

// allocateCache makes the model's cache, and the states of as many sequences as can run: no pass takes memory later.
func (e *Engine) allocateCache(cfg *plan.Config, s cacheSize) error {
	if e.stateful != nil {
		if err := e.stateful.Reserve(e.cfg.MaxRunning); err != nil {
			return err
		}
	}
	if e.windowed == nil {
		return e.model.Allocate(cfg, s.pages)
	}
	return e.windowed.AllocateWindows(cfg, s.pages, s.window.Pages)
}
