package model

// Stateful is a model that keeps something of every sequence beside its pages, such as the open groups of a compressor. Every step of a
// sequence is handed its state; a step that succeeds moves the state on. A step that fails leaves it where it was, or in need of
// Truncate(0) and the whole sequence again: the next step then says so.
type Stateful interface {
	// NewState makes the state of a sequence without tokens.
	NewState() (State, error)
}

// State is what a Stateful model keeps of one sequence. The goroutine that uses the model uses its states.
type State interface {
	// Len is how many tokens the state stands for: the next step of the sequence must begin there.
	Len() int
	// Clone is an equal state for another sequence that has the same tokens so far: a fork.
	Clone() (State, error)
	// Truncate forgets the tokens from n on: rejected drafts, or everything when the sequence starts over. How far back a state can go is
	// the model's; 0 always works.
	Truncate(n int) error
	// Release gives the state's memory back. It must not be used again.
	Release()
}
