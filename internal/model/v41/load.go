package v41

import (
	"fmt"

	"sparrow/internal/attn/dual"
	"sparrow/internal/model/nn"
	"sparrow/internal/model/spark"
	"sparrow/kernel"
	"sparrow/layout"
)

// layer is one decoder layer.
type layer struct {
	engram            *memory // nil if the layer has no n-gram table
	attnSite, ffnSite nn.Site
	attnNorm, ffnNorm kernel.Tensor
	attn              *dual.Weights
	ffn               nn.RootExperts
}

// memory holds the n-gram table of a layer and the projections of its rows.
type memory struct {
	first  int // first column of the layer among the table rows of a token
	table  *kernel.Table
	kv     kernel.Matrix // [(n+1)*hidden, columns*dim]
	weight kernel.Tensor // f32 [n, hidden]: weights of queries times weights of keys
}

// load reads every tensor of the checkpoint, by its official name.
func (m *Model) load(l *nn.Loader) {
	c := m.config
	m.embed = l.Table("embed.weight", c.Vocab, c.Hidden)
	m.head = l.MatrixRows("head.weight", c.Vocab, c.Hidden)
	m.norm = l.Vector("norm.weight", c.Hidden)
	for i := range c.Layers {
		at := func(name string) string { return fmt.Sprintf("layers.%d.%s", i, name) }
		m.layers = append(m.layers, m.loadLayer(l, at, i, c.FFN.Experts, c.FFN.TopK))
	}
	if d := c.DSpark; d != nil && l.HasPrefix(spark.Prefix) {
		m.spark = &sparkHead{}
		for k := range d.Stages {
			at := func(name string) string { return fmt.Sprintf("mtp.%d.%s", k, name) }
			m.spark.stages = append(m.spark.stages, m.loadLayer(l, at, c.Layers+k, d.Experts, d.Chosen))
		}
		m.spark.Head = spark.Load(l, &c.V4, "markov_head.embed.weight", "markov_head.head.weight")
	}
	l.Skip("tensors of a draft head that config.json does not describe", nn.Prefixes("mtp."))
	l.Skip("routing of image positions; images are not read", nn.Suffixes(".gate.bias_vl"))
	l.Skip("map of tokens to keys of the n-gram tables", nn.Prefixes("engram.token_map"))
}

// loadLayer loads layer i; numbers after the main layers are stages of the draft head.
func (m *Model) loadLayer(l *nn.Loader, at func(string) string, i, experts, chosen int) layer {
	c, n := m.config, m.config.Hyper.Streams
	out := layer{
		attnSite: l.Site(at, "hc_attn_", n*c.Hidden, n*(2+n), 3),
		ffnSite:  l.Site(at, "hc_ffn_", n*c.Hidden, n*(2+n), 3),
		attnNorm: l.Vector(at("attn_norm.weight"), c.Hidden),
		ffnNorm:  l.Vector(at("ffn_norm.weight"), c.Hidden),
		ffn: nn.LoadRootExperts(l, i, at, nn.RootShape{Hidden: c.Hidden, Inner: c.FFN.Inner, Experts: experts,
			Shared: c.FFN.Shared, TopK: chosen, Scale: c.FFN.Scale, Limit: c.FFN.Limit}),
	}
	for j, with := range c.Engram.Layers {
		if with == i {
			out.engram = m.loadMemory(l, at, j)
		}
	}
	l.Heads(c.Attention.Groups, func() { out.attn = m.loadAttention(l, at, i) })
	return out
}

// loadMemory loads n-gram table number j and its projections. The table remains in the mapped checkpoint.
func (m *Model) loadMemory(l *nn.Loader, at func(string) string, j int) *memory {
	s, n, h := &m.config.Engram, m.config.Hyper.Streams, m.config.Hidden
	return &memory{first: j * s.Columns(), table: l.HostTable(at("engram.embed.weight"), s.Rows[j], s.Dim),
		kv:     l.Matrix(at("engram.wkv.weight"), (n+1)*h, s.Columns()*s.Dim),
		weight: l.Product(at("engram.q_weight"), at("engram.k_weight"), n, h)}
}

func (m *Model) loadAttention(l *nn.Loader, at func(string) string, i int) *dual.Weights {
	c, a := m.config, m.config.Attention
	out := &dual.Weights{
		QA:     l.Matrix(at("attn.wq_a.weight"), a.QLora, c.Hidden),
		QNorm:  l.Vector(at("attn.q_norm.weight"), a.QLora),
		QB:     l.MatrixRows(at("attn.wq_b.weight"), a.Heads*a.Dim, a.QLora),
		KV:     l.Matrix(at("attn.wkv.weight"), a.Dim, c.Hidden),
		KVNorm: l.Vector(at("attn.kv_norm.weight"), a.Dim),
		OA:     l.Bands(at("attn.wo_a.weight"), a.Groups, a.OLora, a.Heads/a.Groups*a.Dim),
		OB:     l.MatrixColumns(at("attn.wo_b.weight"), c.Hidden, a.Groups*a.OLora),
		Sinks:  l.VectorShard(at("attn.attn_sink"), a.Heads),
	}
	if i >= c.Layers { // a stage attends only to a window and its block
		return out
	}
	out.Ratio = a.Ratios[i]
	if c.IndexSource(i) == i {
		out.Index = &dual.Index{
			Q:       l.Matrix(at("attn.indexer.wq_b.weight"), c.Indexer.Heads*c.Indexer.Dim, a.QLora),
			Weights: l.Matrix(at("attn.indexer.weights_proj.weight"), c.Indexer.Heads, c.Hidden),
		}
	}
	if c.EntrySource(i) == i {
		x := &dual.Compressor{Dim: a.Dim, Ratio: a.Ratios[i],
			Values: l.Matrix(at("attn.compressor.wkv.weight"), a.Dim, c.Hidden),
			Norm:   l.Vector(at("attn.compressor.norm.weight"), a.Dim)}
		if a.Ratios[i] > 1 {
			x.Gates = l.Matrix(at("attn.compressor.wgate.weight"), a.Dim, c.Hidden)
			x.APE = l.Zeros(a.Ratios[i], a.Dim) // V4.1 has no bias of gates
			l.Join(func(j kernel.Joiner) error { return j.Join(x.Values, x.Gates) })
		}
		out.Compress = x
		out.Index.Key = l.Matrix(at("attn.indexer.wk.weight"), layout.IndexDim, a.Dim)
		out.Index.KeyNorm = l.Vector(at("attn.indexer.k_norm.weight"), layout.IndexDim)
	}
	return out
}
