package kernel

// CopyArgs copies a tensor: Out = X. The two do not overlap.
type CopyArgs struct {
	Out Tensor // any type [T, n]
	X   Tensor // the same type [T, n]
}

// Copier copies tensors inside a device's memory.
type Copier interface{ Copy(CopyArgs) error }

// Check validates the arguments.
func (a *CopyArgs) Check() error {
	c := checker{op: "copy"}
	c.shape("x", a.X, a.X.Rows, a.X.Cols)
	c.tensor("out", a.Out, a.X.DType, a.X.Rows, a.X.Cols)
	return c.err
}
