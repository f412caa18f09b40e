package attn

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/layout"
)

// projected is what a layer computes from its rows, all rows of the step.
type projected struct {
	x   kernel.Tensor // [T, hidden], normalised
	qr  kernel.Tensor // [T, q_lora], normalised
	q   kernel.Tensor // [T, heads*(nope+rope)], rotated
	kv  kernel.Tensor // [T, latent+rope], raw
	key kernel.Tensor // [T, 128], raw; not given where the layer has no indexer
	// Raw indexer queries and head weights, where they are computed with the others.
	index Queries
	out   kernel.Tensor // [T, heads*v]: attention writes it
}

// TogetherRows is the most rows of a step whose indexer queries are computed with the layer's other products. So few take as long as reading the
// weights; of more, queries are computed in the chunks that are scored, to save memory.
const TogetherRows = 32

// project computes queries, latents and indexer keys. Products of the same rows go together.
func (a *Attention) project(w *Weights, x kernel.Tensor) (p projected, err error) {
	d, act := a.params.Dims, a.dev.Activation()
	p.x = x
	if p.qr, err = a.buf.qa.Take(act, x.Rows, a.params.QLora); err != nil {
		return
	}
	if p.q, err = a.buf.q.Take(act, x.Rows, d.Heads*d.QK()); err != nil {
		return
	}
	a.buf.to = append(a.buf.to[:0], kernel.Projection{Out: p.qr, W: w.QA})
	if err = a.keys(&p, w); err != nil {
		return
	}
	together := w.Index != nil && x.Rows <= TogetherRows && a.scores()
	if together {
		if p.index, err = a.index.Take(x.Rows); err != nil {
			return
		}
		a.buf.to = append(a.buf.to, kernel.Projection{Out: p.index.Weights, W: w.Index.Weights})
	}
	if err = a.dev.Project(kernel.ProjectArgs{X: x, To: a.buf.to}); err != nil {
		return
	}
	if err = a.dev.Norm(kernel.NormArgs{Out: p.qr, X: p.qr, Weight: w.QNorm, Eps: a.params.LatentEps}); err != nil {
		return
	}
	a.buf.to = append(a.buf.to[:0], kernel.Projection{Out: p.q, W: w.QB})
	if together {
		a.buf.to = append(a.buf.to, kernel.Projection{Out: p.index.Q, W: w.Index.Q})
	}
	if err = a.dev.Project(kernel.ProjectArgs{X: p.qr, To: a.buf.to}); err != nil {
		return
	}
	err = a.dev.Rotate(kernel.RotateArgs{X: p.q, Angles: a.step.angles, Heads: d.Heads, HeadDim: d.QK(), Offset: d.Nope, Pairing: kernel.Interleaved})
	return
}

// scores reports whether some launch of the step scores keys.
func (a *Attention) scores() bool {
	for i := range a.step.segments {
		s := &a.step.segments[i]
		for j := range s.launches {
			if a.index.Scores(s.plan.Indexer.Kind, s.launches[j].scoreWidth) {
				return true
			}
		}
	}
	return false
}

// keys adds the products that latent rows and indexer keys are made of.
func (a *Attention) keys(p *projected, w *Weights) (err error) {
	if p.kv, err = a.buf.kv.Take(a.dev.Activation(), p.x.Rows, a.params.Dims.Row()); err != nil {
		return err
	}
	a.buf.to = append(a.buf.to, kernel.Projection{Out: p.kv, W: w.KVA})
	if w.Index == nil {
		return nil
	}
	if p.key, err = a.buf.key.Take(a.dev.Activation(), p.x.Rows, layout.IndexDim); err != nil {
		return err
	}
	a.buf.to = append(a.buf.to, kernel.Projection{Out: p.key, W: w.Index.K})
	return nil
}

// Store writes latent rows and indexer keys of a layer for x (normalised rows, in step order) and attends to nothing: for rows whose outputs nobody
// reads.
func (a *Attention) Store(layer int, w *Weights, c Cache, x kernel.Tensor) error {
	p := projected{x: x}
	a.buf.to = a.buf.to[:0]
	err := a.checkCache(w, c)
	if err == nil {
		err = a.keys(&p, w)
	}
	if err == nil {
		err = a.dev.Project(kernel.ProjectArgs{X: x, To: a.buf.to})
	}
	if err == nil {
		err = a.store(w, c, p)
	}
	if err != nil {
		return fmt.Errorf("keys of layer %d: %w", layer, err)
	}
	return nil
}

// store writes the step's latent rows and the indexer keys of every row, also of rows whose own attention needs no selection: later rows will.
func (a *Attention) store(w *Weights, c Cache, p projected) error {
	err := a.dev.StoreRows(kernel.StoreArgs{KV: p.kv, Norm: w.KVNorm, Eps: a.params.LatentEps, Angles: a.step.angles, Slots: a.step.slots, Pool: c.Main})
	if err != nil || w.Index == nil {
		return err
	}
	return a.dev.StoreIndex(kernel.IndexStoreArgs{Key: p.key, Weight: w.Index.KNorm, Bias: w.Index.KBias, Eps: indexEps, Angles: a.step.angles,
		Pairing: a.params.IndexPairing, Hadamard: Hadamard(c.Index.Layout), Slots: a.step.slots, Pool: c.Index})
}
