package kernel

import "sparrow/layout"

// SparseArgs is attention of queries in latent space over selected cache rows: p = softmax over valid i of Scale *
// Q[r,h]·row(Indices[r,i]), Out[r,h] = sum of p_i * row_i[:512]. Entries below zero are not valid, entries beyond
// Lens[r] are not read. A row without a valid entry gives zeros, LSE +inf, Max -inf.
type SparseArgs struct {
	Out     Tensor // activation [R, Heads*512]
	LSE     Tensor // f32 [R, Heads], natural logarithm; optional
	Max     Tensor // f32 [R, Heads], largest scaled score; optional
	Q       Tensor // activation [R, Heads*576], or [R, Heads*512] over layouts without a rotated part
	Pool    Pool   // any main layout; gathered rows are a pool of one page
	Indices Tensor // i32 [R, K]: slots of the pool
	Lens    Tensor // i32 [R, 1]: number of leading entries of a row of Indices that are read
	Heads   int
	Scale   float32
	// SplitKeys is the number of keys after which a row is cut into parts for several processors: a multiple of 64, or
	// 0 for no cuts. It changes the order of sums, so rows are bitwise equal only if they have the same SplitKeys.
	// Other devices ignore it.
	SplitKeys int
}

// Name returns the name of the operation.
func (SparseArgs) Name() string { return "sparse attend" }

// Check validates the arguments.
func (a SparseArgs) Check() error {
	c := checker{op: a.Name()}
	r := a.Q.Rows
	c.float("q", a.Q, r, a.Heads*layout.Width(a.Pool.Layout))
	c.float("out", a.Out, r, a.Heads*layout.LatentDim)
	c.mainPool("pool", a.Pool)
	c.tensor("indices", a.Indices, I32, r, -1)
	c.tensor("lens", a.Lens, I32, r, 1)
	if a.LSE.Given() {
		c.tensor("lse", a.LSE, F32, r, a.Heads)
	}
	if a.Max.Given() {
		c.tensor("max", a.Max, F32, r, a.Heads)
	}
	if a.SplitKeys < 0 || a.SplitKeys%64 != 0 {
		c.fail("rows are cut after %d keys each; want a multiple of 64, or 0 for whole rows", a.SplitKeys)
	}
	return c.err
}

// DenseArgs is causal attention over expanded keys and values. Row r attends to rows Start[r] .. Start[r]+Lens[r]-1 of
// KV and Rope: p = softmax of Scale * (Q[r,h,:Nope]·K[s,h] + Q[r,h,Nope:]·Rope[s]), Out[r,h] = sum of p_s * V[s,h].
type DenseArgs struct {
	Out   Tensor // activation [R, Heads*V]
	Q     Tensor // activation [R, Heads*(Nope+Rope)], rotated
	KV    Tensor // activation [N, Heads*(Nope+V)]: rows of the up-projection, per head keys then values
	Rope  Tensor // activation [N, 64]: rotated, shared by all heads
	Start Tensor // i32 [R, 1]: first row of KV and Rope that the row reads
	Lens  Tensor // i32 [R, 1]: number of rows of KV and Rope that the row reads
	Dims  LatentDims
	Scale float32
}

// Name returns the name of the operation.
func (DenseArgs) Name() string { return "dense attend" }

// Check validates the arguments.
func (a DenseArgs) Check() error {
	c := checker{op: a.Name()}
	r, d := a.Q.Rows, a.Dims
	c.float("q", a.Q, r, d.Heads*d.QK())
	c.float("out", a.Out, r, d.Heads*d.V)
	c.float("kv", a.KV, 0, d.KVB())
	c.float("rope", a.Rope, a.KV.Rows, d.Rope)
	c.tensor("start", a.Start, I32, r, 1)
	c.tensor("lens", a.Lens, I32, r, 1)
	return c.err
}
