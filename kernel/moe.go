package kernel

// RouteArgs chooses experts (v32 spec, 2.7). Scores are sigmoid(Logits); Bias is added only for the choice. The
// KeepGroups groups with the largest sum of their two best biased scores are kept; of their experts the TopK with the
// best biased scores are chosen, best first, the lower index on a tie. Weights are the unbiased scores, divided by
// their sum if Normalize is set, times Scale. For a row with NaN, the chosen expert numbers are valid, and the weights
// are NaN.
type RouteArgs struct {
	IDs        Tensor // i32 [T, TopK]
	Weights    Tensor // f32 [T, TopK]
	Logits     Tensor // f32 [T, experts]
	Bias       Tensor // f32 [1, experts]
	Groups     int
	KeepGroups int
	Normalize  bool
	Scale      float32
}

// Name returns the name of the operation.
func (RouteArgs) Name() string { return "route" }

// Check validates the arguments.
func (a RouteArgs) Check() error {
	c := checker{op: a.Name()}
	t, e := a.Logits.Rows, a.Logits.Cols
	c.tensor("logits", a.Logits, F32, t, e)
	c.tensor("bias", a.Bias, F32, 1, e)
	c.tensor("ids", a.IDs, I32, t, -1)
	c.tensor("weights", a.Weights, F32, t, a.IDs.Cols)
	if a.Groups <= 0 || a.KeepGroups <= 0 || a.KeepGroups > a.Groups || e%a.Groups != 0 {
		c.fail("%d of %d groups of %d experts are to be kept; want equal groups, and at least one of "+
			"them", a.KeepGroups, a.Groups, e)
	}
	if c.err == nil && a.IDs.Cols > a.KeepGroups*(e/a.Groups) {
		c.fail("the best %d of %d kept experts are requested, want 1 or more and not more than are "+
			"kept", a.IDs.Cols, a.KeepGroups*(e/a.Groups))
	}
	return c.err
}

// ExpertArgs runs the chosen experts and adds their weighted sum to the rows, in the order of the choice: Out[t] +=
// sum over j of Weights[t,j] * Down[e]( silu(Gate[e] X[t]) * Up[e] X[t] ), e = IDs[t,j], with the clamps of GateArgs.
type ExpertArgs struct {
	Out     Tensor // activation [T, hidden]
	X       Tensor // activation [T, hidden]
	IDs     Tensor // i32 [T, k]
	Weights Tensor // f32 [T, k]
	Experts Experts
	Limit   float32
	// Part is the range of experts in Experts if ranks share the experts. Chosen experts outside the range are skipped.
	Part Part
	// Prompt is the number of rows that belong to prompts; these rows are the first ones. Split experts may have other
	// methods for prompt rows (ExpertMethods).
	Prompt int
}

// Name returns the name of the operation.
func (ExpertArgs) Name() string { return "experts" }

// Check validates the arguments.
func (a ExpertArgs) Check() error {
	c := checker{op: a.Name()}
	t, h := a.X.Rows, a.X.Cols
	c.float("x", a.X, t, h)
	c.float("out", a.Out, t, h)
	c.tensor("ids", a.IDs, I32, t, -1)
	c.tensor("weights", a.Weights, F32, t, a.IDs.Cols)
	c.limit(a.Limit)
	if a.Prompt < 0 || a.Prompt > t {
		c.fail("%d of %d rows belong to prompts, want 0 up to all rows", a.Prompt, t)
	}
	if a.Experts != nil {
		a.Part.check(&c, a.Experts.Count())
	}
	c.experts(a.Experts, h)
	return c.err
}

// experts checks experts that read rows of h columns.
func (c *checker) experts(x Experts, h int) {
	switch {
	case c.err != nil:
	case x == nil:
		c.fail("experts are missing; want the result of PrepareExperts")
	case x.Hidden() != h:
		c.fail("experts read rows of %d columns, but x has %d", x.Hidden(), h)
	}
}
