package engine

import (
	"fmt"

	"sparrow/internal/kv"
	"sparrow/internal/model"
	"sparrow/internal/sched"
	"sparrow/internal/step"
	"sparrow/kernel"
	"sparrow/plan"
)

// defaultContexts is the number of full contexts that the cache holds if there is enough memory.
const defaultContexts = 4

// cacheSize holds the sizes of a cache and of the memory for passes over this cache.
type cacheSize struct {
	pages  int
	window kv.Window // window pages; zero unless the model is windowed
	bytes  int64     // bytes of pages and window pages
	states int64     // bytes of the states of all sequences that can run at the same time
	arena  int64     // bytes of the arena for the largest pass over this cache
}

func (s *cacheSize) total() int64 { return s.bytes + s.states + s.arena }

// sizing divides the memory of a device between the cache and the arena of the passes.
type sizing struct {
	*setup
	free, total int64 // bytes of device memory when the weights were loaded; 0 if unknown
}

func newSizing(s *setup) (z *sizing, err error) {
	z = &sizing{setup: s}
	z.free, z.total, err = kernel.MemoryFree(s.model.Device())
	return z, err
}

// sizeCache returns the size of the cache: the size that Config requests, or a size computed from the free memory of
// the device.
func (z *sizing) sizeCache(cfg *plan.Config) (cacheSize, error) {
	tokens := z.cfg.CacheTokens
	switch free := z.free; {
	case tokens > 0:
	case onDevice(cfg):
		// Only this process uses the GPU's memory. The cache is as large as all sequences that can run at the same time
		// may fill, or as large as the memory allows.
		tokens = z.cfg.MaxRunning * z.model.Config().MaxPositions
		tokens = min(tokens, cfg.Page*z.pagesIn(cfg, z.cacheLimit(cfg), wholePages(tokens, cfg.Page)))
	default:
		tokens = defaultContexts * z.model.Config().MaxPositions
		if free > 0 {
			// Pages take at most a quarter of the free memory. The rest is for activations and for other programs.
			pages := z.mostPages(cfg, free/4, wholePages(tokens, cfg.Page), func(s cacheSize) bool {
				return s.bytes <= free/4 && s.total() <= spare(free, z.mapped(cfg))
			})
			tokens = min(tokens, cfg.Page*pages)
		}
	}
	if err := z.checkCache(cfg, tokens); err != nil {
		return cacheSize{}, err
	}
	s := z.cacheOf(cfg, wholePages(tokens, cfg.Page))
	if s.pages < 1 {
		return s, fmt.Errorf("sparrow: a cache of %d tokens is smaller than one page of %d tokens; "+
			"increase CacheTokens (--cache-tokens)",
			tokens, cfg.Page)
	}
	return s, nil
}

// wholePages returns how many pages hold the given number of tokens, rounded up.
func wholePages(tokens, page int) int {
	n := tokens / page
	if tokens%page > 0 {
		n++
	}
	return n
}

// maxCacheBytes bounds a cache on a machine whose memory size is unknown. It prevents integer overflow.
const maxCacheBytes int64 = 1 << 46

// cacheLimit returns the maximum memory for a cache and the passes over it. On a GPU this is the free memory after the
// weights were loaded, minus the memory reserved for operations and a sixteenth for other uses.
func (z *sizing) cacheLimit(cfg *plan.Config) int64 {
	switch {
	case z.total == 0:
		return maxCacheBytes
	case onDevice(cfg):
		return max(z.free-z.free/16-z.cfg.ReservedBytes, 0)
	}
	return spare(z.total, z.cfg.WeightBytes)
}

// spare returns the memory that is free after loading the weights, minus an eighth of the memory for other uses. If the
// weights do not fit in memory, they are read from their files repeatedly, and spare returns half of the memory.
func spare(memory, weights int64) int64 {
	memory -= memory / 8
	return max(memory-weights, memory/2)
}

// mapped returns the number of bytes of weights in memory-mapped files, which the system counts as free memory.
func (z *sizing) mapped(cfg *plan.Config) int64 {
	if z.cfg.Packed || cfg.Hardware.Arch != plan.CPU {
		return 0
	}
	return z.cfg.WeightBytes
}

