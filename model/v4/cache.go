package v4

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/model"
	"sparrow/plan"
)

// indexRatio is the compression of the stream the indexer selects from.
const indexRatio = 4

// cache is the paged memory of one layer. One page number names the same tokens in its pools of groups and keys; window entries and the raw
// rows a page ends with have window pages.
type cache struct {
	window kernel.Pool // an entry for each token
	extra  kernel.Pool // an entry for each group; not given for ratio 0
	index  kernel.Pool // an indexer key for each group; given for ratio 4
	tails  rings       // raw rows that window pages end with, tailRows for each; given for ratio 4
}

// tailRows is how many raw rows of the end of a page a group behind it reads: those of the group before it, of ratio 4. Groups of ratio 128 read
// nothing before their own first token, and pages end where they end.
const tailRows = indexRatio

// layouts are the byte layouts of a resolved configuration.
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
		err = fmt.Errorf("pages of %d tokens, want a multiple of 128, the largest group", cfg.Page)
	}
	return entry, index, err
}

// Allocate makes the pools of every layer. Window pages have the numbers of pages.
func (m *Model) Allocate(cfg *plan.Config, pages int) error {
	return m.AllocateApart(cfg, pages, pages)
}

// AllocateApart makes the pools of every layer, with a number of window pages of its own. States made before are void.
func (m *Model) AllocateApart(cfg *plan.Config, pages, windows int) error {
	entry, index, err := layouts(cfg)
	if err != nil {
		return fmt.Errorf("v4: allocate: %w", err)
	}
	m.Free()
	if err := m.allocateDrafts(cfg, entry); err != nil {
		return fmt.Errorf("v4: allocate: rings of the drafting block: %w", err)
	}
	m.pageTokens = cfg.Page
	for i := range m.layers {
		var c cache
		ratio := m.layers[i].ratio
		c.window, err = model.NewPool(m.dev, entry.Kind(), entry.PageBytes(cfg.Page), windows, cfg.Page)
		if err == nil && ratio > 0 {
			c.extra, err = model.NewPool(m.dev, entry.Kind(), entry.PageBytes(cfg.Page/ratio), pages, cfg.Page/ratio)
		}
		if err == nil && ratio == indexRatio {
			c.index, err = model.NewPool(m.dev, index.Kind(), index.PageBytes(cfg.Page/ratio), pages, cfg.Page/ratio)
		}
		if a := &m.layers[i].attn; err == nil && ratio == indexRatio {
			if c.tails.main, err = kernel.New(m.dev, kernel.F32, windows*tailRows, 2*a.compress.width()); err == nil {
				c.tails.index, err = kernel.New(m.dev, kernel.F32, windows*tailRows, 2*a.index.compress.width())
			}
		}
		m.caches = append(m.caches, c)
		if err != nil {
			m.Free()
			return fmt.Errorf("v4: allocate: %d pages and %d window pages for layer %d of %d: %w", pages, windows, i, len(m.layers), err)
		}
	}
	return nil
}

// pools are the pools a layer has.
func (c cache) pools() []kernel.Pool {
	var out []kernel.Pool
	for _, p := range [...]kernel.Pool{c.window, c.extra, c.index} {
		if p.Mem.Given() {
			out = append(out, p)
		}
	}
	return out
}

// Free gives the pools back.
func (m *Model) Free() {
	for _, c := range m.caches {
		for _, p := range c.pools() {
			m.dev.Free(p.Mem.Buf)
		}
		m.freeRings(c.tails)
	}
	m.caches = nil
}

// PageBytes is the cache memory of one page and one window page over all layers.
func (m *Model) PageBytes(cfg *plan.Config) int64 {
	s := m.sizes(cfg)
	return s.Page + s.Window
}

// Window is how many tokens a row sees of the window stream.
func (m *Model) Window() int { return m.config.Attention.Window }

// WindowBytes is the memory of one window page over all layers.
func (m *Model) WindowBytes(cfg *plan.Config) int64 { return m.sizes(cfg).Window }

func (m *Model) sizes(cfg *plan.Config) Sizes {
	entry, index, err := layouts(cfg)
	if err != nil {
		return Sizes{}
	}
	return SizesOf(m.config, entry, index, cfg.Page)
}

// Pools are the pools of every layer, for who looks at bytes or fills them: the window's, then the compressed stream's and the indexer's where the
// layer has them.
func (m *Model) Pools() [][]kernel.Pool {
	var out [][]kernel.Pool
	for _, c := range m.caches {
		out = append(out, c.pools())
	}
	return out
}
