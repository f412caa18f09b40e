// Package v4 runs DeepSeek-V4: attention over a sliding window and compressed streams, with residual streams mixed by hyper-connections.
//
// Token ids, a plan, page tables and a state for each sequence flow in, logits of chosen rows flow out. The pass is written against the
// operations of package kernel; it does not know on which device it runs and never looks inside a tensor. What is read through which kernel
// is in the plan and never decided here.
//
// A sequence lives in pages (window entries, compressed entries, indexer keys) and, for the group of tokens that has not closed yet, in a
// State. A row's bits do not depend on its neighbours, nor on how the prompt was cut into steps.
package v4

import (
	"fmt"

	"sparrow/attn"
	"sparrow/kernel"
	"sparrow/model"
	"sparrow/model/config"
	"sparrow/model/nn"
	"sparrow/plan"
)

// Model is a loaded model on one device. One goroutine uses it at a time.
type Model struct {
	config *config.V4
	dev    kernel.Device

	embed  kernel.Matrix
	layers []layer
	last   site // collapses the streams
	norm   kernel.Tensor
	head   kernel.Matrix
	freq   struct{ main, far kernel.Tensor } // f32 [1, 32]: angles per position
	ratios map[int]bool                      // those that some layer has

	caches     []cache
	pageTokens int // of the cache
	states     stateMemory
	draft      *draftHead    // nil without one
	streams    kernel.Tensor // behind the last layer, of the latest Forward
	step       step
	index      attn.Indexer
	buf        buffers
	observe    model.Observer
}

// buffers is the memory one layer works in; layers follow each other, so all share it.
type buffers struct {
	streams, x, sub, mix, post, comb kernel.Scratch
	qa, q, kv, out, z                kernel.Scratch // attention
	main, key                        rawBuffers     // of the compressors
	entry                            kernel.Scratch
	indices, combined, lengths       kernel.Scratch
	workspace                        kernel.Scratch
	logit, chosen, share             kernel.Scratch // experts
	collapsed                        kernel.Scratch // outputs
	head                             *nn.Head
	ffn                              *nn.FFNScratch
	host                             []int32
	to                               []kernel.Projection // of the products in progress
}

// Load reads every weight of a checkpoint, in any of the spellings in use.
func Load(c *config.V4, l *nn.Loader, dev kernel.Device) (*Model, error) {
	m := &Model{config: c, dev: dev, ratios: map[int]bool{}}
	if c.Hyper.Streams > kernel.MaxStreams {
		return nil, fmt.Errorf("v4: %d residual streams, supported are at most %d", c.Hyper.Streams, kernel.MaxStreams)
	}
	m.load(l)
	if err := l.Finish(); err != nil {
		return nil, err
	}
	for _, r := range c.Attention.Ratios {
		m.ratios[r] = true
	}
	for _, f := range []struct {
		to   *kernel.Tensor
		rope config.Rope
	}{{&m.freq.main, c.Attention.Main}, {&m.freq.far, c.Attention.Far}} {
		v := f.rope.InvFreq(c.Attention.Rope)
		t, err := kernel.New(dev, kernel.F32, 1, len(v))
		if err == nil {
			err = kernel.WriteF32(dev, t, v)
		}
		if err != nil {
			return nil, fmt.Errorf("v4: %w", err)
		}
		*f.to = t
	}
	m.step = newStep(dev)
	m.states.iota = kernel.NewScratch(dev)
	m.index = newIndexer(dev, c.Indexer)
	m.buf = newBuffers(dev)
	return m, nil
}

func newBuffers(dev kernel.Device) buffers {
	s := kernel.NewScratch(dev)
	return buffers{
		streams: s, x: s, sub: s, mix: s, post: s, comb: s, qa: s, q: s, kv: s, out: s, z: s, main: rawBuffers{s, s}, key: rawBuffers{s, s}, entry: s,
		indices: s, combined: s, lengths: s, workspace: s,
		logit: s, chosen: s, share: s, collapsed: s, head: nn.NewHead(dev), ffn: nn.NewFFNScratch(dev),
	}
}

