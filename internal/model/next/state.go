package next

import (
	"sparrow/internal/attn/hybrid"
	"sparrow/internal/model"
	"sparrow/plan"
)

// moved counts how often the addresses of the cache and of states have changed.
func (m *Model) moved() int { return m.allocated + m.attn.States.Moved() }

// Restore makes the state of a sequence that continues after n tokens of the cache, a whole number of pages.
func (m *Model) Restore(n int, windows []int32) (model.State, error) {
	return m.State(m.attn.States.Restore(n, m.pageTokens, windows, m.caches))
}

// Commit advances every state of a batch: its sequence's rows are computed and stored.
func (m *Model) Commit(in *model.Input) {
	m.Advance(in, func(s *hybrid.State, r int) {
		s.Advance(len(in.Tokens[r]), m.holds && in.Batch.Batch.KindOf(r) == plan.ModeVerify)
	})
}
