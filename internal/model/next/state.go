package next

import (
	"sparrow/internal/attn/hybrid"
	"sparrow/internal/model"
	"sparrow/plan"
)

// moved returns a number that increases when the address of the cache or of states changes.
func (m *Model) moved() int { return m.allocated + m.attn.States.Moved() }

// Restore makes the state of a sequence that continues after n cached tokens, a whole number of pages.
func (m *Model) Restore(n int, windows []int32) (model.State, error) {
	return m.State(m.attn.States.Restore(n, m.pageTokens, windows, m.caches))
}

// Commit advances the state of every sequence of a batch by its new tokens, after their pass was enqueued.
func (m *Model) Commit(in *model.Input) {
	m.Advance(in, func(s *hybrid.State, r int) {
		s.Advance(len(in.Tokens[r]), m.holds && in.Batch.Batch.KindOf(r) == plan.ModeVerify)
	})
}
