// Package v41 runs DeepSeek-V4.1: attention over a window and over selected entries that several layers read, selection
// at two levels, residual streams whose coefficients are used by the next sublayer, and n-gram tables.
//
// The inputs of a pass are token ids, a plan, page tables and a state for each sequence; its outputs are the logits of
// chosen rows. A pass consists of operations of package kernel. It does not depend on the device and never reads the
// elements of a tensor. The plan determines kernels and layouts.
//
// A sequence has pages and a State. Pages have window entries of every layer, and entries and indexer keys of the
// layers that compute them. The State has the raw row of an incomplete pair of tokens. Row numbers in the n-gram tables
// are computed from tokens when a pass is prepared. The bits of a row do not depend on the other rows of the batch, nor
// on the division of the prompt into steps.
package v41

import (
	"fmt"
	"sync/atomic"

	"sparrow/internal/attn/dual"
	"sparrow/internal/mmap"
	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/internal/model/engram"
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
	config *config.V41
	attn   *dual.Attention
	hash   *engram.Hash       // nil without tables
	read   atomic.Int64       // number of tokens whose table rows were looked up
	reader kernel.TableReader // of a device that reads tables itself; otherwise nil
	ask    func([]byte)       // requests that the system reads mapped memory; nil if there is a reader

	embed  kernel.Matrix
	layers []layer
	norm   kernel.Tensor
	head   kernel.Matrix
	spark  *sparkHead // nil without a draft head
	nn.Homes
	model.Sequences[*dual.State]

	caches     []cache
	pageTokens int // tokens of a page of the cache
	pages      int // pages of the cache, without window pages
	allocated  int // number of times that the cache was allocated
}

// workspace is the memory in which passes run.
type workspace struct {
	m       *Model
	streams kernel.Tensor // activation [maximum rows of a pass, streams*hidden]
}

// Load reads every weight of a checkpoint. tokens is the token map of the n-gram tables, one key for each token; it is
// not read if the model has no tables.
func Load(c *config.V41, l *nn.Loader, dev kernel.Device, tokens []int32) (*Model, error) {
	m := &Model{config: c, Base: model.NewBase(&c.Config, c.FFN.Experts, dev, l.Ranks)}
	facts, err := model.Divide(Facts(c), l.Ranks)
	if err != nil {
		return nil, err
	}
	if c.Hyper.Streams > kernel.MaxStreams {
		return nil, fmt.Errorf("v41: the model has %d residual streams, want at most %d", c.Hyper.Streams,
			kernel.MaxStreams)
	}
	if len(c.Engram.Layers) > 0 && !l.Described {
		if len(tokens) != c.Vocab {
			return nil, fmt.Errorf("v41: the token map of the n-gram tables has %d tokens, but the vocabulary has %d; "+
				"use the tokenizer.json of the same release", len(tokens), c.Vocab)
		}
		if m.hash, err = engram.New(c.Engram, tokens); err != nil {
			return nil, fmt.Errorf("v41: %w", err)
		}
	}
	if d, ok := dev.(kernel.TableReading); ok {
		m.reader = d.Tables()
	} else {
		m.ask = mmap.Ahead
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
			PlainHeads: true, BlockKeys: c.Candidates.Size, Blocks: c.Candidates.Blocks,
			MainFreq: a.Main.InvFreq(a.Rope), FarFreq: a.Far.InvFreq(a.Rope)}, weights)
	if err == nil && m.spark != nil {
		err = m.spark.Ready(dev)
	}
	if err != nil {
		return nil, fmt.Errorf("v41: %w", err)
	}
	m.Sequences = model.Sequences[*dual.State]{Family: "v41", StatePool: m.attn.States}
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

// Remembers returns the number of earlier tokens that a row of the n-gram tables depends on.
func (m *Model) Remembers() int { return m.config.Engram.Before() }

// Tables returns the size of the n-gram tables, and how many rows and bytes were read from them.
func (m *Model) Tables() model.TableUse {
	var u model.TableUse
	var rows, bytes int64 // rows and bytes that are read for one token
	columns := int64(m.config.Engram.Columns())
	for i := range m.layers {
		if e := m.layers[i].engram; e != nil && e.table != nil {
			size := e.table.Values.Extent()
			if e.table.Scales.Given() {
				size += e.table.Scales.Extent()
			}
			u.Bytes += size
			rows += columns
			bytes += columns * (size / int64(max(e.table.Values.Rows, 1)))
		}
	}
	n := m.read.Load()
	u.RowsRead, u.BytesRead = n*rows, n*bytes
	return u
}

// Bind allocates the residual streams of a pass.
func (m *Model) Bind(a *kernel.Arena, rows int) model.Workspace {
	return &workspace{m: m, streams: a.Take(m.Dev.Activation(), rows, m.config.Hyper.Streams*m.config.Hidden)}
}

// DraftHead returns nil if the checkpoint has a draft head, otherwise an error.
func (m *Model) DraftHead() error {
	if m.spark == nil {
		return fmt.Errorf("v41: the checkpoint has no DSpark draft head, whose tensors begin with mtp.; decode " +
			"without drafts")
	}
	return nil
}
