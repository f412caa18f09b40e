package llamacpp

import (
	"fmt"
	"slices"

	"sparrow/internal/model/config"
	"sparrow/weight/gguf"
)

// pairs collects the metadata pairs (key and value) of an architecture.
type pairs struct {
	arch string
	list []gguf.Pair
}

func (p *pairs) add(key string, v any) {
	p.list = append(p.list, gguf.Pair{Key: p.arch + "." + key, Value: v})
}

func (p *pairs) count(key string, n int)      { p.add(key, uint32(n)) }
func (p *pairs) number(key string, v float64) { p.add(key, float32(v)) }

func (p *pairs) yarn(y *config.Yarn) {
	p.add("rope.scaling.type", "yarn")
	p.number("rope.scaling.factor", y.Factor)
	p.count("rope.scaling.original_context_length", y.Original)
	p.number("rope.scaling.yarn_beta_fast", y.BetaFast)
	p.number("rope.scaling.yarn_beta_slow", y.BetaSlow)
}

// metadata returns the pairs of the architecture and of the vocabulary.
func (m *Model) metadata(mix Mix) ([]gguf.Pair, error) {
	c := m.Config.Common()
	p := &pairs{arch: architectureOf(c.Family)}
	if p.arch == "" {
		return nil, fmt.Errorf("%w: %s is a %s model, for which GGUF has no architecture name", ErrUnsupported, m.Name,
			c.Family)
	}
	p.list = []gguf.Pair{{Key: "general.architecture", Value: p.arch}, {Key: "general.type", Value: "model"},
		{Key: "general.name", Value: m.Name}, {Key: "general.file_type", Value: mix.fileType()},
		{Key: "general.quantization_version", Value: uint32(2)}}
	if m.Importance != nil {
		p.list = append(p.list, gguf.Pair{Key: "quantize.imatrix.file", Value: m.ImportanceFile},
			gguf.Pair{Key: "quantize.imatrix.entries_count", Value: int32(len(m.Importance))})
	}
	p.count("context_length", c.MaxPositions)
	p.count("embedding_length", c.Hidden)
	p.count("vocab_size", c.Vocab)
	p.number("attention.layer_norm_rms_epsilon", float64(c.RMSEps))
	if !c.Family.Dense() {
		p.count("attention.indexer.head_count", c.Indexer.Heads)
		p.count("attention.indexer.key_length", c.Indexer.Dim)
		p.count("attention.indexer.top_k", c.Indexer.TopK)
	}
	var err error
	switch d := m.Config.(type) {
	case *config.DSA:
		p.count("attention.head_count_kv", 1) // latent rows count as one key-value head
		err = p.dsa(d)
	case *config.V4:
		p.count("attention.head_count_kv", 1)
		err = p.v4(d)
	case *config.Next:
		err = p.next(d)
	default:
		err = fmt.Errorf("%w: GGUF files of %s cannot be written; use the safetensors "+
			"files", config.ErrFamily, c.Family)
	}
	if err != nil {
		return nil, err
	}
	words, err := m.vocabulary(c)
	return append(p.list, words...), err
}

// dsa adds the pairs of DeepSeek-V3.2, GLM-5 and similar models without an indexer.
func (p *pairs) dsa(c *config.DSA) error {
	p.count("block_count", c.Layers+c.NextN)
	p.latent(c.Attention)
	if slices.Contains(c.Indexer.Shared, true) {
		full := make([]bool, c.Layers)
		for i := range full {
			full[i] = c.Indexer.Computes(i)
		}
		p.add("attention.indexer.types", full)
	}
	p.number("rope.freq_base", c.Rope.Theta)
	if y := c.Rope.Yarn; y != nil {
		if y.MScale != y.MScaleAllDim {
			return fmt.Errorf("%w: rope_scaling has mscale %v and mscale_all_dim %v, but GGUF holds one "+
				"number", ErrUnsupported, y.MScale, y.MScaleAllDim)
		}
		p.yarn(y)
		p.number("rope.scaling.yarn_log_multiplier", 0.1*y.MScaleAllDim)
	}
	p.count("nextn_predict_layers", c.NextN)
	return p.experts(c.FFN)
}

func (p *pairs) latent(a config.Attention) {
	p.count("attention.head_count", a.Heads)
	if a.QLora > 0 {
		p.count("attention.q_lora_rank", a.QLora)
	}
	p.count("attention.kv_lora_rank", a.Latent)
	p.count("attention.key_length", a.Latent+a.Rope)
	p.count("attention.value_length", a.Latent)
	p.count("attention.key_length_mla", a.QK())
	p.count("attention.value_length_mla", a.V)
	p.count("rope.dimension_count", a.Rope)
}

// experts adds the pairs of feed-forward blocks.
func (p *pairs) experts(f config.FFN) error {
	dense := 0
	for dense < len(f.Dense) && f.Dense[dense] {
		dense++
	}
	if slices.Contains(f.Dense[dense:], true) {
		return fmt.Errorf("%w: a dense layer follows layers with experts, which GGUF cannot describe", ErrUnsupported)
	}
	p.count("feed_forward_length", f.DenseInner)
	p.count("leading_dense_block_count", dense)
	p.count("expert_count", f.Experts)
	p.count("expert_used_count", f.TopK)
	p.count("expert_shared_count", f.Shared)
	p.count("expert_feed_forward_length", f.Inner)
	p.count("expert_group_count", f.Groups)
	p.count("expert_group_used_count", f.KeepGroups)
	p.count("expert_gating_func", sigmoidGate)
	p.number("expert_weights_scale", float64(f.Scale))
	p.add("expert_weights_norm", f.Normalize)
	return nil
}
