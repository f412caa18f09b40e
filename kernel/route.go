package kernel

// RootRouteArgs chooses experts by the square root of softplus (v4 spec, 2.6): s_e = sqrt(softplus(Logits[t,e])). The
// TopK experts with the largest s + Bias are chosen, best first, the lower index on a tie. Weights are Scale * s / (sum
// of the chosen s).
type RootRouteArgs struct {
	IDs     Tensor // i32 [T, TopK]
	Weights Tensor // f32 [T, TopK]
	Logits  Tensor // f32 [T, experts]
	Bias    Tensor // f32 [1, experts]: added only for the choice
	Scale   float32
}

// Name returns the name of the operation.
func (RootRouteArgs) Name() string { return "route root" }

// Check validates the arguments.
func (a RootRouteArgs) Check() error {
	c := checker{op: a.Name()}
	c.routed(a.IDs, a.Weights, a.Logits)
	c.tensor("bias", a.Bias, F32, 1, a.Logits.Cols)
	return c.err
}

func (c *checker) routed(ids, weights, logits Tensor) {
	c.tensor("logits", logits, F32, logits.Rows, -1)
	c.tensor("ids", ids, I32, logits.Rows, -1)
	c.tensor("weights", weights, F32, logits.Rows, ids.Cols)
	if c.err == nil && ids.Cols > logits.Cols {
		c.fail("the best %d of %d experts are requested, want 1 up to all", ids.Cols, logits.Cols)
	}
}

// HashRouteArgs looks experts up by token: IDs[t] = Table[Tokens[t]]. The weights of these experts are computed as in
// RootRouteArgs.
type HashRouteArgs struct {
	IDs     Tensor // i32 [T, TopK]
	Weights Tensor // f32 [T, TopK]
	Logits  Tensor // f32 [T, experts]
	Table   Tensor // i32 [vocabulary, TopK]
	Tokens  Tensor // i32 [T, 1]
	Scale   float32
}

// Name returns the name of the operation.
func (HashRouteArgs) Name() string { return "route hash" }

// Check validates the arguments.
func (a HashRouteArgs) Check() error {
	c := checker{op: a.Name()}
	c.routed(a.IDs, a.Weights, a.Logits)
	c.tensor("table", a.Table, I32, 1, a.IDs.Cols)
	c.tensor("tokens", a.Tokens, I32, a.Logits.Rows, 1)
	return c.err
}
