package kernel

// CopyArgs copies a tensor: Out = X. Out and X do not overlap.
type CopyArgs struct {
	Out Tensor // any type [T, n]
	X   Tensor // [T, n], element type of Out
}

// Copier copies tensors inside a device's memory.
type Copier interface{ Copy(CopyArgs) error }

// Name returns the name of the operation.
func (CopyArgs) Name() string { return "copy" }

// Check validates the arguments.
func (a CopyArgs) Check() error {
	c := checker{op: a.Name()}
	c.shape("x", a.X, a.X.Rows, a.X.Cols)
	c.tensor("out", a.Out, a.X.DType, a.X.Rows, a.X.Cols)
	return c.err
}
