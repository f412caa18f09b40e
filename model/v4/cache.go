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

// cache is the paged memory of one layer. One page number names the same tokens in all of its pools.
type cache struct {
	window kernel.Pool // an entry for each token
	extra  kernel.Pool // an entry for each group; not given for ratio 0
	index  kernel.Pool // an indexer key for each group; given for ratio 4
}

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

// Allocate makes the pools of every layer.
func (m *Model) Allocate(cfg *plan.Config, pages int) error {
	entry, index, err := layouts(cfg)
	if err != nil {
		return fmt.Errorf("v4: allocate: %w", err)
	}
	m.Free()
	for i := range m.layers {
		var c cache
		ratio := m.layers[i].ratio
		c.window, err = model.NewPool(m.dev, entry.Kind(), entry.PageBytes(cfg.Page), pages, cfg.Page)
		if err == nil && ratio > 0 {
			c.extra, err = model.NewPool(m.dev, entry.Kind(), entry.PageBytes(cfg.Page/ratio), pages, cfg.Page/ratio)
		}
		if err == nil && ratio == indexRatio {
			c.index, err = model.NewPool(m.dev, index.Kind(), index.PageBytes(cfg.Page/ratio), pages, cfg.Page/ratio)
		}
		m.caches = append(m.caches, c)
		if err != nil {
			m.Free()
			return fmt.Errorf("v4: allocate: %d pages for layer %d of %d: %w", pages, i, len(m.layers), err)
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
	}
	m.caches = nil
}

// PageBytes is the cache memory of one page over all layers.
func (m *Model) PageBytes(cfg *plan.Config) int64 {
	entry, index, err := layouts(cfg)
	if err != nil {
		return 0
	}
	var n int64
	for i := range m.layers {
		n += int64(entry.PageBytes(cfg.Page))
		if r := m.layers[i].ratio; r > 0 {
			n += int64(entry.PageBytes(cfg.Page / r))
			if r == indexRatio {
				n += int64(index.PageBytes(cfg.Page / r))
			}
		}
	}
	return n
}

// Pools are the pools of every layer, for tests that look at bytes: the window's, then the compressed stream's and the indexer's where the
// layer has them.
func (m *Model) Pools() [][]kernel.Pool {
	var out [][]kernel.Pool
	for _, c := range m.caches {
		out = append(out, c.pools())
	}
	return out
}
