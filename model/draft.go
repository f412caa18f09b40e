package model

import (
	"sparrow/attn"
	"sparrow/kernel"
)

// Drafter is a model whose family has a drafting layer (NextN): one more decoder layer that guesses the token after the next from a token and
// the target's hidden state before it. Its rows and indexer keys lie in the sequence's own pages, as those of one more layer; Allocate makes
// room for them when the configuration verifies more than one row per request.
type Drafter interface {
	// DraftHead is nil when the checkpoint holds the layer, and otherwise says which tensors are missing.
	DraftHead() error
	// Draft runs the drafting layer and returns logits, f32 [len(in.Logits), vocabulary], in the order of in.Logits. The tensor is valid until
	// the next call. Where no logits are wanted, rows and indexer keys are stored and nothing else is computed: no later layer reads outputs.
	Draft(in DraftInput) (kernel.Tensor, error)
}

// DraftInput is one pass of the drafting layer.
type DraftInput struct {
	attn.Step
	// Tokens holds, for each request of the batch, the token that follows each of its rows: the row of position t is made of the target's hidden
	// state at t and of token t+1.
	Tokens [][]int32
	// Hidden holds, for each request, where the hidden state of each of its rows lies: in which row of the pass before.
	Hidden [][]int32
	// Chained says that the pass before was a Draft, whose outputs stand in for hidden states the target has not computed. Otherwise it was a
	// Forward.
	Chained bool
	// States holds, for each request of the batch, the state of its sequence. Models that are not Stateful ignore it.
	States []State
	// Logits lists the rows whose logits are wanted.
	Logits []Pick
}
