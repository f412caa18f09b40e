package kernel

// CandidateArgs reduces rows of logits to candidates for sampling. Values[r] are the n largest logits of row r in
// descending order, the lower id first on a tie, IDs[r] their tokens, and LogSum[r] = log of the sum of exp(Logits[r]).
// NaN is never among the largest logits, and makes LogSum NaN.
type CandidateArgs struct {
	Values Tensor // f32 [R, n], n at most MaxCandidates and the vocabulary
	IDs    Tensor // i32 [R, n]
	LogSum Tensor // f32 [R, 1]
	Logits Tensor // f32 [R, vocabulary]
}

// MaxCandidates is the maximum number of candidates of a row.
const MaxCandidates = 64

// Name returns the name of the operation.
func (CandidateArgs) Name() string { return "candidates" }

// Check validates the arguments.
func (a CandidateArgs) Check() error {
	c := checker{op: a.Name()}
	r, n := a.Logits.Rows, a.Values.Cols
	c.tensor("logits", a.Logits, F32, r, -1)
	c.tensor("values", a.Values, F32, r, -1)
	c.tensor("ids", a.IDs, I32, r, n)
	c.tensor("log sum", a.LogSum, F32, r, 1)
	if n < 1 || n > min(MaxCandidates, a.Logits.Cols) {
		c.fail("%d candidates of %d tokens are requested, want 1 to "+
			"%d", n, a.Logits.Cols, min(MaxCandidates, a.Logits.Cols))
	}
	return c.err
}
