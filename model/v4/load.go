package v4

import (
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/model/config"
	"sparrow/model/nn"
)

// overlapped reports whether groups of a ratio also read the group before them (v4 spec, 2.4).
func overlapped(ratio int) bool { return ratio == 4 }

// layer is one decoder layer.
type layer struct {
	ratio             int // tokens of a compressed entry, 0 for none
	attnSite, ffnSite site
	attnNorm, ffnNorm kernel.Tensor
	attn              attention
	ffn               experts
}

// site is where a sublayer reads and writes the residual streams.
type site struct {
	fn          kernel.Matrix // [2n+n*n, n*hidden]; [n, n*hidden] after the last layer
	base, scale kernel.Tensor
}

// attention holds the matrices of one layer's attention.
type attention struct {
	qa, qb, kv    kernel.Matrix
	oa            []kernel.Matrix // one for each group of heads
	ob            kernel.Matrix
	qNorm, kvNorm kernel.Tensor
	sinks         kernel.Tensor // f32 [1, heads]
	compress      *compressor   // nil where the layer has no compressed stream
	index         *indexer      // nil but for ratio 4
}

// compressor holds the matrices that make entries of dim values.
type compressor struct {
	dim, ratio    int
	values, gates kernel.Matrix // [halves*dim, hidden]
	ape, norm     kernel.Tensor
}

// width is the size of a raw row's values, and of its gates.
func (c *compressor) width() int { return c.values.Out() }

// indexer holds the matrices that score entries.
type indexer struct {
	q, weights kernel.Matrix
	compress   compressor
}

// load reads every tensor of the checkpoint.
func (m *Model) load(l *nn.Loader) {
	c, n := m.config, newNames(l)
	m.embed = l.Table(n.global("embed.weight"), c.Vocab, c.Hidden)
	m.head = l.Matrix(n.global("head.weight"), c.Vocab, c.Hidden)
	m.norm = l.Vector(n.global("norm.weight"), c.Hidden)
	m.last = loadSite(c, l, n.global("hc_head_fn"), n.global("hc_head_base"), n.global("hc_head_scale"), c.Hyper.Streams, 1)
	for i := range c.Layers {
		at := func(name string) string { return n.layer(i, name) }
		m.layers = append(m.layers, loadLayer(c, l, at, c.Attention.Ratios[i], expertNames{hash: c.FFN.Hash[i], stacked: n.kind == hugging}))
	}
	m.loadDrafts(l)
}

// loadLayer reads a layer whose tensors at names.
func loadLayer(c *config.V4, l *nn.Loader, at func(string) string, ratio int, x expertNames) layer {
	mix := c.Hyper.Streams * (2 + c.Hyper.Streams)
	return layer{
		ratio:    ratio,
		attnSite: loadSite(c, l, at("hc_attn_fn"), at("hc_attn_base"), at("hc_attn_scale"), mix, 3),
		ffnSite:  loadSite(c, l, at("hc_ffn_fn"), at("hc_ffn_base"), at("hc_ffn_scale"), mix, 3),
		attnNorm: l.Vector(at("attn_norm.weight"), c.Hidden),
		ffnNorm:  l.Vector(at("ffn_norm.weight"), c.Hidden),
		attn:     loadAttention(c, l, at, ratio),
		ffn:      loadExperts(c, l, at, x),
	}
}

// loadSite reads what meets the residual streams, with mix outputs.
func loadSite(c *config.V4, l *nn.Loader, fn, base, scale string, mix, scales int) site {
	return site{fn: l.Matrix(fn, mix, c.Hyper.Streams*c.Hidden), base: l.Vector(base, mix), scale: l.Vector(scale, scales)}
}

func loadAttention(c *config.V4, l *nn.Loader, at func(string) string, ratio int) attention {
	a := c.Attention
	out := attention{
		qa:     l.Matrix(at("attn.wq_a.weight"), a.QLora, c.Hidden),
		qNorm:  l.Vector(at("attn.q_norm.weight"), a.QLora),
		qb:     l.Matrix(at("attn.wq_b.weight"), a.Heads*a.Dim, a.QLora),
		kv:     l.Matrix(at("attn.wkv.weight"), a.Dim, c.Hidden),
		kvNorm: l.Vector(at("attn.kv_norm.weight"), a.Dim),
		oa:     l.Bands(at("attn.wo_a.weight"), a.Groups, a.OLora, a.Heads/a.Groups*a.Dim),
		ob:     l.Matrix(at("attn.wo_b.weight"), c.Hidden, a.Groups*a.OLora),
		sinks:  l.Vector(at("attn.attn_sink"), a.Heads),
	}
	if ratio > 0 {
		x := loadCompressor(c, l, at, "attn.compressor.", ratio, a.Dim)
		out.compress = &x
	}
	if ratio == indexRatio {
		out.index = &indexer{
			q:        l.Matrix(at("attn.indexer.wq_b.weight"), c.Indexer.Heads*c.Indexer.Dim, a.QLora),
			weights:  l.Matrix(at("attn.indexer.weights_proj.weight"), c.Indexer.Heads, c.Hidden),
			compress: loadCompressor(c, l, at, "attn.indexer.compressor.", ratio, layout.IndexDim),
		}
	}
	return out
}

func loadCompressor(c *config.V4, l *nn.Loader, at func(string) string, prefix string, ratio, dim int) compressor {
	w := dim
	if overlapped(ratio) {
		w *= 2
	}
	return compressor{
		dim: dim, ratio: ratio,
		values: l.Matrix(at(prefix+"wkv.weight"), w, c.Hidden),
		gates:  l.Matrix(at(prefix+"wgate.weight"), w, c.Hidden),
		ape:    l.Floats(at(prefix+"ape"), ratio, w),
		norm:   l.Vector(at(prefix+"norm.weight"), dim),
	}
}
