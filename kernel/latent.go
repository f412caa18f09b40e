package kernel

// LatentDims holds the sizes of multi-head latent attention, in values.
type LatentDims struct {
	Heads  int
	Nope   int // query or key head without rotary embedding, 128 in V3.2
	Rope   int // rotated part of a query or key head, 64
	V      int // size of a value head, 128 in V3.2
	Latent int // latent part of a cache row, 512
}

// QK returns the size of an expanded query or key head.
func (d LatentDims) QK() int { return d.Nope + d.Rope }

// Row returns the size of a cache row, and of a query head in latent space.
func (d LatentDims) Row() int { return d.Latent + d.Rope }

// KVB returns the number of rows of the stored up-projection: for each head Nope key rows, then V value rows.
func (d LatentDims) KVB() int { return d.Heads * (d.Nope + d.V) }

// AbsorbArgs projects queries into latent space:
// Out[t,h,:Latent] = W_UK[h]ᵀ · Q[t,h,:Nope] and Out[t,h,Latent:] = Q[t,h,Nope:], which is already rotated.
type AbsorbArgs struct {
	Out  Tensor // activation [T, Heads*(Latent+Rope)]
	Q    Tensor // activation [T, Heads*(Nope+Rope)]
	KVB  Matrix // [Heads*(Nope+V), Latent], role Latent; W_UK[h] is the Nope rows from h*(Nope+V) on
	Dims LatentDims
}

// Name returns the name of the operation.
func (AbsorbArgs) Name() string { return "absorb" }

// Check validates the arguments.
func (a AbsorbArgs) Check() error {
	c := checker{op: a.Name()}
	c.float("q", a.Q, a.Q.Rows, a.Dims.Heads*a.Dims.QK())
	c.float("out", a.Out, a.Q.Rows, a.Dims.Heads*a.Dims.Row())
	c.latent("kvb", a.KVB, a.Dims)
	return c.err
}

// ExpandArgs projects attention outputs from latent space to value heads: Out[t,h] = W_UV[h] · U[t,h].
type ExpandArgs struct {
	Out  Tensor // activation [T, Heads*V]
	U    Tensor // activation [T, Heads*Latent]
	KVB  Matrix // [Heads*(Nope+V), Latent], role Latent; W_UV[h] is the V rows from h*(Nope+V)+Nope on
	Dims LatentDims
}

// Name returns the name of the operation.
func (ExpandArgs) Name() string { return "expand" }

// Check validates the arguments.
func (a ExpandArgs) Check() error {
	c := checker{op: a.Name()}
	c.float("u", a.U, a.U.Rows, a.Dims.Heads*a.Dims.Latent)
	c.float("out", a.Out, a.U.Rows, a.Dims.Heads*a.Dims.V)
	c.latent("kvb", a.KVB, a.Dims)
	return c.err
}

func (c *checker) latent(name string, m Matrix, d LatentDims) {
	c.matrix(name, m, d.Latent, absorbed)
	if c.err == nil && m.Out() != d.KVB() {
		c.fail("%s has %d rows, want %d", name, m.Out(), d.KVB())
	}
}