// checkCache returns an error if a cache does not fit in the memory of the machine. The system allocates the memory of
// the cache as it fills, so the process would be killed later.
func (z *sizing) checkCache(cfg *plan.Config, tokens int) error {
	limit := z.cacheLimit(cfg)
	requested := wholePages(tokens, cfg.Page)
	pages := z.pagesIn(cfg, limit, requested)
	if pages >= requested {
		return nil
	}
	// The sum is computed in floating point, because the bytes of a very large number of tokens overflow an integer.
	more := z.cacheOf(cfg, pages+1)
	asked := float64(tokens/cfg.Page) / float64(pages+1) * float64(more.total())
	const gib = 1 << 30
	machine := "the system does not report its memory size"
	if total := z.total; total > 0 {
		machine = fmt.Sprintf("the machine has %.1f GiB, the weights take %.1f GiB", float64(total)/gib,
			float64(z.cfg.WeightBytes)/gib)
		if onDevice(cfg) {
			machine = fmt.Sprintf("the GPU has %.1f GiB, of which the weights leave %.1f GiB free", float64(total)/gib,
				float64(z.free)/gib)
		}
	}
	err := fmt.Errorf("sparrow: a cache of %d tokens needs %.1f GiB; %.1f GiB are available (%s)",
		tokens, asked/gib, float64(limit)/gib, machine)
	if pages < 1 {
		return fmt.Errorf("%w: no page of %d tokens fits next to the states of %d sequences; "+
			"choose a smaller layout (--kv) or fewer sequences (--max-running)", err, cfg.Page, z.cfg.MaxRunning)
	}
	return fmt.Errorf("%w: set --cache-tokens to at most %d, or omit it to use the free memory", err,
		pages*cfg.Page)
}

// pagesIn returns the largest number of pages, up to most, that fits in the given number of bytes, together with the
// window pages, sequence states and the arena for passes over these pages.
func (z *sizing) pagesIn(cfg *plan.Config, bytes int64, most int) int {
	return z.mostPages(cfg, bytes, most, func(s cacheSize) bool { return s.total() <= bytes })
}

// mostPages returns the largest number of pages, up to most, whose cache fits in the given number of bytes. The size of
// a cache grows with its number of pages. Usually the number most fits. It is tried first, because each trial plans the
// largest passes.
func (z *sizing) mostPages(cfg *plan.Config, bytes int64, most int, fits func(cacheSize) bool) int {
	low, high := 0, min(most, int(bytes/max(z.model.PageBytes(cfg)-z.windowBytes(cfg), 1)))
	if high > 0 && fits(z.cacheOf(cfg, high)) {
		return high
	}
	high--
	for low < high {
		mid := low + (high-low+1)/2
		if fits(z.cacheOf(cfg, mid)) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// cacheOf returns the sizes of a cache with the given number of pages.
func (z *sizing) cacheOf(cfg *plan.Config, pages int) cacheSize {
	s := cacheSize{pages: pages, bytes: int64(pages) * (z.model.PageBytes(cfg) - z.windowBytes(cfg))}
	s.arena = z.arenaBytes(cfg, min(z.model.Config().MaxPositions, pages*cfg.Page))
	if z.windowed != nil {
		load := kv.Load{Pages: pages, PageTokens: cfg.Page, Window: z.windowed.Window(), Running: z.cfg.MaxRunning,
			StepTokens: z.cfg.StepTokens}
		if m, ok := z.model.(model.Snapshotted); ok {
			load.Spacing, load.WindowBytes = m.SnapshotSpacing(), z.windowBytes(cfg)
			load.PageBytes = z.model.PageBytes(cfg) - load.WindowBytes
		}
		s.window = kv.SizeWindow(load)
		s.bytes += int64(s.window.Pages) * z.windowBytes(cfg)
		s.states = int64(z.cfg.MaxRunning) * z.windowed.StateBytes(cfg)
	}
	return s
}

// arenaBytes returns the bytes of the arena for passes over sequences of at most context tokens. It returns 0 if no
// pass can be planned; New then reports the error when it measures a pass of the engine's context length.
func (z *sizing) arenaBytes(cfg *plan.Config, context int) int64 {
	n, err := step.Measure(z.model, *cfg, z.limits(context))
	if err != nil {
		return 0
	}
	if z.divides() {
		inner, err := step.Measure(z.model, *cfg, z.innerLimits(context))
		if err != nil {
			return 0
		}
		n += inner
	}
	return n
}

// limits returns the limits of passes over sequences of at most context tokens.
func (z *sizing) limits(context int) step.Limits {
	l := step.Limits{Rows: z.cfg.StepTokens, Requests: min(z.cfg.MaxRunning, z.cfg.StepTokens),
		Prompts: sched.DefaultMaxPrompts, Context: max(context, 1), PromptLogits: z.promptLogits(),
		Draws: z.draws, PadStates: z.cfg.PadStates}
	if z.cfg.NoGraphs {
		l.GraphBytes = -1
	}
	z.limitRecords(&l)
	return l
}

func (z *sizing) windowBytes(cfg *plan.Config) int64 {
	if z.windowed == nil {
		return 0
	}
	return z.windowed.WindowBytes(cfg)
}

// allocateCache allocates the model's cache and the states of all sequences that can run, so that passes allocate
// nothing later.
func (z *sizing) allocateCache(cfg *plan.Config, s cacheSize) error {
	if z.stateful != nil {
		if err := z.stateful.Reserve(z.cfg.MaxRunning); err != nil {
			return err
		}
	}
	if z.windowed == nil {
		return z.model.Allocate(cfg, s.pages)
	}
	return z.windowed.AllocateWindows(cfg, s.pages, s.window.Pages)
}
