package v4

import (
	"sparrow/internal/attn/dual"
	"sparrow/internal/model"
	"sparrow/plan"
)

// moved returns a number that increases when the address of the cache or of states changes.
func (m *Model) moved() int { return m.allocated + m.attn.States.Slots() }

// Restore makes the state of a sequence that continues after n cached tokens, a whole number of pages.
func (m *Model) Restore(n int, windows []int32) (model.State, error) {
	return m.State(m.attn.States.Restore(n, m.pageTokens, windows, m.caches))
}

// StateBytes returns the size of one state in bytes: the rings of every layer, and the ring of the drafting block if it
// is used.
func (m *Model) StateBytes(cfg *plan.Config) int64 {
	n := m.sizes(cfg).State
	if entry, _, err := layouts(cfg); err == nil && m.draft != nil && cfg.N > 1 {
		n += int64(entry.PageBytes(dual.DraftRing))
	}
	return n
}

// Commit advances the state of every sequence of a batch by its new tokens, after their pass was enqueued.
func (m *Model) Commit(in *model.Input) {
	m.Advance(in, func(s *dual.State, r int) { s.Advance(len(in.Tokens[r])) })
}
