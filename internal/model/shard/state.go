package shard

import (
	"errors"
	"fmt"

	"sparrow/internal/model"
	"sparrow/plan"
)

// windowed is a model whose parts have states and window pages.
type windowed struct {
	ranks
	in model.Input // batch with the states of one rank
}

func (m *windowed) part(rank int) model.Windowed { return m.parts[rank].(model.Windowed) }

// state holds the states of one sequence on all ranks, which have the same length.
type state struct{ parts []model.State }

// made makes a state on every rank. If one rank fails, the states of the other ranks are released.
func (m *windowed) made(make func(rank int) (model.State, error)) (model.State, error) {
	s := &state{}
	for r := range m.parts {
		x, err := make(r)
		if err != nil {
			s.Release()
			return nil, fmt.Errorf("rank %d of %d: %w", r, len(m.parts), err)
		}
		s.parts = append(s.parts, x)
	}
	return s, nil
}

// Reserve allocates the memory of states on every rank.
func (m *windowed) Reserve(states int) error {
	return m.each(func(p part) error { return p.(model.Stateful).Reserve(states) })
}

func (m *windowed) NewState() (model.State, error) {
	return m.made(func(r int) (model.State, error) { return m.part(r).NewState() })
}

// Restore makes the state of a sequence that continues after cached tokens.
func (m *windowed) Restore(n int, windows []int32) (model.State, error) {
	if m.byRequests() {
		windows = m.local(windows)
	}
	return m.made(func(r int) (model.State, error) { return m.part(r).Restore(n, windows) })
}

// local returns the window pages of a sequence with the numbers of its rank. The other ranks make states from their
// pages with the same numbers. These states are not used: they are made so that state slots are the same on all ranks.
func (m *windowed) local(windows []int32) []int32 {
	out := make([]int32, len(windows))
	for i, w := range windows {
		if out[i] = w; w >= 0 {
			out[i] = w % int32(m.windows)
		}
	}
	return out
}

// Commit advances the states of a batch on every rank.
func (m *windowed) Commit(in *model.Input) {
	for r := range m.parts {
		m.part(r).Commit(m.input(&m.in, in, r))
	}
}

// Window returns the number of tokens that a row attends to in window pages.
func (m *windowed) Window() int { return m.part(0).Window() }

// WindowBytes returns the size in bytes of a window page on each rank.
func (m *windowed) WindowBytes(cfg *plan.Config) int64 { return m.part(0).WindowBytes(cfg) }

// StateBytes returns the size in bytes of a state on each rank.
func (m *windowed) StateBytes(cfg *plan.Config) int64 { return m.part(0).StateBytes(cfg) }

// AllocateWindows makes the cache of every rank.
func (m *windowed) AllocateWindows(cfg *plan.Config, pages, windows int) error {
	m.pages, m.windows = pages, windows
	return m.each(func(p part) error { return p.(model.Windowed).AllocateWindows(cfg, pages, windows) })
}

// Len returns the number of tokens that the state covers.
func (s *state) Len() int { return s.parts[0].Len() }

func (s *state) Clone() (model.State, error) {
	c := &state{}
	for _, p := range s.parts {
		x, err := p.Clone()
		if err != nil {
			c.Release()
			return nil, err
		}
		c.parts = append(c.parts, x)
	}
	return c, nil
}

func (s *state) Truncate(n int) error {
	var all error
	for _, p := range s.parts {
		all = errors.Join(all, p.Truncate(n))
	}
	return all
}

func (s *state) Release() {
	for _, p := range s.parts {
		p.Release()
	}
	s.parts = nil
}
