package config

// This file reads models with MLA and no indexer (dense-mla spec): DeepSeek-V3, R1 and V3.1, Moonlight, Kimi-K2 and its
// successors, GLM-4.7-Flash. They have the fields of DeepSeek-V3.2 without those of the indexer, and q_lora_rank may be
// absent.

// queryRank reads q_lora_rank. Only models with an indexer must have it, because the indexer's queries are computed
// from the same latents.
func (b *builder) queryRank(f Family) int {
	if f.Dense() && b.raw.QLora == nil && !b.mistyped["q_lora_rank"] {
		return 0
	}
	return b.positive("q_lora_rank", b.raw.QLora)
}

// noIndexer adds a problem for each field of an indexer.
func (b *builder) noIndexer(f Family) {
	for _, name := range []string{"index_n_heads", "index_head_dim", "index_topk", "index_topk_freq",
		"index_topk_pattern", "indexer_types"} {
		if text := b.fields[name]; text != nil && string(text) != "null" {
			b.addProblem("%s is %s: models of type %s have no indexer; one with an indexer has the type %s or %s", name,
				clip(text), f, DeepseekV32, GLMMoeDSA)
		}
	}
}

// textPrefix is the prefix of the text network's tensor names in checkpoints that also have a vision tower.
const textPrefix = "language_model."

// TextPrefix returns the prefix of the text network's tensor names; it is empty for most families.
func (c *Config) TextPrefix() string {
	if c.Family == KimiK25 {
		return textPrefix
	}
	return ""
}
