package v41

import (
	"sparrow/internal/attn/dual"
	"sparrow/internal/model"
	"sparrow/plan"
)

// moved returns a number that increases when the address of the cache or of states changes.
func (m *Model) moved() int { return m.allocated + m.attn.States.Slots() }

// Restore makes the state of a sequence that continues after n cached tokens, a whole number of pages.
func (m *Model) Restore(n int, windows []int32) (model.State, error) {
	// Pages end with a complete pair of tokens, so no raw rows are needed.
	return m.State(m.attn.States.Restore(n, m.pageTokens, windows, make([]dual.Cache, len(m.layers))))
}

// StateBytes returns the size of one state in bytes: its rings of every layer that computes entries of two tokens.
func (m *Model) StateBytes(cfg *plan.Config) int64 { return m.sizes(cfg).State }

// Commit advances the state of every sequence of a batch by its new tokens, after their pass was enqueued.
func (m *Model) Commit(in *model.Input) {
	m.Advance(in, func(s *dual.State, r int) { s.Advance(len(in.Tokens[r])) })
}
