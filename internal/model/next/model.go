// Package next runs GLM-5.3-Flash (glm5_next): layers of linear attention with a state for each sequence, and layers of
// sparse attention whose indexer has keys for pools of tokens. Residual streams are mixed by hyper-connections.
//
// The inputs of a pass are token ids, a plan, page tables and a state for each sequence; its outputs are the logits of
// chosen rows. A pass consists of operations of package kernel. It does not depend on the device and never reads the
// elements of a tensor.
//
// A sequence has pages, with latent rows and keys of pools, and a State. Window pages hold snapshots of the state at
// the ends of pages, from which other sequences can continue.
package next

import (
	"fmt"
	"math"

	"sparrow/internal/attn/hybrid"
	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/internal/model/nn"
	"sparrow/kernel"
	"sparrow/plan"
)

// Model is a loaded model on one device. One goroutine uses it at a time.
type Model struct {
	model.Base
	config *config.Next
	attn   *hybrid.Attention

	embed  kernel.Matrix
	layers []layer
	norm   kernel.Tensor
	head   kernel.Matrix
	draft  *draftLayer // nil if the checkpoint has no drafting layer
	nn.Homes
	model.Sequences[*hybrid.State]

	caches     []hybrid.Cache // caches of the layers; the drafting layer's cache is last
	pageTokens int
	pages      int
	windows    int
	allocated  int  // number of times that the cache was allocated
	holds      bool // verified rows are held back until they are accepted
}

// workspace is the memory in which passes run.
type workspace struct {
	m       *Model
	streams residual // residual streams after the last layer in the latest pass of the target
	drafted residual // outputs of the latest pass of the drafting layer
}

// residual holds the hidden states that are the inputs of a drafting pass.
type residual struct {
	mem  kernel.Tensor // activation [maximum rows of a pass, width]
	rows int           // rows of the latest pass; 0 while they are not valid
}

// Load reads every weight of a checkpoint.
func Load(c *config.Next, l *nn.Loader, dev kernel.Device) (*Model, error) {
	m := &Model{config: c, Base: model.NewBase(&c.Config, c.FFN.Experts, dev, l.Ranks)}
	facts, err := model.Divide(Facts(c), l.Ranks)
	if err != nil {
		return nil, err
	}
	if c.Hyper.Streams > kernel.MaxStreams {
		return nil, fmt.Errorf("next: the model has %d residual streams, want at most %d", c.Hyper.Streams,
			kernel.MaxStreams)
	}
	m.load(l)
	m.Homes = l.Homes(dev)
	if err := l.Finish(); err != nil {
		return nil, err
	}
	linear := append([]bool(nil), c.Linear.Layers...)
	if m.draft != nil {
		linear = append(linear, false)
	}
	a := c.Attention
	m.attn = hybrid.New(dev, m.List, hybrid.Params{
		Dims:  kernel.LatentDims{Heads: facts.Heads, Nope: a.Nope, V: a.V, Latent: a.Latent},
		QLora: a.QLora, IndexHeads: c.Indexer.Heads, TopK: c.PoolTopK(),
		Scale: float32(1 / math.Sqrt(float64(a.Nope))), Eps: c.RMSEps,
		LinearHeads: c.Linear.Heads, Bound: c.Linear.Bound}, linear)
	m.Sequences = model.Sequences[*hybrid.State]{Family: "next", StatePool: m.attn.States}
	return m, nil
}

// Facts returns the properties of a config that plans depend on. No weights are needed.
func Facts(c *config.Next) plan.Model {
	return plan.Model{
		Family:     plan.GLM5Next,
		Heads:      c.Attention.Heads,
		K:          c.PoolTopK(),
		IndexHeads: c.Indexer.Heads,
		QKDim:      c.Attention.QK(),
		VDim:       c.Attention.V,
		Layers:     c.Layers,
		NextN:      c.NextN,
		Context:    c.MaxPositions,
		Linear:     c.Linear.Layers,

		LinearGroups: c.Linear.Bound >= kernel.DeltaChunkBound,
		Experts:      plan.ExpertFacts{Count: c.FFN.Experts, Chosen: c.FFN.TopK, Dense: c.FFN.Dense},
	}
}

// Facts returns the properties that plans depend on.
func (m *Model) Facts() plan.Model { return Facts(m.config) }

// Bind allocates the hidden states that drafting passes read, for passes of at most the given number of rows.
func (m *Model) Bind(a *kernel.Arena, rows int) model.Workspace {
	width := m.config.Hyper.Streams * m.config.Hidden
	w := &workspace{m: m, streams: residual{mem: a.Take(m.Dev.Activation(), rows, width)}}
	if m.draft != nil {
		w.drafted = residual{mem: a.Take(m.Dev.Activation(), rows, m.config.Hidden)}
	}
	return w
}
