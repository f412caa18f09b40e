package model

import (
	"fmt"
	"slices"

	"sparrow/plan"
)

// Stateful is a model with a state for every sequence in addition to its pages, such as the raw rows of incomplete
// groups. The state is an input of every step of the sequence (nil for padding requests) and is advanced if the step
// succeeds. If the step fails, the state is unchanged or invalid. If it is invalid, the next step returns an error, and
// the caller must call Truncate(0) and compute the whole sequence again.
type Stateful interface {
	// Reserve allocates the memory of the given number of states together. NewState allocates no memory while at most
	// that many states exist.
	Reserve(states int) error
	// NewState makes the state of a sequence without tokens.
	NewState() (State, error)
	// Commit advances the states of a batch after the pass of its rows was enqueued.
	Commit(in *Input)
}

// State is a Stateful model's state of one sequence. Only the goroutine that uses the model may use it.
type State interface {
	// Len returns the number of tokens that the state covers: the next step of the sequence must begin there.
	Len() int
	// Clone returns a copy of the state for another sequence with the same tokens so far.
	Clone() (State, error)
	// Truncate removes the tokens from n on: rejected drafts, or all tokens if the sequence is computed again. How many
	// tokens can be removed depends on the model; n = 0 is always possible.
	Truncate(n int) error
	// Release frees the state's memory. The state must not be used again.
	Release()
}

// Windowed is a model to some of whose rows only the next few tokens attend. These rows are stored in window pages,
// which a sequence releases as its window advances.
type Windowed interface {
	Stateful
	// Window returns the number of tokens that a row attends to in window pages, including its own.
	Window() int
	// WindowBytes returns the size of a window page in bytes, which PageBytes includes.
	WindowBytes(cfg *plan.Config) int64
	// StateBytes returns the size of one state in bytes.
	StateBytes(cfg *plan.Config) int64
	// AllocateWindows is like Allocate, with a separate number of window pages.
	AllocateWindows(cfg *plan.Config, pages, windows int) error
	// Restore makes the state of a sequence that continues after n tokens, a whole number of pages, which another
	// sequence computed: windows are the window pages of those tokens, of which the last must be present.
	Restore(n int, windows []int32) (State, error)
}

// Snapshotted is a Windowed model whose window pages hold snapshots of states at the ends of pages. A snapshot has the
// size of the rows of many pages.
type Snapshotted interface {
	Windowed
	// SnapshotSpacing returns the number of pages between two snapshots that are kept inside a sequence.
	SnapshotSpacing() int
}

// Kept is the state of a sequence in a package of attention.
type Kept[S any] interface {
	comparable
	Len() int
	Clone() (S, error)
	Truncate(n int) error
	Release()
	// Check returns an error unless a sequence whose next token is at position first can continue from the state.
	Check(sequence, first int) error
}

// StatePool makes the states of sequences in a package of attention.
type StatePool[S any] interface {
	New() (S, error)
	Reserve(states int) error
	Held() int
	// Of returns a state as S, or an error if it was not made by this StatePool or was released.
	Of(state any, sequence int) (S, error)
}

// Sequences implements Stateful for the models of a family, with states of its package of attention.
type Sequences[S Kept[S]] struct {
	Family    string // prefix of error texts
	StatePool StatePool[S]
}

// sequence is the state of one sequence.
type sequence[S Kept[S]] struct {
	of   *Sequences[S]
	kept S
}

func (q *sequence[S]) Len() int              { return q.kept.Len() }
func (q *sequence[S]) Clone() (State, error) { return q.of.State(q.kept.Clone()) }
func (q *sequence[S]) Truncate(n int) error  { return q.kept.Truncate(n) }
func (q *sequence[S]) Release()              { q.kept.Release() }

// State returns the State for a state of the package of attention; if err is not nil, it returns err.
func (s *Sequences[S]) State(kept S, err error) (State, error) {
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Family, err)
	}
	return &sequence[S]{s, kept}, nil
}

// Reserve allocates the memory of the given number of states.
func (s *Sequences[S]) Reserve(states int) error {
	if err := s.StatePool.Reserve(states); err != nil {
		return fmt.Errorf("%s: states of %d sequences: %w", s.Family, states, err)
	}
	return nil
}

// NewState makes the state of an empty sequence.
func (s *Sequences[S]) NewState() (State, error) { return s.State(s.StatePool.New()) }

// States returns the number of states that were made and not released.
func (s *Sequences[S]) States() int { return s.StatePool.Held() }

// KeptOf returns the state of request r of a batch as S; the zero S if the request is padding.
func (s *Sequences[S]) KeptOf(given State, in *Input, r int) (none S, err error) {
	if in.Batch.Batch.Requests[r].Padding {
		return none, nil
	}
	var kept any
	if q, ok := given.(*sequence[S]); ok && q != nil {
		kept = q.kept
	}
	return s.StatePool.Of(kept, r)
}

// AllKept appends the states of a batch's sequences to list. Each sequence must have its own state, and in a pass of
// the target each state must end where its sequence continues.
func (s *Sequences[S]) AllKept(list []S, in *Input, target bool) ([]S, error) {
	if len(in.States) != len(in.Tokens) {
		return nil, fmt.Errorf("%d states for %d sequences; make one with NewState for each sequence", len(in.States),
			len(in.Tokens))
	}
	var none S
	for r, given := range in.States {
		kept, err := s.KeptOf(given, in, r)
		if err == nil && kept != none && target {
			err = kept.Check(r, in.Batch.Batch.FirstPosition(in.Config, r))
		}
		if err != nil {
			return nil, err
		}
		if kept != none && slices.Contains(list, kept) {
			return nil, fmt.Errorf("sequence %d shares its state with another one; use Clone", r)
		}
		list = append(list, kept)
	}
	return list, nil
}

// Advance calls advance with the state of each request of a batch, except padding.
func (s *Sequences[S]) Advance(in *Input, advance func(kept S, r int)) {
	for r, given := range in.States {
		if q, ok := given.(*sequence[S]); ok {
			advance(q.kept, r)
		}
	}
}
