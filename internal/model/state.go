package model

import (
	"fmt"
	"slices"

	"sparrow/plan"
)

// Stateful is a model that keeps a state of every sequence in addition to its pages, such as the open groups of a
// compressor. The state is an input of every step of the sequence, nil for requests that are padding; a step that
// succeeds advances it. A step that fails leaves it unchanged, or invalid: then the next step returns an error, and the
// caller must call Truncate(0) and compute the whole sequence again.
type Stateful interface {
	// Reserve allocates the memory of the given number of states at once: as long as no more exist, NewState allocates
	// none.
	Reserve(states int) error
	// NewState makes the state of a sequence without tokens.
	NewState() (State, error)
	// Commit advances the states of a batch after the pass that computes and stores its rows was enqueued.
	Commit(in *Input)
}

// State is a Stateful model's state of one sequence. The goroutine that uses the model uses its states.
type State interface {
	// Len is the number of tokens that the state covers: the next step of the sequence must begin there.
	Len() int
	// Clone is an equal state for another sequence that has the same tokens so far: a fork.
	Clone() (State, error)
	// Truncate removes the tokens from n on: rejected drafts, or all of them when the sequence starts over. How many
	// tokens can be removed depends on the model; n = 0 always works.
	Truncate(n int) error
	// Release frees the state's memory. The state must not be used again.
	Release()
}

// Windowed is a model some of whose rows are visible to the next few tokens only. They are stored in window pages,
// which a sequence releases as its window advances, while it keeps its other pages.
type Windowed interface {
	Stateful
	// Window returns the number of tokens that a row attends to in window pages, including its own.
	Window() int
	// WindowBytes is the part of PageBytes that belongs to a window page.
	WindowBytes(cfg *plan.Config) int64
	// StateBytes is the memory of one state.
	StateBytes(cfg *plan.Config) int64
	// AllocateWindows makes the cache like Allocate, with a separate number of window pages.
	AllocateWindows(cfg *plan.Config, pages, windows int) error
	// Restore makes the state of a sequence that continues after n tokens, a whole number of pages, which another
	// sequence computed: windows are the window pages of those tokens, of which the last must be present.
	Restore(n int, windows []int32) (State, error)
}

// Snapshotted is a Windowed model whose window pages hold snapshots of its states after pages, each as large as the
// rows of many pages.
type Snapshotted interface {
	Windowed
	// SnapshotSpacing returns how many pages apart snapshots inside a sequence are worth keeping.
	SnapshotSpacing() int
}

// StatesOf appends the states of a batch's sequences to list. find returns the checked state of a sequence, and the
// zero value for padding. Every sequence must have its own state.
func StatesOf[S comparable](list []S, in *Input, find func(given State, sequence int) (S, error)) ([]S, error) {
	if len(in.States) != len(in.Tokens) {
		return nil, fmt.Errorf("%d states for %d sequences; make one with NewState for each sequence", len(in.States),
			len(in.Tokens))
	}
	var none S
	for r, given := range in.States {
		s, err := find(given, r)
		if err != nil {
			return nil, err
		}
		if s != none && slices.Contains(list, s) {
			return nil, fmt.Errorf("sequence %d shares its state with another one; use Clone", r)
		}
		list = append(list, s)
	}
	return list, nil
}
