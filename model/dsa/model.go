// Package dsa runs the models with DeepSeek sparse attention: DeepSeek-V3.2 and GLM-5.
//
// Token ids, a plan and page tables flow in, logits of chosen rows flow out. The pass is written against the operations of package kernel
// and the attention of package attn; it does not know on which device it runs and never looks inside a tensor.
package dsa

import (
	"fmt"

	"sparrow/attn"
	"sparrow/kernel"
	"sparrow/model"
	"sparrow/model/config"
	"sparrow/model/nn"
)

// Model is a loaded model on one device. One goroutine uses it at a time.
type Model struct {
	config *config.DSA
	dev    kernel.Device
	attn   *attn.Attention

	embed  kernel.Matrix
	layers []layer
	norm   kernel.Tensor
	head   kernel.Matrix
	next   *nextN // nil without a drafting layer

	caches  []attn.Cache
	buf     buffers
	observe model.Observer
}

// layer is one decoder layer: exactly one of dense and experts is set.
type layer struct {
	inputNorm, postNorm kernel.Tensor
	attn                attn.Weights
	dense               *nn.MLP
	experts             *nn.MoE
}

type buffers struct {
	h, x, ids kernel.Scratch
	last      kernel.Tensor // residual rows of the step before, after the last layer, for the drafting layer
	head      *nn.Head
	ffn       *nn.FFNScratch
	host      []int32
}

// Load reads every weight of a checkpoint. Of the drafting layer either all tensors must be there and fit, or none.
func Load(c *config.DSA, l *nn.Loader, dev kernel.Device) (*Model, error) {
	m := &Model{config: c, dev: dev}
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
		m.head = l.Matrix("lm_head.weight", c.Vocab, c.Hidden)
	}
	m.loadNextN(l)
	if err := l.Finish(); err != nil {
		return nil, err
	}
	a, err := attn.New(dev, attentionParams(c))
	if err != nil {
		return nil, err
	}
	m.attn = a
	s := kernel.NewScratch(dev)
	m.buf = buffers{h: s, x: s, ids: s, head: nn.NewHead(dev), ffn: nn.NewFFNScratch(dev)}
	return m, nil
}

func attentionParams(c *config.DSA) attn.Params {
	a := c.Attention
	p := attn.Params{
		Dims:         kernel.LatentDims{Heads: a.Heads, Nope: a.Nope, Rope: a.Rope, V: a.V, Latent: a.Latent},
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

// Config describes the model.
func (m *Model) Config() *config.Config { return &m.config.Config }

// Device is where the model runs.
func (m *Model) Device() kernel.Device { return m.dev }

// Observe sets who is told of hidden states and selections; nil for nobody.
func (m *Model) Observe(o model.Observer) {
	m.observe, m.attn.Observe = o, nil
	if o != nil {
		m.attn.Observe = o
	}
}

// Forward runs one step and returns the wanted logits.
func (m *Model) Forward(in model.Input) (kernel.Tensor, error) {
	if len(m.caches) == 0 {
		return kernel.Tensor{}, fmt.Errorf("dsa: forward: the model has no cache; call Allocate first")
	}
	m.buf.last = kernel.Tensor{}
	rows, err := m.attn.Begin(in.Step)
	if err != nil {
		return kernel.Tensor{}, err
	}
	if m.observe != nil {
		if err := m.observe.Begin(rows); err != nil {
			return kernel.Tensor{}, err
		}
	}
	h, err := m.embedRows(&in, rows)
	if err != nil {
		return kernel.Tensor{}, err
	}
	x, err := m.buf.x.Take(m.dev.Activation(), h.Rows, m.config.Hidden)
	if err != nil {
		return kernel.Tensor{}, err
	}
	for i := range m.layers {
		if err := m.run(i, &m.layers[i], m.caches[i], h, x); err != nil {
			return kernel.Tensor{}, err
		}
		if m.observe != nil {
			if err := m.observe.Hidden(i, h); err != nil {
				return kernel.Tensor{}, err
			}
		}
	}
	m.buf.last = h
	return m.logits(&in, rows, h)
}

// run adds the outputs of one layer to the residual rows h; x is memory of the same shape.
func (m *Model) run(i int, l *layer, c attn.Cache, h, x kernel.Tensor) error {
	if err := m.dev.Norm(kernel.NormArgs{Out: x, X: h, Weight: l.inputNorm, Eps: m.config.RMSEps}); err != nil {
		return err
	}
	if err := m.attn.Layer(i, &l.attn, c, h, x); err != nil {
		return err
	}
	if err := m.dev.Norm(kernel.NormArgs{Out: x, X: h, Weight: l.postNorm, Eps: m.config.RMSEps}); err != nil {
		return err
	}
	var err error
	if l.dense != nil {
		err = l.dense.Run(m.dev, m.buf.ffn, h, x)
	} else {
		err = l.experts.Run(m.dev, m.buf.ffn, h, x)
	}
	if err != nil {
		return fmt.Errorf("feed-forward of layer %d: %w", i, err)
	}
	return nil
}
