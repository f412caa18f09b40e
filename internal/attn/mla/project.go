package mla

import (
	"sparrow/internal/attn"
	"sparrow/kernel"
	"sparrow/layout"
)

// project computes queries, latents and indexer keys of x. Products of x are computed together.
func (p *Pass) project(w *Weights, x kernel.Tensor) {
	p.view(w)
	if w.QA == nil {
		p.list.Add(kernel.ProjectArgs{X: x, To: p.keys([]kernel.Projection{{Out: p.query, W: w.QB}}, w)})
		return
	}
	joint := w.Index != nil && p.plan.JointQueries
	to := p.keys([]kernel.Projection{{Out: p.qr, W: w.QA}}, w)
	if joint {
		to = append(to, kernel.Projection{Out: p.joint.Weights, W: w.Index.Weights})
	}
	p.list.Add(kernel.ProjectArgs{X: x, To: to})
	p.list.Add(kernel.NormArgs{Out: p.qr, X: p.qr, Weight: w.QNorm, Eps: p.params.LatentEps})
	to = []kernel.Projection{{Out: p.query, W: w.QB}}
	if joint {
		to = append(to, kernel.Projection{Out: p.joint.Q, W: w.Index.Q})
	}
	p.list.Add(kernel.ProjectArgs{X: p.qr, To: to})
}

// rotate rotates the queries of a launch. Locating positions follows directly, so that a device may run both operations
// in one launch.
func (p *Pass) rotate(l *launch) kernel.Tensor {
	d, q := p.params.Dims, p.query.Slice(l.first, l.last)
	p.list.Add(kernel.RotateArgs{X: q, Angles: p.angles.Slice(l.first, l.last), Heads: d.Heads, HeadDim: d.QK(),
		Offset: d.Nope, Pairing: kernel.Interleaved})
	return q
}

// keys appends the matrix products for indexer keys and latent rows, in the order of Weights.Join.
func (p *Pass) keys(to []kernel.Projection, w *Weights) []kernel.Projection {
	if w.Index != nil {
		to = append(to, kernel.Projection{Out: p.key, W: w.Index.K})
	}
	return append(to, kernel.Projection{Out: p.kv, W: w.KVA})
}

// view places the outputs of a layer's products of x in adjacent columns, so that a device with joined matrices
// computes them as one product.
func (p *Pass) view(w *Weights) {
	if !p.joins {
		return
	}
	at := p.params.QLora
	p.qr = p.first.Columns(0, at)
	if w.Index != nil {
		p.key = p.first.Columns(at, at+layout.IndexDim)
		at += layout.IndexDim
	}
	p.kv = p.first.Columns(at, at+p.params.Dims.Row())
}

// Join calls kernel.Joiner with the matrices of a layer that multiply the same rows. A matrix whose rows end inside a
// block of scales comes last.
func (w *Weights) Join(j kernel.Joiner) error {
	if w.QA == nil {
		return nil // the products for the rank's heads and for the latent row are not adjacent
	}
	first, second := []kernel.Matrix{w.QA}, []kernel.Matrix{w.QB}
	if w.Index != nil {
		first, second = append(first, w.Index.K), append(second, w.Index.Q)
	}
	if err := j.Join(append(first, w.KVA)...); err != nil {
		return err
	}
	return j.Join(second...)
}

// store writes the latent rows and the indexer keys of all rows, also of rows that need no selection, because later
// rows select among these keys.
func (p *Pass) store(w *Weights, c Cache) {
	p.list.Add(kernel.StoreArgs{KV: p.kv, Norm: w.KVNorm, Eps: p.params.LatentEps, Angles: p.angles, Slots: p.slots,
		Pool: c.Main})
	if w.Index != nil {
		p.list.Add(kernel.IndexStoreArgs{Key: p.key, Weight: w.Index.KNorm, Bias: w.Index.KBias, Eps: indexEps,
			Angles: p.angles, Pairing: p.params.IndexPairing, Hadamard: attn.Hadamard(c.Index.Layout), Slots: p.slots,
			Pool: c.Index})
	}
}
