package kernel

// AcceptArgs counts the accepted drafts of each sequence and writes words that depend on this count: Out[place] = the
// word for the count. Draft i is accepted if all drafts before it are accepted and the target's token at its position,
// Tokens[first+i], is in the draft's range. For a negative place -1-p, Out[p] = Tokens[first+count], the target's token
// after the accepted drafts.
type AcceptArgs struct {
	Out    Tensor // i32 [1, n]
	Tokens Tensor // i32 [T, 1]: tokens that the target chose
	// Drafts is i32 [S, 1+2*D], contiguous: for each sequence its first token index, then the lowest and the highest
	// token of each of D drafts. A lowest token above the highest means that there is no such draft, or that it is
	// never accepted.
	Drafts Tensor
	// Words is i32 [W, 3+D], contiguous: a place, its sequence, and the word for 0 to D accepted drafts.
	Words Tensor
}

// Accepter compares drafts with the target's tokens, and writes the words that depend on the result.
type Accepter interface{ Accept(AcceptArgs) error }

// Name returns the name of the operation.
func (AcceptArgs) Name() string { return "accept" }

// Check validates the arguments.
func (a AcceptArgs) Check() error {
	c := checker{op: a.Name()}
	d := a.Words.Cols - 3
	if d < 0 {
		c.fail("words have %d columns, want at least 3: the place, the sequence and one or more words", a.Words.Cols)
	}
	c.tensor("out", a.Out, I32, 1, -1)
	c.tensor("tokens", a.Tokens, I32, a.Tokens.Rows, 1)
	c.tensor("drafts", a.Drafts, I32, a.Drafts.Rows, 1+2*d)
	c.tensor("words", a.Words, I32, a.Words.Rows, -1)
	for _, t := range []Tensor{a.Drafts, a.Words} {
		if t.Stride != t.Cols {
			c.fail("rows of %d words are %d apart, want no gaps", t.Cols, t.Stride)
		}
	}
	return c.err
}
