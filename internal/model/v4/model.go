// Package v4 runs DeepSeek-V4: attention over a sliding window and compressed entries, and residual streams mixed by
// hyper-connections.
//
// The inputs of a pass are token ids, a plan, page tables and a state for each sequence; its outputs are the logits of
// chosen rows. A pass consists of operations of package kernel. It does not depend on the device and never reads the
// elements of a tensor. The plan determines kernels and layouts.
//
// A sequence has pages, with window entries, compressed entries and indexer keys, and a State with the raw rows of
// incomplete groups. The bits of a row do not depend on the other rows of the batch, nor on the division of the prompt
// into steps.
package v4

import (
	"fmt"

	"sparrow/internal/attn/dual"
	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/internal/model/nn"
	"sparrow/kernel"
	"sparrow/plan"
)

// Model is a loaded model on one device, or the part of a model on one of several ranks. Each rank has a part of the
// experts, of the inner values of feed-forward blocks and of the vocabulary. If attention is divided by heads, a rank
// has its heads and the whole cache; if by requests, it has all heads and the cache of its sequences. One goroutine
// uses it at a time.
type Model struct {
	model.Base
	config *config.V4
	attn   *dual.Attention

	embed  kernel.Matrix
	layers []layer
	last   nn.Site // parameters by which the streams are combined after the last layer
	norm   kernel.Tensor
	head   kernel.Matrix
	draft  *draftHead // nil without a drafting block
	spark  *sparkHead // nil without a DSpark head; a checkpoint has at most one of the two
	nn.Homes
	model.Sequences[*dual.State]

	caches     []dual.Cache
	pageTokens int // tokens of a page of the cache
	pages      int // pages of the cache, without window pages
	allocated  int // number of times that the cache was allocated
}

// workspace is the memory in which passes run.
type workspace struct {
	m       *Model
	streams residual // residual streams after the last layer in the latest pass of the target
	drafted residual // output streams of the latest pass of the drafting block, in plan order
}

// residual holds the hidden states that are the inputs of a drafting pass: all streams of a row, in adjacent columns.
type residual struct {
	mem  kernel.Tensor // activation [maximum rows of a pass, streams*hidden]
	rows int           // rows of the latest pass; 0 while they are not valid
}

// Load reads every weight of a checkpoint with any of the three spellings of tensor names.
func Load(c *config.V4, l *nn.Loader, dev kernel.Device) (*Model, error) {
	m := &Model{config: c, Base: model.NewBase(&c.Config, c.FFN.Experts, dev, l.Ranks)}
	facts, err := model.Divide(Facts(c), l.Ranks)
	if err != nil {
		return nil, err
	}
	if c.Hyper.Streams > kernel.MaxStreams {
		return nil, fmt.Errorf("v4: the model has %d residual streams, want at most %d", c.Hyper.Streams,
			kernel.MaxStreams)
	}
	m.load(l)
	m.Homes = l.Homes(dev)
	if err := l.Finish(); err != nil {
		return nil, err
	}
	var weights []*dual.Weights
	for i := range m.layers {
		weights = append(weights, m.layers[i].attn)
	}
	a := c.Attention
	m.attn, err = dual.New(dev, m.List,
		dual.Params{Heads: facts.Heads, Dim: a.Dim, Rope: a.Rope, QLora: a.QLora, OLora: a.OLora,
			OGroups: facts.Heads / facts.GroupHeads,
			Window:  a.Window, IndexHeads: c.Indexer.Heads, TopK: c.Indexer.TopK, Eps: c.RMSEps,
			MostHeavy: facts.MostHeavy(),
			MainFreq:  a.Main.InvFreq(a.Rope), FarFreq: a.Far.InvFreq(a.Rope)}, weights)
	if err != nil {
		return nil, fmt.Errorf("v4: %w", err)
	}
	if m.spark != nil {
		if err = m.spark.Ready(dev); err != nil {
			return nil, fmt.Errorf("v4: %w", err)
		}
	}
	m.Sequences = model.Sequences[*dual.State]{Family: "v4", StatePool: m.attn.States}
	if m.draft != nil {
		m.attn.States.OnGrow = m.draft.cache.Grow
	}
	return m, nil
}

// Facts returns the properties that plans depend on: those of one rank, if there are several ranks.
func (m *Model) Facts() plan.Model {
	f, err := model.Divide(Facts(m.config), m.Ranks)
	if err != nil {
		panic(err) // Load has divided the same config
	}
	return f
}

// Bind allocates the hidden states that drafting passes read, for passes of at most the given number of rows.
func (m *Model) Bind(a *kernel.Arena, rows int) model.Workspace {
	width := m.config.Hyper.Streams * m.config.Hidden
	w := &workspace{m: m, streams: residual{mem: a.Take(m.Dev.Activation(), rows, width)}}
	if m.draft != nil {
		w.drafted = residual{mem: a.Take(m.Dev.Activation(), rows, width)}
	}
	return w
}
