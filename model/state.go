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
	// Len is the number of tokens that the state covers: the next step of the sequence must begin there.
	Len() int
	// Clone is an equal state for another sequence that has the same tokens so far: a fork.
	Clone() (State, error)
	// Truncate removes the tokens from n on: rejected drafts, or all of them when the sequence starts over. How many
	// tokens can be removed depends on the model; n = 0 always works.
	Truncate(n int) error
	// Release gives the state's memory back. It must not be used again.
	Release()
}

// Windowed is a model some of whose rows are visible to the next few tokens only. They are stored in window pages,
// which a sequence releases as its window advances, while it keeps its other pages.
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
	// Restore makes the state of a sequence that continues after n tokens, a whole number of pages, which another
	// sequence computed: windows are the window pages of those tokens, of which the last must be present.
	Restore(n int, windows []int32) (State, error)
}
