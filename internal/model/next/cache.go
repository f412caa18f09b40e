package next

import (
	"fmt"

	"sparrow/internal/attn/hybrid"
	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// layouts returns the byte layouts of a resolved configuration.
func layouts(cfg *plan.Config) (layout.Main, layout.Index, error) {
	mk, ik, err := model.Kinds(cfg)
	if err != nil {
		return nil, nil, err
	}
	main, err := layout.MainOf(mk)
	if err != nil {
		return nil, nil, err
	}
	index, err := layout.IndexOf(ik)
	if err == nil && cfg.Page%hybrid.Pool != 0 {
		err = fmt.Errorf("pages have %d tokens, want a multiple of the pool size, %d", cfg.Page, hybrid.Pool)
	}
	return main, index, err
}

// Sizes holds the sizes of the cache over all layers, in bytes.
type Sizes struct {
	Page   int64 // latent rows and pooled keys of a page, in bytes
	Window int64 // a window page (a snapshot of the linear layers' states), in bytes
	State  int64 // the state of one sequence, in bytes
}

// SizesOf computes the sizes for a config and pages of the given number of tokens. verified is the number of verified
// rows of a request; above 1, the drafting layer has cached rows, and states hold back verified rows.
func SizesOf(c *config.Next, main layout.Main, index layout.Index, page, verified int) Sizes {
	var s Sizes
	add := func(linear bool) {
		if linear {
			s.Window += int64(hybrid.LinearBytes(c.Linear.Width()))
			s.State += int64(hybrid.LinearBytes(c.Linear.Width()))
			if verified > 1 {
				s.State += int64(verified * hybrid.HeldBytes(c.Linear.Width()))
			}
			return
		}
		s.Page += int64(main.PageBytes(page) + index.PageBytes(page/hybrid.Pool))
		s.State += hybrid.RingBytes
	}
	for _, linear := range c.Linear.Layers {
		add(linear)
	}
	if verified > 1 {
		add(false)
	}
	return s
}

// sizes returns the sizes of a configuration.
func (m *Model) sizes(cfg *plan.Config) Sizes {
	main, index, err := layouts(cfg)
	if err != nil {
		return Sizes{}
	}
	verified := 1
	if m.drafts(cfg) {
		verified = cfg.N
	}
	s := SizesOf(m.config, main, index, cfg.Page, verified)
	if m.draft != nil && verified == 1 {
		s.State += hybrid.RingBytes // states have a ring for the drafting layer, whether it is used or not
	}
	return s
}

// Allocate makes the pools of every layer, with as many window pages as pages.
func (m *Model) Allocate(cfg *plan.Config, pages int) error {
	return m.AllocateWindows(cfg, pages, pages)
}

// AllocateWindows makes the pools of every layer, with a separate number of window pages, each of which contains a
// snapshot of the states at the end of a page.
func (m *Model) AllocateWindows(cfg *plan.Config, pages, windows int) error {
	main, index, err := layouts(cfg)
	if err != nil {
		return fmt.Errorf("next: allocate: %w", err)
	}
	m.Free()
	m.allocated++
	m.pageTokens, m.pages, m.windows, m.holds = cfg.Page, pages, windows, m.drafts(cfg)
	held := 0
	if m.holds {
		held = cfg.N
	}
	if err := m.attn.States.Hold(held); err != nil {
		return fmt.Errorf("next: allocate memory for %d held-back rows of each sequence: %w", held, err)
	}
	layers := len(m.layers)
	if m.drafts(cfg) {
		layers++
	}
	for i := range layers {
		var c hybrid.Cache
		if i < len(m.layers) && m.layers[i].linear != nil {
			c.Kept, err = hybrid.NewLinearState(m.Dev, windows, m.config.Linear.Width())
		} else if c.Main, err = model.NewPool(m.Dev, main.Kind(), main.PageBytes(cfg.Page), pages,
			cfg.Page); err == nil {
			n := cfg.Page / hybrid.Pool
			c.Index, err = model.NewPool(m.Dev, index.Kind(), index.PageBytes(n), pages, n)
		}
		m.caches = append(m.caches, c)
		if err != nil {
			m.Free()
			return fmt.Errorf("next: allocate: %d pages and %d snapshots for layer %d of %d: %w", pages, windows, i,
				len(m.layers), err)
		}
	}
	return nil
}

// Free frees the pools.
func (m *Model) Free() {
	for _, c := range m.caches {
		for _, p := range pools(c) {
			m.Dev.Free(p.Mem.Buf)
		}
		c.Kept.Free(m.Dev)
	}
	m.caches = nil
}

func pools(c hybrid.Cache) []kernel.Pool {
	if !c.Main.Mem.Given() {
		return nil
	}
	if !c.Index.Mem.Given() {
		return []kernel.Pool{c.Main}
	}
	return []kernel.Pool{c.Main, c.Index}
}

// Pools returns the pools of every layer, for callers that read or write their bytes: latent rows, then keys of pools;
// none for linear layers.
func (m *Model) Pools() [][]kernel.Pool {
	var out [][]kernel.Pool
	for i := range m.layers {
		out = append(out, pools(m.caches[i]))
	}
	return out
}

// PageBytes returns the size in bytes of one page and one window page over all layers.
func (m *Model) PageBytes(cfg *plan.Config) int64 {
	s := m.sizes(cfg)
	return s.Page + s.Window
}

// Window returns the number of tokens before the end of a sequence in which it needs window pages.
func (m *Model) Window() int { return hybrid.Window }

// SnapshotSpacing returns the number of pages between the snapshots that are kept inside sequences: one snapshot in
// 8192 tokens.
func (m *Model) SnapshotSpacing() int { return 8192 / max(m.pageTokens, 256) }

// WindowBytes returns the size in bytes of a snapshot over all layers.
func (m *Model) WindowBytes(cfg *plan.Config) int64 { return m.sizes(cfg).Window }

// StateBytes returns the size in bytes of one state over all layers.
func (m *Model) StateBytes(cfg *plan.Config) int64 { return m.sizes(cfg).State }

// PageParts appends the tensors of a page, layer by layer: rows and keys of pools.
func (m *Model) PageParts(parts []kernel.Tensor, page int) []kernel.Tensor {
	for _, c := range m.caches {
		for _, p := range pools(c) {
			parts = append(parts, model.PagePart(p, page))
		}
	}
	return parts
}

// WindowParts appends the tensors of a window page, layer by layer: the snapshots of states.
func (m *Model) WindowParts(parts []kernel.Tensor, window int) []kernel.Tensor {
	for _, c := range m.caches {
		c.Kept.Each(func(t kernel.Tensor, rows int) { parts = append(parts, model.Part(t, window, rows)) })
	}
	return parts
}
