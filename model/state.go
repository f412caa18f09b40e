package model

import "sparrow/plan"

// Stateful is a model that keeps something of every sequence beside its pages, such as the open groups of a
// compressor. Every step of a sequence is handed its state; a step that succeeds moves the state on. A step that
// fails leaves it where it was, or in need of Truncate(0) and the whole sequence again: the next step then says so.
type Stateful interface {
	// Reserve takes the memory of that many states at once: as long as no more are held, NewState takes none.
	Reserve(states int) error
	// NewState makes the state of a sequence without tokens.
	NewState() (State, error)
	// Commit moves the states of a batch on: the pass that computes and stores its rows was enqueued.
	Commit(in *Input)
}

// State is what a Stateful model keeps of one sequence. The goroutine that uses the model uses its states.
type State interface {
	// Len is how many tokens the state stands for: the next step of the sequence must begin there.
	Len() int
	// Clone is an equal state for another sequence that has the same tokens so far: a fork.
	Clone() (State, error)
	// Truncate forgets the tokens from n on: rejected drafts, or everything when the sequence starts over. How far
	// back a state can go is the model's; 0 always works.
	Truncate(n int) error
	// Release gives the state's memory back. It must not be used again.
	Release()
}

// Windowed is a model some of whose rows only the next few tokens see. They live in window pages, which a sequence
// gives up as its window moves on, while its pages stay.
type Windowed interface {
	Stateful
	// Window is how many tokens a row sees there, its own included.
	Window() int
	// WindowBytes is the part of PageBytes that is a window page's.
	WindowBytes(cfg *plan.Config) int64
	// StateBytes is the memory of one state.
	StateBytes(cfg *plan.Config) int64
	// AllocateWindows makes the cache like Allocate, with a number of window pages of its own.
	AllocateWindows(cfg *plan.Config, pages, windows int) error
	// Restore makes the state of a sequence that goes on behind n tokens, a whole number of pages, which another
	// sequence computed: windows are the window pages of those tokens, of which the last must be given.
	Restore(n int, windows []int32) (State, error)
}
