package attn

// choose fills a launch's part of the step's positions by the indexer path the plan names.
func (a *Attention) choose(s *segment, l *launch, w *IndexWeights, c Cache, in projected) error {
	st := &a.step
	return a.index.Select(&Selection{
		Plan: s.plan.Indexer, First: l.first, Last: l.last, Longest: l.scoreWidth,
		Q: w.Q, W: w.Weights, Latent: in.qr, Hidden: in.x, Computed: in.index, Angles: st.angles,
		Out: st.positions, Lens: st.lens, Cache: c.Index,
		Table: st.table, Request: st.request, Gather: l.indexFlat, Start: st.indexStart,
	})
}
