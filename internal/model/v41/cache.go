package v41

import (
	"fmt"

	"sparrow/internal/attn/dual"
	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// cache is the paged memory of a layer. A page has the same number, for the same tokens, in all pools of entries and
// keys. Window entries are in window pages.
type cache struct {
	window  kernel.Pool // an entry for each token
	entries kernel.Pool // shared entries; given if the layer computes entries
	keys    kernel.Pool // an indexer key for each shared entry
}

// layouts returns the byte layouts of a resolved configuration.
func layouts(cfg *plan.Config) (layout.V4, layout.Index, error) {
	mk, ik, err := model.Kinds(cfg)
	if err != nil {
		return nil, nil, err
	}
	entry, err := layout.V4Of(mk)
	if err != nil {
		return nil, nil, err
	}
	index, err := layout.IndexOf(ik)
	if err == nil && cfg.Page%2 != 0 {
		err = fmt.Errorf("pages have %d tokens, want an even number, so that no pair of tokens spans two pages",
			cfg.Page)
	}
	return entry, index, err
}

// entryLayout returns the layout of shared entries in the cache or, without shared entries, of window entries.
func (m *Model) entryLayout() layout.Kind {
	for _, c := range m.caches {
		if c.entries.Mem.Given() {
			return c.entries.Layout
		}
	}
	return m.caches[0].window.Layout
}

// shared returns the caches that layer i reads: its window entries, and the entries and keys of their source layers.
func (m *Model) shared(i int) *dual.SharedLayer {
	c := m.config
	out := &dual.SharedLayer{Weights: m.layers[i].attn, Window: m.caches[i].window, Publish: i == c.Candidates.Source,
		Within: c.Within(i)}
	if from := c.EntrySource(i); from >= 0 {
		out.Entries, out.Keys = m.caches[from].entries, m.caches[from].keys
	}
	return out
}

// Allocate makes the pools of every layer, with as many window pages as pages.
func (m *Model) Allocate(cfg *plan.Config, pages int) error {
	return m.AllocateWindows(cfg, pages, pages)
}

// AllocateWindows makes the pools of every layer, with a separate number of window pages. Existing states become
// invalid.
func (m *Model) AllocateWindows(cfg *plan.Config, pages, windows int) error {
	entry, index, err := layouts(cfg)
	if err != nil {
		return fmt.Errorf("v41: allocate: %w", err)
	}
	m.Free()
	m.allocated++
	m.pageTokens, m.pages = cfg.Page, pages
	window := windowOf(entry)
	if m.spark != nil && cfg.N > 1 {
		if err := m.spark.Use(m.Dev, window, cfg.Page, windows); err != nil {
			m.Free()
			return fmt.Errorf("v41: allocate: %d window pages of the drafting stages: %w", windows, err)
		}
	}
	for i := range m.layers {
		var c cache
		c.window, err = model.NewPool(m.Dev, window.Kind(), window.PageBytes(cfg.Page), windows, cfg.Page)
		if x := m.layers[i].attn.Compress; err == nil && x != nil {
			n := cfg.Page / x.Ratio
			if c.entries, err = model.NewPool(m.Dev, entry.Kind(), entry.PageBytes(n), pages, n); err == nil {
				c.keys, err = model.NewPool(m.Dev, index.Kind(), index.PageBytes(n), pages, n)
			}
		}
		m.caches = append(m.caches, c)
		if err != nil {
			m.Free()
			return fmt.Errorf("v41: allocate: %d pages and %d window pages for layer %d of %d: %w", pages, windows, i,
				len(m.layers), err)
		}
	}
	return nil
}

// windowOf returns the layout of window entries in a cache whose shared entries have the given layout.
func windowOf(entry layout.V4) layout.V4 {
	if entry.Kind() == layout.V41Row288 {
		return layout.V41Window{}
	}
	return entry
}

func (c cache) pools() []kernel.Pool {
	var out []kernel.Pool
	for _, p := range [...]kernel.Pool{c.window, c.entries, c.keys} {
		if p.Mem.Given() {
			out = append(out, p)
		}
	}
	return out
}

// Free frees the pools.
func (m *Model) Free() {
	for _, c := range m.caches {
		for _, p := range c.pools() {
			m.Dev.Free(p.Mem.Buf)
		}
	}
	m.caches = nil
	if m.spark != nil {
		m.spark.Free(m.Dev)
	}
}

// Sizes holds the sizes of the cache over all layers, in bytes.
type Sizes struct {
	Page   int64 // bytes of entries and indexer keys of a page
	Window int64 // bytes of a window page
	State  int64 // bytes of the rings of raw rows, for each sequence
}

// SizesOf computes the sizes for a config and pages of the given number of tokens.
func SizesOf(c *config.V41, entry layout.V4, index layout.Index, page int) Sizes {
	s := Sizes{Window: int64(c.Layers * windowOf(entry).PageBytes(page))}
	for _, l := range c.EntrySources {
		ratio := c.Attention.Ratios[l]
		s.Page += int64(entry.PageBytes(page/ratio) + index.PageBytes(page/ratio))
		if ratio > 1 {
			s.State += int64(dual.RingBytes(ratio, c.Attention.Dim))
		}
	}
	return s
}

// PageBytes returns the size in bytes of one page and one window page over all layers.
func (m *Model) PageBytes(cfg *plan.Config) int64 {
	s := m.sizes(cfg)
	return s.Page + s.Window
}

// Window returns the number of tokens to whose window entries a row attends, including its own. Blocks of drafting
// stages attend to the same number of tokens before their first token.
func (m *Model) Window() int {
	if m.spark != nil {
		return m.config.Attention.Window + 1
	}
	return m.config.Attention.Window
}

// WindowBytes returns the size in bytes of one window page over all layers.
func (m *Model) WindowBytes(cfg *plan.Config) int64 { return m.sizes(cfg).Window }

func (m *Model) sizes(cfg *plan.Config) Sizes {
	entry, index, err := layouts(cfg)
	if err != nil {
		return Sizes{}
	}
	s := SizesOf(m.config, entry, index, cfg.Page)
	if m.spark != nil && cfg.N > 1 {
		s.Window += int64(m.config.DSpark.Stages * windowOf(entry).PageBytes(cfg.Page))
	}
	return s
}

// Pools returns the pools of every layer, for callers that read or write their bytes: the pool of window entries, then
// the pools of entries and indexer keys if the layer computes them. The pools of drafting stages are last, if they are
// used.
func (m *Model) Pools() [][]kernel.Pool {
	var out [][]kernel.Pool
	for _, c := range m.caches {
		out = append(out, c.pools())
	}
	if m.spark != nil {
		for _, p := range m.spark.Windows {
			out = append(out, []kernel.Pool{p})
		}
	}
	return out
}

// PageParts appends the entries and indexer keys of a page, once for all layers that read them.
func (m *Model) PageParts(parts []kernel.Tensor, page int) []kernel.Tensor {
	for _, c := range m.caches {
		for _, p := range [...]kernel.Pool{c.entries, c.keys} {
			if p.Mem.Given() {
				parts = append(parts, model.PagePart(p, page))
			}
		}
	}
	return parts
}

// WindowParts appends the window entries of a window page, layer by layer.
func (m *Model) WindowParts(parts []kernel.Tensor, window int) []kernel.Tensor {
	for _, c := range m.caches {
		parts = append(parts, model.PagePart(c.window, window))
	}
	if m.spark != nil {
		for _, p := range m.spark.Windows {
			parts = append(parts, model.PagePart(p, window))
		}
	}
	return parts
}
