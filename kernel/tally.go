package kernel

// TallyArgs counts choices of experts: Counts[IDs[t,j]] is incremented for every choice of every row with Seen[t] above
// 0. Other rows are padding. Counters overflow to 0.
type TallyArgs struct {
	Counts Tensor // i32 [1, experts]
	IDs    Tensor // i32 [T, k]
	Seen   Tensor // i32 [T, 1]: number of tokens that a row may attend to; 0 for padding
}

// Tallier is a device that counts which experts rows choose. Not every device has this operation.
type Tallier interface{ Tally(TallyArgs) error }

// Name returns the name of the operation.
func (TallyArgs) Name() string { return "tally" }

// Check validates the arguments.
func (a TallyArgs) Check() error {
	c := checker{op: a.Name()}
	t := a.IDs.Rows
	c.tensor("counts", a.Counts, I32, 1, -1)
	c.tensor("ids", a.IDs, I32, t, -1)
	c.tensor("seen", a.Seen, I32, t, 1)
	return c.err
}
