package next

import (
	"fmt"

	"sparrow/internal/attn/hybrid"
	"sparrow/internal/model"
	"sparrow/plan"
)

// State is the model's state of one sequence, in addition to its pages.
type State struct{ *hybrid.State }

// Clone copies the state for a fork.
func (s *State) Clone() (model.State, error) {
	c, err := s.State.Clone()
	if err != nil {
		return nil, fmt.Errorf("next: %w", err)
	}
	return &State{c}, nil
}

// Reserve allocates the memory of the given number of states.
func (m *Model) Reserve(states int) error {
	if err := m.attn.States.Reserve(states); err != nil {
		return fmt.Errorf("next: states of %d sequences: %w", states, err)
	}
	return nil
}

// moved counts how often the addresses of the cache and of states have changed.
func (m *Model) moved() int { return m.allocated + m.attn.States.Moved() }

// NewState makes the state of an empty sequence.
func (m *Model) NewState() (model.State, error) {
	s, err := m.attn.States.New()
	if err != nil {
		return nil, fmt.Errorf("next: %w", err)
	}
	return &State{s}, nil
}

// Restore makes the state of a sequence that continues after n tokens of the cache, a whole number of pages.
func (m *Model) Restore(n int, windows []int32) (model.State, error) {
	s, err := m.attn.States.Restore(n, m.pageTokens, windows, m.caches)
	if err != nil {
		return nil, fmt.Errorf("next: %w", err)
	}
	return &State{s}, nil
}

// States counts the states that were made and not released.
func (m *Model) States() int { return m.attn.States.Held() }

// stateOf is the state of a sequence of a batch; nil where it is padding.
func (m *Model) stateOf(given model.State, in *model.Input, sequence int) (*hybrid.State, error) {
	if in.Batch.Batch.Requests[sequence].Padding {
		return nil, nil
	}
	var s any
	if x, ok := given.(*State); ok && x != nil {
		s = x.State
	}
	return m.attn.States.Of(s, sequence)
}

// statesOf finds the states of a batch; in a pass of the target each must end where its sequence continues.
func (m *Model) statesOf(list []*hybrid.State, in *model.Input, target bool) ([]*hybrid.State, error) {
	return model.StatesOf(list, in, func(given model.State, sequence int) (*hybrid.State, error) {
		s, err := m.stateOf(given, in, sequence)
		if err == nil && s != nil && target {
			err = s.Check(sequence, in.Batch.Batch.FirstPosition(in.Config, sequence))
		}
		return s, err
	})
}

// Commit advances every state of a batch: its sequence's rows are computed and stored.
func (m *Model) Commit(in *model.Input) {
	for r, s := range in.States {
		if s != nil { // nil: padding
			s.(*State).Advance(len(in.Tokens[r]), m.holds && in.Batch.Batch.KindOf(r) == plan.ModeVerify)
		}
	}
}
