package kernel

// EmbedArgs copies rows of a table: Out[i] = Table[IDs[i]], or zeros if another rank has the row.
type EmbedArgs struct {
	Out   Tensor // activation [T, hidden]
	Table Matrix // [vocabulary, hidden], LookedUp or Tied
	IDs   Tensor // i32 [T, 1]
	Part  Part   // range of the vocabulary whose rows are in Table, if ranks divide the vocabulary
}

// Name returns the name of the operation.
func (EmbedArgs) Name() string { return "embed" }

// Check validates the arguments.
func (a EmbedArgs) Check() error {
	c := checker{op: a.Name()}
	c.matrix("table", a.Table, a.Out.Cols, lookedUp)
	c.float("out", a.Out, a.Out.Rows, a.Out.Cols)
	c.tensor("ids", a.IDs, I32, a.Out.Rows, 1)
	if c.err == nil {
		a.Part.check(&c, a.Table.Out())
	}
	return c.err
}

// NormArgs is RMSNorm over each row: Out = X * rsqrt(mean(X^2) + Eps) * Weight.
type NormArgs struct {
	Out    Tensor // activation [T, n]
	X      Tensor // activation [T, n]
	Weight Tensor // f32 or bf16 [1, n]
	Eps    float32
}

// Name returns the name of the operation.
func (NormArgs) Name() string { return "norm" }

// Check validates the arguments.
func (a NormArgs) Check() error {
	c := checker{op: a.Name()}
	c.float("out", a.Out, a.X.Rows, a.X.Cols)
	c.float("x", a.X, a.X.Rows, a.X.Cols)
	c.shape("weight", a.Weight, 1, a.X.Cols)
	return c.err
}

// MultiplyArgs is a matrix product with a stored weight: Out = X * Wᵀ, or Out += X * Wᵀ.
type MultiplyArgs struct {
	Out        Tensor // activation [T, out]; f32 if more precision is needed (router, logits)
	X          Tensor // activation [T, in]
	W          Matrix // [out, in], any role but LookedUp
	Accumulate bool
}

// Name returns the name of the operation.
func (MultiplyArgs) Name() string { return "multiply" }

// Check validates the arguments.
func (a MultiplyArgs) Check() error {
	c := checker{op: a.Name()}
	c.matrix("w", a.W, a.X.Cols, multiplied)
	if c.err == nil {
		c.float("out", a.Out, a.X.Rows, a.W.Out())
	}
	c.float("x", a.X, a.X.Rows, a.X.Cols)
	return c.err
}

// TakeArgs copies chosen rows: Out[i] = X[Rows[i]].
type TakeArgs struct {
	Out  Tensor // activation or f32 [n, w]; i32 if X is i32
	X    Tensor // activation, f32 or i32 [T, w]
	Rows Tensor // i32 [n, 1]
}

// RowTaker copies chosen rows, for example the rows whose logits are computed.
type RowTaker interface{ Take(TakeArgs) error }

// Name returns the name of the operation.
func (TakeArgs) Name() string { return "take" }

// Check validates the arguments.
func (a TakeArgs) Check() error {
	c := checker{op: a.Name()}
	c.movable("out", a.Out, a.X.DType, a.Out.Rows, a.X.Cols)
	c.movable("x", a.X, a.X.DType, a.X.Rows, a.X.Cols)
	c.tensor("rows", a.Rows, I32, a.Out.Rows, 1)
	return c.err
}

// GateArgs is the gated activation of a feed-forward block: Out = silu(Gate) * Up. With a Limit above zero, Gate is
// first clamped to at most Limit and Up to within plus and minus Limit.
type GateArgs struct {
	Out, Gate, Up Tensor // activation [T, n]
	Limit         float32
}

// Name returns the name of the operation.
func (GateArgs) Name() string { return "gate" }

// Check validates the arguments.
func (a GateArgs) Check() error {
	c := checker{op: a.Name()}
	c.float("out", a.Out, a.Gate.Rows, a.Gate.Cols)
	c.float("gate", a.Gate, a.Gate.Rows, a.Gate.Cols)
	c.float("up", a.Up, a.Gate.Rows, a.Gate.Cols)
	c.limit(a.Limit)
	return c.err
}

// limit checks the limit v to which activations are clamped.
func (c *checker) limit(v float32) {
	if !(v >= 0) {
		c.fail("the limit is %v, want a positive number, or 0 for none", v)
	}
}
