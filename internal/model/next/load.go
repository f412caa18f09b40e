package next

import (
	"fmt"

	"sparrow/internal/attn/hybrid"
	"sparrow/internal/model/config"
	"sparrow/internal/model/nn"
	"sparrow/kernel"
	"sparrow/layout"
)

// layer is one decoder layer: exactly one of linear and attn, and of dense and experts, is set.
type layer struct {
	attnSite, ffnSite   nn.Site // not given in the drafting layer, which has one residual stream
	inputNorm, postNorm kernel.Tensor
	linear              *hybrid.LinearWeights
	attn                *hybrid.Weights
	dense               *nn.MLP
	experts             *nn.MoE
}

// prefixes are the prefixes of the text network's tensor names: with a vision tower, and without.
var prefixes = [2]string{"model.language_model.", "model."}

// prefixOf returns the prefix of the tensor names of a checkpoint.
func prefixOf(l *nn.Loader) string {
	if l.Has(prefixes[1] + "embed_tokens.weight") {
		return prefixes[1]
	}
	return prefixes[0]
}

func (m *Model) load(l *nn.Loader) {
	c, p := m.config, prefixOf(l)
	m.embed = l.Table(p+"embed_tokens.weight", c.Vocab, c.Hidden)
	for i := range c.Layers {
		m.layers = append(m.layers, loadLayer(c, l, p, i))
	}
	m.norm = l.Vector(p+"norm.weight", c.Hidden)
	m.head = l.MatrixRows("lm_head.weight", c.Vocab, c.Hidden)
	m.loadDraft(l, fmt.Sprintf("%slayers.%d.", p, c.Layers), p)
}

// loadLayer reads layer i; the layer after the main layers is the drafting layer.
func loadLayer(c *config.Next, l *nn.Loader, prefix string, i int) layer {
	p := fmt.Sprintf("%slayers.%d.", prefix, i)
	out := layer{
		inputNorm: l.Vector(p+"input_layernorm.weight", c.Hidden),
		postNorm:  l.Vector(p+"post_attention_layernorm.weight", c.Hidden),
	}
	if i < c.Layers {
		n, at := c.Hyper.Streams, func(name string) string { return p + name }
		out.attnSite = l.Site(at, "hc_attn_", n*c.Hidden, n*(2+n), 3)
		out.ffnSite = l.Site(at, "hc_ffn_", n*c.Hidden, n*(2+n), 3)
	}
	if i < c.Layers && c.Linear.Layers[i] {
		out.linear = loadLinear(c, l, p+"self_attn.")
	} else {
		out.attn = loadAttention(c, l, p+"self_attn.")
	}
	if i < c.Layers && c.FFN.Dense[i] {
		m := nn.LoadMLP(l, p+"mlp.", c.Hidden, c.FFN.DenseInner)
		m.Limit, out.dense = c.Limit, &m
		return out
	}
	f := c.FFN
	m := nn.LoadMoE(l, i, p+"mlp.", nn.MoEShape{Hidden: c.Hidden, Inner: f.Inner, Experts: f.Experts, Shared: f.Shared},
		nn.Choice{TopK: f.TopK, Groups: f.Groups, KeepGroups: f.KeepGroups, Normalize: f.Normalize, Scale: f.Scale})
	m.SetLimit(c.Limit)
	out.experts = &m
	return out
}

func loadLinear(c *config.Next, l *nn.Loader, p string) *hybrid.LinearWeights {
	n, d := c.Linear.Width(), c.Linear.Dim
	out := &hybrid.LinearWeights{
		Q:    l.Matrix(p+"q_proj.weight", n, c.Hidden),
		K:    l.Matrix(p+"k_proj.weight", n, c.Hidden),
		V:    l.Matrix(p+"v_proj.weight", n, c.Hidden),
		Beta: l.Matrix(p+"b_proj.weight", c.Linear.Heads, c.Hidden),
		O:    l.Matrix(p+"o_proj.weight", c.Hidden, n),
		FA:   l.Matrix(p+"f_a_proj.weight", d, c.Hidden),
		FB:   l.Matrix(p+"f_b_proj.weight", n, d),
		GA:   l.Matrix(p+"g_a_proj.weight", d, c.Hidden),
		GB:   l.Matrix(p+"g_b_proj.weight", n, d),
		Conv: l.Channels([]string{p + "q_conv1d.weight", p + "k_conv1d.weight", p + "v_conv1d.weight"}, n,
			c.Linear.Conv),
		ALog: l.Vector(p+"A_log", c.Linear.Heads),
		Bias: l.Vector(p+"dt_bias", n),
		Norm: l.Vector(p+"o_norm.weight", d),
	}
	l.Join(out.Join)
	return out
}

func loadAttention(c *config.Next, l *nn.Loader, p string) *hybrid.Weights {
	a, x := c.Attention, c.Indexer
	out := &hybrid.Weights{
		QA:     l.Matrix(p+"q_a_proj.weight", a.QLora, c.Hidden),
		QNorm:  l.Vector(p+"q_a_layernorm.weight", a.QLora),
		QB:     l.Matrix(p+"q_b_proj.weight", a.Heads*a.QK(), a.QLora),
		KVA:    l.Matrix(p+"kv_a_proj_with_mqa.weight", a.Latent, c.Hidden),
		KVNorm: l.Vector(p+"kv_a_layernorm.weight", a.Latent),
		KVB:    l.LatentRows(p+"kv_b_proj.weight", a.Heads*(a.Nope+a.V), a.Latent),
		O:      l.Matrix(p+"o_proj.weight", c.Hidden, a.Heads*a.V),
		Index: hybrid.IndexWeights{
			Q:       l.Matrix(p+"indexer.wq_b.weight", x.Heads*layout.IndexDim, a.QLora),
			K:       l.Matrix(p+"indexer.wk.weight", layout.IndexDim, c.Hidden),
			Weights: l.Matrix(p+"indexer.weights_proj.weight", x.Heads, c.Hidden),
			Gate:    l.Matrix(p+"indexer.index_kpool_compress_gate", layout.IndexDim, c.Hidden),
			KNorm:   l.Vector(p+"indexer.k_norm.weight", layout.IndexDim),
			KBias:   l.Vector(p+"indexer.k_norm.bias", layout.IndexDim),
			APE:     l.Floats(p+"indexer.index_kpool_compress_ape", c.Pool, layout.IndexDim),
		},
	}
	l.Join(out.Index.Join)
	return out
}
