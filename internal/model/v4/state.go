package v4

import (
	"sparrow/internal/attn/dual"
	"sparrow/internal/model"
	"sparrow/plan"
)

// moved counts how often the addresses of the cache and of states have changed.
func (m *Model) moved() int { return m.allocated + m.attn.States.Slots() }

// Restore makes the state of a sequence that continues after n tokens of the cache, a whole number of pages.
func (m *Model) Restore(n int, windows []int32) (model.State, error) {
	return m.State(m.attn.States.Restore(n, m.pageTokens, windows, m.caches))
}

// StateBytes returns the memory of one state: the rings of every layer, and the ring of the drafting block if it is
// used.
func (m *Model) StateBytes(cfg *plan.Config) int64 {
	n := m.sizes(cfg).State
	if entry, _, err := layouts(cfg); err == nil && m.draft != nil && cfg.N > 1 {
		n += int64(entry.PageBytes(dual.DraftRing))
	}
	return n
}

// Commit advances every state of a batch: its sequence's rows are computed and stored.
func (m *Model) Commit(in *model.Input) {
	m.Advance(in, func(s *dual.State, r int) { s.Advance(len(in.Tokens[r])) })
}
