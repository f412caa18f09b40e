package dsa

import (
	"fmt"

	"sparrow/internal/attn/mla"
	"sparrow/internal/model/config"
	"sparrow/internal/model/nn"
)

func loadLayer(c *config.DSA, l *nn.Loader, i int) layer {
	p := fmt.Sprintf("model.layers.%d.", i)
	out := layer{
		inputNorm: l.Vector(p+"input_layernorm.weight", c.Hidden),
		postNorm:  l.Vector(p+"post_attention_layernorm.weight", c.Hidden),
	}
	l.Heads(c.Attention.Heads, func() { out.attn = loadAttention(c, l, p+"self_attn.", c.Indexer.Computes(i)) })
	if i < c.Layers && c.FFN.Dense[i] {
		m := nn.LoadMLP(l, p+"mlp.", c.Hidden, c.FFN.DenseInner)
		out.dense = &m
	} else {
		m := nn.LoadMoE(l, i, p+"mlp.", moeShape(c), choice(c))
		out.experts = &m
	}
	return out
}

func moeShape(c *config.DSA) nn.MoEShape {
	return nn.MoEShape{Hidden: c.Hidden, Inner: c.FFN.Inner, Experts: c.FFN.Experts, Shared: c.FFN.Shared}
}

func choice(c *config.DSA) nn.Choice {
	return nn.Choice{TopK: c.FFN.TopK, Groups: c.FFN.Groups, KeepGroups: c.FFN.KeepGroups, Normalize: c.FFN.Normalize,
		Scale: c.FFN.Scale}
}

func loadAttention(c *config.DSA, l *nn.Loader, p string, index bool) mla.Weights {
	a := c.Attention
	w := mla.Weights{
		KVA:    l.Matrix(p+"kv_a_proj_with_mqa.weight", a.Latent+a.Rope, c.Hidden),
		KVNorm: l.Vector(p+"kv_a_layernorm.weight", a.Latent),
		KVB:    l.LatentRows(p+"kv_b_proj.weight", a.Heads*(a.Nope+a.V), a.Latent),
		O:      l.MatrixColumns(p+"o_proj.weight", c.Hidden, a.Heads*a.V),
	}
	if a.QLora == 0 {
		w.QB = l.MatrixRows(p+"q_proj.weight", a.Heads*a.QK(), c.Hidden)
	} else {
		w.QA = l.Matrix(p+"q_a_proj.weight", a.QLora, c.Hidden)
		w.QNorm = l.Vector(p+"q_a_layernorm.weight", a.QLora)
		w.QB = l.MatrixRows(p+"q_b_proj.weight", a.Heads*a.QK(), a.QLora)
	}
	if !index {
		l.Join(w.Join)
		return w
	}
	x := c.Indexer
	w.Index = &mla.IndexWeights{
		Q:       l.Matrix(p+"indexer.wq_b.weight", x.Heads*x.Dim, a.QLora),
		K:       l.Matrix(p+"indexer.wk.weight", x.Dim, c.Hidden),
		Weights: l.Matrix(p+"indexer.weights_proj.weight", x.Heads, c.Hidden),
		KNorm:   l.Vector(p+"indexer.k_norm.weight", x.Dim),
		KBias:   l.Vector(p+"indexer.k_norm.bias", x.Dim),
	}
	l.Join(w.Join)
	return w
}
