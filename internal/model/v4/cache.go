package v4

import (
	"fmt"

	"sparrow/internal/attn/dual"
	"sparrow/internal/model"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

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
	if err == nil && cfg.Page%128 != 0 {
		err = fmt.Errorf("pages have %d tokens, want a multiple of 128, the largest compression group", cfg.Page)
	}
	return entry, index, err
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
		return fmt.Errorf("v4: allocate: %w", err)
	}
	m.Free()
	m.allocated++
	if m.draft != nil {
		drafted := entry
		if cfg.N <= 1 {
			drafted = nil
		}
		if err := m.draft.cache.Use(drafted, m.attn.States.Slots()); err != nil {
			return fmt.Errorf("v4: allocate the window rings of the drafting block: %w", err)
		}
	}
	if m.spark != nil && cfg.N > 1 {
		if err := m.spark.Use(m.Dev, entry, cfg.Page, windows); err != nil {
			m.Free()
			return fmt.Errorf("v4: allocate: %d window pages of the drafting stages: %w", windows, err)
		}
	}
	m.pageTokens, m.pages = cfg.Page, pages
	for i := range m.layers {
		var c dual.Cache
		a := m.layers[i].attn
		ratio := a.Ratio
		c.Window, err = model.NewPool(m.Dev, entry.Kind(), entry.PageBytes(cfg.Page), windows, cfg.Page)
		if err == nil && ratio > 0 {
			c.Extra, err = model.NewPool(m.Dev, entry.Kind(), entry.PageBytes(cfg.Page/ratio), pages, cfg.Page/ratio)
		}
		if err == nil && ratio == dual.IndexRatio {
			c.Index, err = model.NewPool(m.Dev, index.Kind(), index.PageBytes(cfg.Page/ratio), pages, cfg.Page/ratio)
		}
		if err == nil && ratio == dual.IndexRatio {
			if c.Tails.Main, err = kernel.New(m.Dev, kernel.F32, windows*dual.TailRows,
				2*a.Compress.Values.Out()); err == nil {
				c.Tails.Index, err = kernel.New(m.Dev, kernel.F32, windows*dual.TailRows,
					2*a.Index.Compress.Values.Out())
			}
		}
		m.caches = append(m.caches, c)
		if err != nil {
			m.Free()
			return fmt.Errorf("v4: allocate: %d pages and %d window pages for layer %d of %d: %w", pages, windows, i,
				len(m.layers), err)
		}
	}
	return nil
}

func pools(c dual.Cache) []kernel.Pool {
	var out []kernel.Pool
	for _, p := range [...]kernel.Pool{c.Window, c.Extra, c.Index} {
		if p.Mem.Given() {
			out = append(out, p)
		}
	}
	return out
}

// Free frees the pools.
func (m *Model) Free() {
	for _, c := range m.caches {
		for _, p := range pools(c) {
			m.Dev.Free(p.Mem.Buf)
		}
		c.Tails.Each(func(t kernel.Tensor) { m.Dev.Free(t.Buf) })
	}
	m.caches = nil
	if m.spark != nil {
		m.spark.Free(m.Dev)
	}
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
		s.Window += int64(len(m.spark.stages) * entry.PageBytes(cfg.Page))
	}
	return s
}

// Pools returns the pools of every layer, for callers that read or write their bytes: the pool of window entries, then
// the pools of compressed entries and of indexer keys if the layer has them. The pools of drafting stages are last, if
// they are used.
func (m *Model) Pools() [][]kernel.Pool {
	var out [][]kernel.Pool
	for _, c := range m.caches {
		out = append(out, pools(c))
	}
	if m.spark != nil {
		for _, p := range m.spark.Windows {
			out = append(out, []kernel.Pool{p})
		}
	}
	return out
}

// PageParts appends the compressed entries and indexer keys of a page, layer by layer. Entries of a drafting block
// (NextN) are in the sequence's state, those of drafting stages in window pages.
func (m *Model) PageParts(parts []kernel.Tensor, page int) []kernel.Tensor {
	for _, c := range m.caches {
		for _, p := range [...]kernel.Pool{c.Extra, c.Index} {
			if p.Mem.Given() {
				parts = append(parts, model.PagePart(p, page))
			}
		}
	}
	return parts
}

// WindowParts appends the window entries of a window page, layer by layer, each with the raw rows at the end of the
// page if the layer stores them. The entries of drafting stages follow, if they are used.
func (m *Model) WindowParts(parts []kernel.Tensor, window int) []kernel.Tensor {
	for _, c := range m.caches {
		parts = append(parts, model.PagePart(c.Window, window))
		c.Tails.Each(func(t kernel.Tensor) { parts = append(parts, model.Part(t, window, dual.TailRows)) })
	}
	if m.spark != nil {
		for _, p := range m.spark.Windows {
			parts = append(parts, model.PagePart(p, window))
		}
	}
	return parts
}
