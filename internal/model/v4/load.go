package v4

import (
	"errors"

	"sparrow/internal/attn/dual"
	"sparrow/internal/model/config"
	"sparrow/internal/model/nn"
	"sparrow/internal/model/spelling"
	"sparrow/kernel"
	"sparrow/layout"
)

// layer is one decoder layer.
type layer struct {
	attnSite, ffnSite nn.Site
	attnNorm, ffnNorm kernel.Tensor
	attn              *dual.Weights
	ffn               experts
}

func (m *Model) load(l *nn.Loader) {
	c, n := m.config, spelling.Of(l.Has)
	m.embed = l.Table(n.Global("embed.weight"), c.Vocab, c.Hidden)
	m.head = l.MatrixRows(n.Global("head.weight"), c.Vocab, c.Hidden)
	m.norm = l.Vector(n.Global("norm.weight"), c.Hidden)
	m.last = l.Site(n.Global, "hc_head_", c.Hyper.Streams*c.Hidden, c.Hyper.Streams, 1)
	for i := range c.Layers {
		at := func(name string) string { return n.Layer(i, name) }
		m.layers = append(m.layers, loadLayer(c, l, at, c.Attention.Ratios[i],
			expertNames{layer: i, hash: c.FFN.Hash[i], stacked: n.Stacked()}))
	}
	m.loadDrafts(l)
}

// loadLayer loads a layer; at returns the full name of each of its tensors.
func loadLayer(c *config.V4, l *nn.Loader, at func(string) string, ratio int, x expertNames) layer {
	mix := c.Hyper.Streams * (2 + c.Hyper.Streams)
	out := layer{
		attnSite: l.Site(at, "hc_attn_", c.Hyper.Streams*c.Hidden, mix, 3),
		ffnSite:  l.Site(at, "hc_ffn_", c.Hyper.Streams*c.Hidden, mix, 3),
		attnNorm: l.Vector(at("attn_norm.weight"), c.Hidden),
		ffnNorm:  l.Vector(at("ffn_norm.weight"), c.Hidden),
		ffn:      loadExperts(c, l, at, x),
	}
	l.Heads(c.Attention.Groups, func() { out.attn = loadAttention(c, l, at, ratio) })
	return out
}

func loadAttention(c *config.V4, l *nn.Loader, at func(string) string, ratio int) *dual.Weights {
	a := c.Attention
	out := &dual.Weights{
		Ratio:  ratio,
		QA:     l.Matrix(at("attn.wq_a.weight"), a.QLora, c.Hidden),
		QNorm:  l.Vector(at("attn.q_norm.weight"), a.QLora),
		QB:     l.MatrixRows(at("attn.wq_b.weight"), a.Heads*a.Dim, a.QLora),
		KV:     l.Matrix(at("attn.wkv.weight"), a.Dim, c.Hidden),
		KVNorm: l.Vector(at("attn.kv_norm.weight"), a.Dim),
		OA:     l.Bands(at("attn.wo_a.weight"), a.Groups, a.OLora, a.Heads/a.Groups*a.Dim),
		OB:     l.MatrixColumns(at("attn.wo_b.weight"), c.Hidden, a.Groups*a.OLora),
		Sinks:  l.VectorShard(at("attn.attn_sink"), a.Heads),
	}
	l.Join(func(j kernel.Joiner) error { return errors.Join(j.Join(out.OA...), j.Join(out.QA, out.KV)) })
	if ratio > 0 {
		x := loadCompressor(c, l, at, "attn.compressor.", ratio, a.Dim)
		out.Compress = &x
	}
	if ratio == dual.IndexRatio {
		out.Index = &dual.Index{
			Q:        l.Matrix(at("attn.indexer.wq_b.weight"), c.Indexer.Heads*c.Indexer.Dim, a.QLora),
			Weights:  l.Matrix(at("attn.indexer.weights_proj.weight"), c.Indexer.Heads, c.Hidden),
			Compress: loadCompressor(c, l, at, "attn.indexer.compressor.", ratio, layout.IndexDim),
		}
	}
	return out
}

func loadCompressor(c *config.V4, l *nn.Loader, at func(string) string, prefix string, ratio, dim int) dual.Compressor {
	w := dim
	if dual.Overlapped(ratio) {
		w *= 2
	}
	x := dual.Compressor{
		Dim: dim, Ratio: ratio,
		Values: l.Matrix(at(prefix+"wkv.weight"), w, c.Hidden),
		Gates:  l.Matrix(at(prefix+"wgate.weight"), w, c.Hidden),
		APE:    l.Floats(at(prefix+"ape"), ratio, w),
		Norm:   l.Vector(at(prefix+"norm.weight"), dim),
	}
	l.Join(func(j kernel.Joiner) error { return j.Join(x.Values, x.Gates) })
	return x
}
