package dsa

import (
	"fmt"

	"sparrow/internal/attn/mla"
	"sparrow/internal/model"
	"sparrow/plan"
)

// SelfTest compares sparse attention with dense attention in the first layer with an indexer. Without an indexer, it
// compares attention in latent space with dense attention in the first layer.
func (m *Model) SelfTest(cfg *plan.Config) error {
	main, index, err := model.Kinds(cfg)
	if err != nil {
		return fmt.Errorf("dsa: self-test: %w", err)
	}
	if m.config.Indexer.TopK == 0 {
		return m.attn.SelfTest(m.Dev, &m.layers[0].attn, cfg, mla.Layouts{Main: main})
	}
	for i := range m.layers {
		if w := &m.layers[i].attn; w.Index != nil {
			return m.attn.SelfTest(m.Dev, w, cfg, mla.Layouts{Main: main, Index: index})
		}
	}
	return fmt.Errorf("dsa: self-test: no layer has an indexer")
}
