package mla

import "sparrow/kernel"

// dense computes attention with expanded keys and values. All keys, also new ones, are read from the cache, so that the
// result for a prompt is bitwise equal for any division into chunks.
func (p *Pass) dense(l *launch, w *Weights, c Cache) {
	d := p.params.Dims
	p.list.Add(kernel.GatherArgs{Out: l.rows, Slots: l.gather, Pool: c.Main})
	p.list.Add(kernel.MultiplyArgs{Out: l.up, X: l.rows.Columns(0, d.Latent), W: w.KVB})
	p.list.Add(kernel.DenseArgs{
		Out:   p.out.Slice(l.first, l.last),
		Q:     p.rotate(l),
		KV:    l.up,
		Rope:  l.rows.Columns(d.Latent, d.Row()),
		Start: p.start.Slice(l.first, l.last),
		Lens:  p.lens.Slice(l.first, l.last),
		Dims:  d,
		Scale: p.params.Scale,
	})
}