// uses reports whether some layer has a ratio.
func (m *Model) uses(ratio int) bool { return m.ratios[ratio] }

// Config describes the model.
func (m *Model) Config() *config.Config { return &m.config.Config }

// Facts is what the planner must know.
func (m *Model) Facts() plan.Model { return Facts(m.config) }

// Device is where the model runs.
func (m *Model) Device() kernel.Device { return m.dev }

// Observe sets who is told of hidden states and selections; nil for nobody. Hidden states are all streams of a row, side by side; selections
// are groups of ratio 4.
func (m *Model) Observe(o model.Observer) { m.observe = o }

// Forward runs one step and returns the wanted logits. When it fails, states stay where they were.
func (m *Model) Forward(in model.Input) (kernel.Tensor, error) {
	if len(m.caches) == 0 {
		return kernel.Tensor{}, fmt.Errorf("v4: forward: the model has no cache; call Allocate first")
	}
	rows, err := m.begin(&in)
	if err != nil {
		return kernel.Tensor{}, err
	}
	if m.observe != nil {
		if err := m.observe.Begin(rows); err != nil {
			return kernel.Tensor{}, err
		}
	}
	streams, err := m.embedRows(len(rows.Request))
	if err != nil {
		return kernel.Tensor{}, err
	}
	m.streams = streams
	for i := range m.layers {
		if err := m.runLayer(i, streams); err != nil {
			return kernel.Tensor{}, err
		}
	}
	logits, err := m.pick(&in, rows, streams)
	if err == nil {
		m.commit(&in)
	}
	return logits, err
}

// runLayer runs both sublayers, each between reading a mixture of the streams and writing its output into all of them.
func (m *Model) runLayer(i int, streams kernel.Tensor) error {
	l := &m.layers[i]
	err := m.sublayer(&l.attnSite, l.attnNorm, streams, func(out, x kernel.Tensor) error { return m.attend(i, out, x) })
	if err != nil {
		return fmt.Errorf("attention of layer %d: %w", i, err)
	}
	err = m.sublayer(&l.ffnSite, l.ffnNorm, streams, func(out, x kernel.Tensor) error { return m.feedForward(&l.ffn, out, x) })
	if err != nil {
		return fmt.Errorf("feed-forward of layer %d: %w", i, err)
	}
	if m.observe != nil {
		return m.observe.Hidden(i, streams)
	}
	return nil
}

// sublayer reads, normalises, runs and writes back.
func (m *Model) sublayer(s *site, norm, streams kernel.Tensor, run func(out, x kernel.Tensor) error) error {
	n, t := m.config.Hyper.Streams, streams.Rows
	mix, err := m.buf.mix.Take(kernel.F32, t, s.fn.Out())
	if err != nil {
		return err
	}
	post, err := m.buf.post.Take(kernel.F32, t, n)
	if err != nil {
		return err
	}
	comb, err := m.buf.comb.Take(kernel.F32, t, n*n)
	if err != nil {
		return err
	}
	x, err := m.buf.x.Take(m.dev.Activation(), t, m.config.Hidden)
	if err != nil {
		return err
	}
	out, err := m.buf.sub.Take(m.dev.Activation(), t, m.config.Hidden)
	if err != nil {
		return err
	}
	if err := m.dev.Multiply(kernel.MultiplyArgs{Out: mix, X: streams, W: s.fn}); err != nil {
		return err
	}
	err = m.dev.HyperPre(kernel.HyperPreArgs{Out: x, Post: post, Comb: comb, X: streams, Mix: mix, Base: s.base, Scale: s.scale, Streams: n,
		Rounds: m.config.Hyper.Rounds, NormEps: m.config.RMSEps, Eps: m.config.Hyper.Eps})
	if err != nil {
		return err
	}
	if err := m.dev.Norm(kernel.NormArgs{Out: x, X: x, Weight: norm, Eps: m.config.RMSEps}); err != nil {
		return err
	}
	if err := run(out, x); err != nil {
		return err
	}
	return m.dev.HyperPost(kernel.HyperPostArgs{X: streams, Sub: out, Post: post, Comb: comb, Streams: n})
}
