package kernel

import "fmt"

// Projection is one of several products that read the same rows X: Out = X * Wᵀ.
type Projection struct {
	Out Tensor // activation [T, out]; f32 if more precision is needed
	W   Matrix // [out, in]
}

// ProjectArgs is matrix products of one set of rows with several stored weights, of any types. Each output is bitwise
// equal to that of a single product ([MultiplyArgs]). Outputs overlap neither each other nor X. One call for all
// products is faster for few rows: their time is bound by reading weights, and in each separate call the first reads
// would wait for memory.
type ProjectArgs struct {
	X  Tensor // activation [T, in]
	To []Projection
}

// Product returns product i as a single multiplication.
func (a ProjectArgs) Product(i int) MultiplyArgs {
	return MultiplyArgs{Out: a.To[i].Out, X: a.X, W: a.To[i].W}
}

// Name returns the name of the operation.
func (ProjectArgs) Name() string { return "project" }

// Check validates the arguments.
func (a ProjectArgs) Check() error {
	if len(a.To) == 0 {
		return fmt.Errorf("%w: project: the list of weights is empty", ErrArgument)
	}
	for i := range a.To {
		p := a.Product(i)
		if err := p.Check(); err != nil {
			return fmt.Errorf("project: product %d of %d: %w", i, len(a.To), err)
		}
	}
	return nil
}
