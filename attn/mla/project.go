package mla

import (
	"sparrow/attn"
	"sparrow/kernel"
)

// project computes queries, latents and indexer keys of x. Products of the same rows go together.
func (p *Pass) project(w *Weights, x kernel.Tensor) {
	d := p.params.Dims
	joint := w.Index != nil && p.plan.JointQueries
	p.to = p.keys(append(p.to[:0], kernel.Projection{Out: p.qr, W: w.QA}), w)
	if joint {
		p.to = append(p.to, kernel.Projection{Out: p.joint.Weights, W: w.Index.Weights})
	}
	p.q.Project(kernel.ProjectArgs{X: x, To: p.to})
	p.q.Norm(kernel.NormArgs{Out: p.qr, X: p.qr, Weight: w.QNorm, Eps: p.params.LatentEps})
	p.to = append(p.to[:0], kernel.Projection{Out: p.query, W: w.QB})
	if joint {
		p.to = append(p.to, kernel.Projection{Out: p.joint.Q, W: w.Index.Q})
	}
	p.q.Project(kernel.ProjectArgs{X: p.qr, To: p.to})
	p.q.Rotate(kernel.RotateArgs{X: p.query, Angles: p.angles, Heads: d.Heads, HeadDim: d.QK(), Offset: d.Nope,
		Pairing: kernel.Interleaved})
}

// keys adds the products that latent rows and indexer keys are made of.
func (p *Pass) keys(to []kernel.Projection, w *Weights) []kernel.Projection {
	to = append(to, kernel.Projection{Out: p.kv, W: w.KVA})
	if w.Index != nil {
		to = append(to, kernel.Projection{Out: p.key, W: w.Index.K})
	}
	return to
}

// store writes the pass's latent rows and the indexer keys of every row, also of rows whose attention needs no
// selection: selections of later rows read them.
func (p *Pass) store(w *Weights, c Cache) {
	p.q.StoreRows(kernel.StoreArgs{KV: p.kv, Norm: w.KVNorm, Eps: p.params.LatentEps, Angles: p.angles, Slots: p.slots,
		Pool: c.Main})
	if w.Index != nil {
		p.q.StoreIndex(kernel.IndexStoreArgs{Key: p.key, Weight: w.Index.KNorm, Bias: w.Index.KBias, Eps: indexEps,
			Angles: p.angles, Pairing: p.params.IndexPairing, Hadamard: attn.Hadamard(c.Index.Layout), Slots: p.slots,
			Pool: c.Index})
	}
}
