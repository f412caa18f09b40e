// Package dsa runs the models with DeepSeek sparse attention, DeepSeek-V3.2 and GLM-5, and models with the same
// network without an indexer: DeepSeek-V3, Kimi-K2 and GLM-4.7-Flash. For models without an indexer,
// config.Indexer.Computes is false in every layer, so no indexer weights are loaded and no indexer keys are stored.
//
// The inputs of a pass are token ids, a plan and page tables; its outputs are the logits of chosen rows. A pass
// consists of operations of package kernel and attention of package internal/attn/mla. It does not depend on the device
// and never reads the elements of a tensor.
package dsa

import (
	"sparrow/internal/attn/mla"
	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/internal/model/nn"
	"sparrow/kernel"
)

// Model is a loaded model on one device, or the part of a model on one of several ranks. Each rank has a part of the
// experts, of the inner values of feed-forward blocks and of the vocabulary. If attention is divided by heads, a rank
// has its heads and the whole cache; if by requests, it has all heads and the cache of its sequences. One goroutine
// uses it at a time.
type Model struct {
	model.Base
	config *config.DSA
	attn   *mla.Attention

	embed  kernel.Matrix
	layers []layer
	norm   kernel.Tensor
	head   kernel.Matrix
	next   *nextN // nil without a drafting layer
	nn.Homes

	caches    []mla.Cache
	allocated int // number of times that the caches were allocated
}

// workspace is the memory in which passes run.
type workspace struct {
	m      *Model
	hidden residual // final hidden states of the latest pass of the target
	// next holds rows of the latest pass of the drafting layer: m, the inputs of the next pass of a chain; or u, the
	// inputs of plan.PassPick, if the pass computed no logits.
	next residual
}

// residual holds the hidden states that are the inputs of a drafting pass.
type residual struct {
	mem  kernel.Tensor // activation [maximum rows of a pass, hidden]
	rows int           // rows of the latest pass; 0 while they are not valid
}

// layer is one decoder layer: exactly one of dense and experts is set.
type layer struct {
	inputNorm, postNorm kernel.Tensor
	attn                mla.Weights
	dense               *nn.MLP
	experts             *nn.MoE
}

// Load reads every weight of a checkpoint, or the shards of the loader's rank. The drafting layer must have all
// tensors, with the expected shapes, or none.
func Load(c *config.DSA, l *nn.Loader, dev kernel.Device) (*Model, error) {
	m := &Model{config: c, Base: model.NewBase(&c.Config, c.FFN.Experts, dev, l.Ranks)}
	facts, err := model.Divide(Facts(c), l.Ranks)
	if err != nil {
		return nil, err
	}
	embed := l.Table
	if c.TiedHead {
		embed = l.TiedTable
	}
	m.embed = embed("model.embed_tokens.weight", c.Vocab, c.Hidden)
	for i := range c.Layers {
		m.layers = append(m.layers, loadLayer(c, l, i))
	}
	m.norm = l.Vector("model.norm.weight", c.Hidden)
	if c.TiedHead {
		m.head = m.embed
	} else {
		m.head = l.MatrixRows("lm_head.weight", c.Vocab, c.Hidden)
	}
	m.loadNextN(l)
	m.Homes = l.Homes(dev)
	if err := l.Finish(); err != nil {
		return nil, err
	}
	m.attn, err = mla.New(dev, m.List, attentionParams(c, facts.Heads))
	return m, err
}

// attentionParams returns the attention parameters of a rank with the given number of heads.
func attentionParams(c *config.DSA, heads int) mla.Params {
	a := c.Attention
	p := mla.Params{
		Dims:         kernel.LatentDims{Heads: heads, Nope: a.Nope, Rope: a.Rope, V: a.V, Latent: a.Latent},
		QLora:        a.QLora,
		IndexHeads:   c.Indexer.Heads,
		TopK:         c.Indexer.TopK,
		Scale:        c.Rope.SoftmaxScale(a.QK()),
		LatentEps:    c.LatentEps,
		IndexPairing: kernel.HalfSplit,
		InvFreq:      c.Rope.InvFreq(a.Rope),
		CosScale:     c.Rope.CosScale(),
	}
	if c.Indexer.Interleaved {
		p.IndexPairing = kernel.Interleaved
	}
	return p
}

// Bind allocates the hidden states that drafting passes read, for passes of at most the given number of rows.
func (m *Model) Bind(a *kernel.Arena, rows int) model.Workspace {
	w := &workspace{m: m, hidden: residual{mem: a.Take(m.Dev.Activation(), rows, m.config.Hidden)}}
	if m.next != nil {
		w.next = residual{mem: a.Take(m.Dev.Activation(), rows, m.config.Hidden)}
	}
	return w
}
