package dsa

import (
	"fmt"

	"sparrow/internal/attn/mla"
	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// Facts returns the properties that plans depend on: those of one rank, if there are several ranks.
func (m *Model) Facts() plan.Model {
	f, err := model.Divide(Facts(m.config), m.Ranks)
	if err != nil {
		panic(err) // Load has divided the same config
	}
	return f
}

// Facts returns the properties of a config that plans depend on. No weights are needed.
func Facts(c *config.DSA) plan.Model {
	f := plan.Model{
		Family:             families[c.Family],
		Heads:              c.Attention.Heads,
		K:                  c.Indexer.TopK,
		IndexHeads:         c.Indexer.Heads,
		QKDim:              c.Attention.QK(),
		VDim:               c.Attention.V,
		Layers:             c.Layers,
		NextN:              c.NextN,
		Context:            c.MaxPositions,
		LayerSupportsDense: true,
		Share:              plan.LayerShare{Types: c.Indexer.Shared},
		Experts:            plan.ExpertFacts{Count: c.FFN.Experts, Chosen: c.FFN.TopK, Dense: c.FFN.Dense},
	}
	return f
}

// families maps the families of configs to those of plans.
var families = map[config.Family]plan.Family{
	config.DeepseekV32: plan.DeepSeekV32, config.GLMMoeDSA: plan.GLMMoeDSA, config.DeepseekV3: plan.DeepSeekV3,
	config.KimiK2: plan.KimiK2, config.KimiK25: plan.KimiK2, config.GLM4MoeLite: plan.GLM4MoeLite,
}

// layouts returns the byte layouts of a resolved configuration; the layout of indexer keys is nil without an indexer.
func layouts(cfg *plan.Config) (layout.Main, layout.Index, error) {
	mk, ik, err := model.Kinds(cfg)
	if err != nil {
		return nil, nil, err
	}
	main, err := layout.MainOf(mk)
	if err != nil || cfg.IndexLayout == plan.LayoutNone {
		return main, nil, err
	}
	index, err := layout.IndexOf(ik)
	return main, index, err
}

// Allocate makes one pool of latent rows for each layer, and one of indexer keys for each layer that computes a
// selection. The drafting layer has its own pools if drafts are verified.
func (m *Model) Allocate(cfg *plan.Config, pages int) error {
	main, index, err := layouts(cfg)
	if err != nil {
		return fmt.Errorf("dsa: allocate: %w", err)
	}
	m.Release()
	m.allocated++
	layer := func(i int) (mla.Cache, error) {
		var c mla.Cache
		if c.Main, err = model.NewPool(m.Dev, main.Kind(), main.PageBytes(cfg.Page), pages, cfg.Page); err == nil &&
			m.config.Indexer.Computes(i) {
			c.Index, err = model.NewPool(m.Dev, index.Kind(), index.PageBytes(cfg.Page), pages, cfg.Page)
		}
		if err != nil {
			err = fmt.Errorf("dsa: allocate: %d pages for layer %d of %d: %w", pages, i, len(m.layers), err)
		}
		return c, err
	}
	for i := range m.layers {
		c, err := layer(i)
		m.caches = append(m.caches, c)
		if err != nil {
			m.Release()
			return err
		}
	}
	if m.drafts(cfg) {
		if m.next.cache, err = layer(m.config.Layers); err != nil {
			m.Release()
			return err
		}
	}
	return nil
}

// Release frees the cache.
func (m *Model) Release() {
	list := m.caches
	if m.next != nil {
		list = append(list, m.next.cache)
		m.next.cache = mla.Cache{}
	}
	for _, c := range list {
		for _, p := range [2]kernel.Pool{c.Main, c.Index} {
			if p.Mem.Given() {
				m.Dev.Free(p.Mem.Buf)
			}
		}
	}
	m.caches = nil
}

// PageBytes returns the cache memory of one page over all layers.
func (m *Model) PageBytes(cfg *plan.Config) int64 {
	main, index, err := layouts(cfg)
	if err != nil {
		return 0
	}
	layers := len(m.layers)
	if m.drafts(cfg) {
		layers++
	}
	var n int64
	for i := range layers {
		n += int64(main.PageBytes(cfg.Page))
		if m.config.Indexer.Computes(i) {
			n += int64(index.PageBytes(cfg.Page))
		}
	}
	return n
}

// Caches returns the pools of the main layers, for tests that read their bytes.
func (m *Model) Caches() []mla.Cache { return m.caches }

// Pools returns the pools of the main layers: for each layer that of latent rows, then that of indexer keys if the
// layer has one.
func (m *Model) Pools() [][]kernel.Pool {
	var out [][]kernel.Pool
	for _, c := range m.caches {
		pools := []kernel.Pool{c.Main}
		if c.Index.Mem.Given() {
			pools = append(pools, c.Index)
		}
		out = append(out, pools)
	}
	return out
}

// PageParts appends the tensors of a page, layer by layer, and those of the drafting layer last.
func (m *Model) PageParts(parts []kernel.Tensor, page int) []kernel.Tensor {
	add := func(c mla.Cache) {
		for _, p := range [2]kernel.Pool{c.Main, c.Index} {
			if p.Mem.Given() {
				parts = append(parts, model.PagePart(p, page))
			}
		}
	}
	for _, c := range m.caches {
		add(c)
	}
	if m.next != nil {
		add(m.next.cache)
	}
	return parts
}

// WindowParts appends nothing, because the model has no window pages.
func (m *Model) WindowParts(parts []kernel.Tensor, _ int) []kernel.Tensor { return parts }
