package v4

import (
	"sparrow/internal/model/config"
	"sparrow/plan"
)

// Facts returns the properties of a config that plans depend on. No weights are needed.
func Facts(c *config.V4) plan.Model {
	return plan.Model{
		Family:     plan.DeepSeekV4,
		Heads:      c.Attention.Heads,
		K:          c.Indexer.TopK,
		IndexHeads: c.Indexer.Heads,
		QKDim:      c.Attention.Dim,
		VDim:       c.Attention.Dim,
		Layers:     c.Layers,
		NextN:      c.NextN,
		Block:      c.DraftBlock(),
		Context:    c.MaxPositions,
		Window:     c.Attention.Window,
		Ratios:     c.Attention.Ratios,
		Experts:    plan.ExpertFacts{Count: c.FFN.Experts, Chosen: c.FFN.TopK},
		GroupHeads: c.Attention.Heads / c.Attention.Groups,
	}
}
