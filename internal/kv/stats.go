package kv

import "sparrow/internal/kv/prefix"

// Stats holds the current numbers of pages of a pool, and its counters.
type Stats struct {
	// Pages = Free + Cached + Used, without reserved pages.
	Pages, Free, Cached, Used int
	// Sequences is the number of open sequences.
	Sequences int
	// Lookups counts calls of Open, PromptTokens their tokens, and ReusedTokens the tokens found in the cache.
	Lookups, PromptTokens, ReusedTokens int64
	// Stops counts lookups by the reason why they stopped.
	Stops [prefix.Stops]int64
	// Evictions counts the cached pages that were evicted.
	Evictions int64
	// Windows is the number of window pages: free, idle, or in use. Idle window pages belong to cached pages and are
	// evicted if needed.
	Windows, WindowsFree, WindowsIdle int
	// WindowEvictions counts the idle window pages that were evicted.
	WindowEvictions int64
}

// Usage returns the share of pages in use, 0 to 1. Cached pages do not count, because they are evicted if needed.
func (s Stats) Usage() float64 { return float64(s.Used) / float64(s.Pages) }

// Add adds the numbers of another pool.
func (s *Stats) Add(o Stats) {
	s.Pages, s.Free, s.Cached, s.Used = s.Pages+o.Pages, s.Free+o.Free, s.Cached+o.Cached, s.Used+o.Used
	s.Sequences += o.Sequences
	s.Lookups, s.PromptTokens, s.ReusedTokens = s.Lookups+o.Lookups, s.PromptTokens+o.PromptTokens,
		s.ReusedTokens+o.ReusedTokens
	for i, n := range o.Stops {
		s.Stops[i] += n
	}
	s.Evictions, s.WindowEvictions = s.Evictions+o.Evictions, s.WindowEvictions+o.WindowEvictions
	s.Windows, s.WindowsFree, s.WindowsIdle = s.Windows+o.Windows, s.WindowsFree+o.WindowsFree,
		s.WindowsIdle+o.WindowsIdle
}

// Stats returns the current values.
func (p *Pool) Stats() Stats {
	s := Stats{
		Pages: p.cfg.Pages - p.cfg.FirstPage, Free: len(p.free), Cached: p.index.Idle(), Sequences: len(p.open),
		Lookups: p.count.lookups, PromptTokens: p.count.prompt, ReusedTokens: p.count.reused, Stops: p.count.stops,
		Evictions: p.count.evictions,
	}
	s.Used = s.Pages - s.Free - s.Cached
	if w := p.win; w != nil {
		s.Windows, s.WindowsFree, s.WindowsIdle, s.WindowEvictions = p.cfg.Window.Pages, len(w.free), w.idle,
			w.evictions
	}
	return s
}

// counters holds the counters of a pool, which never decrease.
type counters struct {
	lookups, prompt, reused, evictions int64
	stops                              [prefix.Stops]int64
}

func (c *counters) lookup(m Match) {
	c.lookups++
	c.prompt += int64(m.Prompt)
	c.reused += int64(m.Tokens)
	c.stops[m.Stop]++
}
