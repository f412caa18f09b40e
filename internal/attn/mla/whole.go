package mla

import "sparrow/kernel"

// whole computes attention in latent space over every key of a row, page by page, for models without an indexer.
func (p *Pass) whole(l *launch, w *Weights, c Cache) {
	d := p.params.Dims
	p.list.Add(kernel.AbsorbArgs{Out: l.absorbed, Q: p.rotate(l), KVB: w.KVB, Dims: d})
	p.list.Add(kernel.LatentArgs{Out: l.latent, Q: l.absorbed, Pool: c.Main, Table: p.table,
		TableRow: p.request.Slice(l.first, l.last), Lens: p.lens.Slice(l.first, l.last), Heads: d.Heads,
		Scale: p.params.Scale, SplitKeys: l.segment.SplitKeys.Keys()})
	p.list.Add(kernel.ExpandArgs{Out: p.out.Slice(l.first, l.last), U: l.latent, KVB: w.KVB, Dims: d})
}
