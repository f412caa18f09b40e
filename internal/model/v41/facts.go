package v41

import (
	"sparrow/internal/model/config"
	"sparrow/plan"
)

// Facts returns the properties of a config that plans depend on. No weights are needed.
func Facts(c *config.V41) plan.Model {
	return plan.Model{
		Family:     plan.DeepSeekV41,
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
		Sharing: plan.Sharing{Entries: c.EntrySources, Index: c.IndexSources, Candidates: c.Candidates.Source,
			Blocks: c.Candidates.Blocks, BlockKeys: c.Candidates.Size, Tables: c.Engram.Words()},
		Experts:    plan.ExpertFacts{Count: c.FFN.Experts, Chosen: c.FFN.TopK},
		GroupHeads: c.Attention.Heads / c.Attention.Groups,
	}
}
