package v41

import (
	"sparrow/internal/attn/dual"
	"sparrow/internal/model"
	"sparrow/plan"
)

// moved counts how often the addresses of the cache and of states have changed.
func (m *Model) moved() int { return m.allocated + m.attn.States.Slots() }

// Restore makes the state of a sequence that continues after n tokens of the cache, a whole number of pages.
func (m *Model) Restore(n int, windows []int32) (model.State, error) {
	// A page ends with a complete pair, so that no raw rows are needed.
	return m.State(m.attn.States.Restore(n, m.pageTokens, windows, make([]dual.Cache, len(m.layers))))
}

// StateBytes returns the memory of one state: its rings of every layer that makes entries of two tokens.
func (m *Model) StateBytes(cfg *plan.Config) int64 { return m.sizes(cfg).State }

// Commit advances every state of a batch: its sequence's rows are computed and stored.
func (m *Model) Commit(in *model.Input) {
	m.Advance(in, func(s *dual.State, r int) { s.Advance(len(in.Tokens[r])) })
}
