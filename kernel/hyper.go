package kernel

// Hyper-connections (v4 spec, 2.1): a token's residual is n streams of hidden values, stored in adjacent columns, [T,
// n*hidden]. A sublayer reads a weighted sum of the streams, and its output is added to all streams.

// HyperPreArgs computes the input of a sublayer. With r = rsqrt(mean(X[t]^2) + NormEps) over all streams and m =
// Mix[t]*r:
//
//	pre_i  = sigmoid(Scale[0]*m_i + Base_i) + Eps                 i = 0..n-1
//	Post_i = 2*sigmoid(Scale[1]*m_{n+i} + Base_{n+i})
//	Comb   = softmax over j of Scale[2]*m_{2n+ni+j} + Base_{2n+ni+j}, plus Eps, then columns divided by their sum +
//	         Eps, then Rounds-1 times rows and columns
//	Out    = sum over i of pre_i * stream_i
//
// DeepSeek-V4.1 uses the coefficients of the previous sublayer (v41 spec, 2.1): if Pre is given, it receives pre, and
// Out = sum over i of Carried_i * stream_i, or the first stream if Carried is not given.
type HyperPreArgs struct {
	Out     Tensor // activation [T, hidden]
	Post    Tensor // f32 [T, n]
	Comb    Tensor // f32 [T, n*n], row after row
	X       Tensor // activation [T, n*hidden]
	Mix     Tensor // f32 [T, 2n+n*n]: product of the streams and the sublayer's matrix, not normalised
	Base    Tensor // f32 [1, 2n+n*n]: bias of each coefficient
	Scale   Tensor // f32 [1, 3]: factors of pre, Post and Comb
	Carried Tensor // f32 [T, n]: coefficients pre of the previous sublayer; optional, given only with Pre
	Pre     Tensor // f32 [T, n]: coefficients pre of this sublayer; optional, may be the tensor Carried
	Streams int    // n
	Rounds  int
	NormEps float32
	Eps     float32
}

// Name returns the name of the operation.
func (HyperPreArgs) Name() string { return "hyper pre" }

// Check validates the arguments.
func (a HyperPreArgs) Check() error {
	c := checker{op: a.Name()}
	t, n := a.X.Rows, a.Streams
	c.streams(a.X, n)
	if c.err != nil {
		return c.err
	}
	w := 2*n + n*n
	c.float("x", a.X, t, a.X.Cols)
	c.float("out", a.Out, t, a.X.Cols/n)
	c.tensor("post", a.Post, F32, t, n)
	c.tensor("comb", a.Comb, F32, t, n*n)
	c.tensor("mix", a.Mix, F32, t, w)
	c.tensor("base", a.Base, F32, 1, w)
	c.tensor("scale", a.Scale, F32, 1, 3)
	if a.Pre.Given() {
		c.tensor("pre", a.Pre, F32, t, n)
	}
	if a.Carried.Given() {
		c.tensor("carried", a.Carried, F32, t, n)
		c.tensor("pre", a.Pre, F32, t, n)
	}
	if a.Rounds < 1 {
		c.fail("the streams are normalised in %d rounds, want at least 1", a.Rounds)
	}
	return c.err
}

// MaxStreams is the maximum number of streams of an operation: implementations keep a token's mixing matrix in memory
// of fixed size.
const MaxStreams = 16

func (c *checker) streams(x Tensor, n int) {
	if n < 1 || n > MaxStreams || x.Cols%n != 0 {
		c.fail("there are %d streams of %d values, want 1 to %d streams of equal width", n, x.Cols, MaxStreams)
	}
}

// HyperPostArgs adds a sublayer's output to the streams: stream_k = Post_k * Sub + sum over j of Comb[j,k] * stream_j.
type HyperPostArgs struct {
	X       Tensor // activation [T, n*hidden], updated in place
	Sub     Tensor // activation [T, hidden]
	Post    Tensor // f32 [T, n]
	Comb    Tensor // f32 [T, n*n]
	Streams int
}

// Name returns the name of the operation.
func (HyperPostArgs) Name() string { return "hyper post" }

// Check validates the arguments.
func (a HyperPostArgs) Check() error {
	c := checker{op: a.Name()}
	t, n := a.X.Rows, a.Streams
	c.streams(a.X, n)
	if c.err != nil {
		return c.err
	}
	c.float("x", a.X, t, a.X.Cols)
	c.float("sub", a.Sub, t, a.X.Cols/n)
	c.tensor("post", a.Post, F32, t, n)
	c.tensor("comb", a.Comb, F32, t, n*n)
	return c.err
}

// HyperHeadArgs reduces the streams to one row per token after the last layer: pre_i = sigmoid(Scale[0]*m_i + Base_i) +
// Eps with m as in HyperPreArgs, Out = sum over i of pre_i * stream_i.
type HyperHeadArgs struct {
	Out     Tensor // activation [T, hidden]
	X       Tensor // activation [T, n*hidden]
	Mix     Tensor // f32 [T, n]
	Base    Tensor // f32 [1, n]
	Scale   Tensor // f32 [1, 1]
	Streams int
	NormEps float32
	Eps     float32
}

// Name returns the name of the operation.
func (HyperHeadArgs) Name() string { return "hyper head" }

// Check validates the arguments.
func (a HyperHeadArgs) Check() error {
	c := checker{op: a.Name()}
	t, n := a.X.Rows, a.Streams
	c.streams(a.X, n)
	if c.err != nil {
		return c.err
	}
	c.float("x", a.X, t, a.X.Cols)
	c.float("out", a.Out, t, a.X.Cols/n)
	c.tensor("mix", a.Mix, F32, t, n)
	c.tensor("base", a.Base, F32, 1, n)
	c.tensor("scale", a.Scale, F32, 1, 1)
	return c.err
}

// HyperSumArgs is the sum of the streams with given coefficients: Out = sum over i of Weights_i * stream_i.
type HyperSumArgs struct {
	Out     Tensor // activation [T, hidden]
	X       Tensor // activation [T, n*hidden]
	Weights Tensor // f32 [T, n]
}

// Name returns the name of the operation.
func (HyperSumArgs) Name() string { return "hyper sum" }

// Check validates the arguments.
func (a HyperSumArgs) Check() error {
	c := checker{op: a.Name()}
	t, n := a.X.Rows, a.Weights.Cols
	c.streams(a.X, n)
	if c.err != nil {
		return c.err
	}
	c.float("x", a.X, t, a.X.Cols)
	c.float("out", a.Out, t, a.X.Cols/n)
	c.tensor("weights", a.Weights, F32, t, n)
	return c.err
}

// HeadNormArgs is RMSNorm without weights of every head, in place: X[t,h] = X[t,h] * rsqrt(mean(X[t,h]^2) + Eps).
type HeadNormArgs struct {
	X     Tensor // activation [T, Heads*size]
	Heads int
	Eps   float32
}

// Name returns the name of the operation.
func (HeadNormArgs) Name() string { return "head norm" }

// Check validates the arguments.
func (a HeadNormArgs) Check() error {
	c := checker{op: a.Name()}
	c.float("x", a.X, a.X.Rows, a.X.Cols)
	if a.Heads < 1 || a.X.Cols%a.Heads != 0 {
		c.fail("x has %d heads in %d columns, want heads of equal size", a.Heads, a.X.Cols)
	}
	return c.err
}
