package kernel

import "sparrow/sample"

// SampleArgs samples a token from rows of logits; its results equal those of sample.Scratch.Choose. Before the call
// IDs[r] is the most probable token of row r; it is replaced by the token that is sampled with Draws[r], the words of a
// sample.Draw. If the temperature is 0, it is not changed.
type SampleArgs struct {
	IDs    Tensor // i32 [R, 1]
	Logits Tensor // f32 [R, vocabulary]
	Draws  Tensor // i32 [R, sample.DrawWords], without gaps between rows
}

// Name returns the name of the operation.
func (SampleArgs) Name() string { return "sample" }

// Check validates the arguments.
func (a SampleArgs) Check() error {
	c := checker{op: a.Name()}
	r := a.Logits.Rows
	c.tensor("logits", a.Logits, F32, r, -1)
	c.tensor("ids", a.IDs, I32, r, 1)
	c.tensor("draws", a.Draws, I32, r, sample.DrawWords)
	if a.Draws.Stride != a.Draws.Cols {
		c.fail("draws are %d words apart, want %d", a.Draws.Stride, a.Draws.Cols)
	}
	if a.Logits.Cols > sample.MaxVocabulary {
		c.fail("the vocabulary has %d tokens, want at most %d", a.Logits.Cols, sample.MaxVocabulary)
	}
	return c.err
}
