package v4

import (
	"sparrow/attn"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/model/config"
)

// newIndexer prepares selection for the layers of ratio 4. The rotated half of a head is its last; query scales are not rounded to powers of
// two (v4 spec, 2.5).
func newIndexer(dev kernel.Device, c config.Indexer) attn.Indexer {
	return attn.NewIndexer(dev, attn.Indexer{Heads: c.Heads, TopK: c.TopK, Offset: layout.IndexDim - layout.RopeDim, Pairing: kernel.Interleaved, Scales: num.ScaleF32})
}

// choose fills a launch's part of the selection by the indexer path the plan names. Selected are groups, counted in the sequence; keys lie
// where their groups' entries lie.
func (m *Model) choose(s *segment, l *launch, x *indexer, c cache, in query) error {
	st := &m.step
	return m.index.Select(&attn.Selection{
		Plan: s.plan.Indexer, First: l.first, Last: l.last, Longest: l.longest,
		Q: x.q, W: x.weights, Latent: in.qr, Hidden: in.x, Computed: in.index, Angles: in.angles,
		Out: st.selected, Lens: st.groups, Cache: c.index,
		Table: st.table, Request: st.request, Gather: l.groups, Start: st.groupStart,
	})
}
