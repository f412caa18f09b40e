package attn

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// Params are what attention needs to know about a model.
type Params struct {
	Dims         kernel.LatentDims
	QLora        int
	IndexHeads   int
	TopK         int // keys each query may attend to
	Scale        float32
	LatentEps    float32
	IndexPairing kernel.Pairing
	InvFreq      []float32
	CosScale     float32
}

// indexEps is the epsilon of the indexer's LayerNorm, the same in every family.
const indexEps = 1e-6

// Weights are the matrices of one layer.
type Weights struct {
	QA, QB, KVA, KVB, O kernel.Matrix
	QNorm, KVNorm       kernel.Tensor
	Index               *IndexWeights // nil where the layer shares the selection of a layer before it
}

// IndexWeights are the matrices of one layer's indexer.
type IndexWeights struct {
	Q, K, Weights kernel.Matrix
	KNorm, KBias  kernel.Tensor
}

// Cache is the paged memory of one layer. Index is not given for layers that share a selection.
type Cache struct{ Main, Index kernel.Pool }

// Observer is told what attention chose. Implementations read tensors before they return.
type Observer interface {
	// Selected is called for every segment of a layer that computed a selection. positions is i32 [rows, K]: row i belongs to step row
	// first+i.
	Selected(layer, first int, positions kernel.Tensor) error
}

// Attention runs the attention of every layer of one model on one device. One goroutine uses it at a time.
type Attention struct {
	dev    kernel.Device
	params Params
	freq   kernel.Tensor
	buf    buffers
	step   step
	index  Indexer
	// Observe, when set, is told of every selection.
	Observe Observer
}

// New prepares attention for a model.
func New(dev kernel.Device, p Params) (*Attention, error) {
	freq, err := kernel.New(dev, kernel.F32, 1, len(p.InvFreq))
	if err != nil {
		return nil, err
	}
	if err := kernel.WriteF32(dev, freq, p.InvFreq); err != nil {
		return nil, err
	}
	index := NewIndexer(dev, Indexer{Heads: p.IndexHeads, TopK: p.TopK, Pairing: p.IndexPairing})
	return &Attention{dev: dev, params: p, freq: freq, buf: newBuffers(dev), step: newStep(dev), index: index}, nil
}

// Layer adds the attention output of one layer for x (normalised rows, in step order) to h.
func (a *Attention) Layer(layer int, w *Weights, c Cache, h, x kernel.Tensor) error {
	if err := a.layer(layer, w, c, h, x); err != nil {
		return fmt.Errorf("attention of layer %d: %w", layer, err)
	}
	return nil
}

func (a *Attention) layer(layer int, w *Weights, c Cache, h, x kernel.Tensor) error {
	if err := a.checkCache(w, c); err != nil {
		return err
	}
	in, err := a.project(w, x)
	if err != nil {
		return err
	}
	if err := a.store(w, c, in); err != nil {
		return err
	}
	if in.out, err = a.buf.out.Take(a.dev.Activation(), x.Rows, a.params.Dims.Heads*a.params.Dims.V); err != nil {
		return err
	}
	for i := range a.step.segments {
		s := &a.step.segments[i]
		switch s.plan.Form {
		case plan.FormDenseMHA:
			err = a.dense(s, w, c, in.q, in.out)
		case plan.FormSparseMLA:
			err = a.sparse(layer, s, w, c, in)
		default:
			err = fmt.Errorf("form %v is not one this model runs", s.plan.Form)
		}
		if err != nil {
			return fmt.Errorf("segment %v: %w", s.plan.Row, err)
		}
	}
	return a.dev.Multiply(kernel.MultiplyArgs{Out: h, X: in.out, W: w.O, Accumulate: true})
}

// checkCache compares the pools with what the plan was made for.
func (a *Attention) checkCache(w *Weights, c Cache) error {
	for i := range a.step.segments {
		want, err := kindOf(a.step.segments[i].plan.Layout)
		if err != nil {
			return err
		}
		if c.Main.Layout != want {
			return &plan.Error{Code: plan.E27, Asked: fmt.Sprintf("a plan for %v rows over a cache of %v rows", want, c.Main.Layout),
				Supported: "a cache in the layout the configuration resolved to"}
		}
	}
	if w.Index != nil && !c.Index.Mem.Given() {
		return fmt.Errorf("the layer computes a selection but has no index cache")
	}
	return nil
}

// kindOf maps the planner's name of a main layout to the layout itself.
func kindOf(l plan.Layout) (layout.Kind, error) {
	switch l {
	case plan.BF16Row1152:
		return layout.BF16Row1152, nil
	case plan.FP8Row656:
		return layout.FP8Row656, nil
	case plan.FP8Row576:
		return layout.FP8Row576, nil
	case plan.F32Row2304:
		return layout.F32Row2304, nil
	}
	return layout.None, fmt.Errorf("attn: the plan names %v, which holds no latent rows of this family", l)
}

// buffers is the memory one layer works in; layers follow each other, so all share it.
type buffers struct {
	qa, q, kv, key, out kernel.Scratch
	rows, up            kernel.Scratch // dense: gathered rows, expanded keys and values
	absorbed, latent    kernel.Scratch // sparse: queries and outputs in latent space
	indices             kernel.Scratch
	workspace           kernel.Scratch      // converted pages or gathered rows
	to                  []kernel.Projection // of the products in progress
}

func newBuffers(mem kernel.Memory) buffers {
	s := kernel.NewScratch(mem)
	return buffers{qa: s, q: s, kv: s, key: s, out: s, rows: s, up: s, absorbed: s, latent: s, indices: s, workspace: s}
}
