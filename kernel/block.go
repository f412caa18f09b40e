package kernel

// BlockMaxArgs finds the largest score of every block of Size adjacent keys: the first level of a selection of
// DeepSeek-V4.1 (v41 spec, 2.4). The value of the block with the newest key is +Inf, so that it is always selected.
// Rows of Out with Lens[r] <= SkipUpTo have no scores and are not written.
type BlockMaxArgs struct {
	Out      Tensor // f32 [R, at least the largest number of blocks of a row]
	Scores   Tensor // f32 [R, at least the largest length in Lens]
	Lens     Tensor // i32 [R, 1]: keys of the row
	Size     int
	SkipUpTo int
}

// Name returns the name of the operation.
func (BlockMaxArgs) Name() string { return "block max" }

// Check validates the arguments.
func (a BlockMaxArgs) Check() error {
	c := checker{op: a.Name()}
	r := a.Scores.Rows
	c.tensor("scores", a.Scores, F32, r, -1)
	c.tensor("out", a.Out, F32, r, -1)
	c.tensor("lens", a.Lens, I32, r, 1)
	if a.Size < 1 || a.Out.Cols*max(a.Size, 1) < a.Scores.Cols {
		c.fail("there are %d blocks of %d keys for %d scores, want blocks that cover all "+
			"scores", a.Out.Cols, a.Size, a.Scores.Cols)
	}
	return c.err
}
