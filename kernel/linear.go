package kernel

// Linear attention with a gate for each channel (KDA; glm53flash spec, 3). For every sequence a layer stores a state
// and the last rows of its convolution, in a slot of the sequence. The rows of a sequence are processed in the order of
// their positions, not of their row numbers in the pass.

// Sequences lists the rows of each sequence in a pass, and the slots of the sequences' states.
type Sequences struct {
	// Rows are the row numbers of the pass, i32 [T, 1]: sequence after sequence, in the order of positions.
	Rows Tensor
	// Spans, i32 [B, 6], describes each sequence by six words: the first index of its rows in Rows; its number of rows;
	// its slot; 1 if the sequence begins with these rows, so that its state is empty; the number of rows held back
	// earlier, with which the state is updated first; and 1 if these rows are held back now: their outputs are
	// computed, but the state does not change. A negative slot means padding: output rows are zeros and nothing is
	// stored.
	Spans Tensor
	// Snapshots, i32 [T, 1], has for each row of the pass the slot to which the state after the row is copied; -1 means
	// none.
	Snapshots Tensor
}

// sequences checks that the tensors are given for a pass of the given number of rows.
func (c *checker) sequences(s Sequences, rows int) {
	c.tensor("rows", s.Rows, I32, rows, 1)
	c.tensor("spans", s.Spans, I32, 0, SpanWords)
	c.tensor("snapshots", s.Snapshots, I32, rows, 1)
}

// SpanWords is the number of words of a row of Sequences.Spans.
const SpanWords = 6

// ConvRows is the number of earlier rows that the convolution of a row reads.
const ConvRows = 3

// ConvArgs is a causal convolution of each channel over four rows of its sequence, then silu: Out[t,c] = silu(sum
// over i of Weight[c,i] * X[t-3+i, c]). Rows before the sequence are zeros; rows before the pass are in State, which
// receives the last three rows.
type ConvArgs struct {
	Out    Tensor // activation [T, C]; must not be X
	X      Tensor // activation [T, C]
	Weight Tensor // f32 [C, 4]
	State  Tensor // f32 [slots*3, C]: the oldest row of a sequence first
	Kept   Tensor // f32 [snapshots*3, C]: copies of State, at the slots in Snapshots
	Held   Tensor // f32 [slots*n, C]: up to n held-back rows of each sequence; optional
	Sequences
}

// Name returns the name of the operation.
func (ConvArgs) Name() string { return "convolve" }

// Check validates the arguments.
func (a ConvArgs) Check() error {
	c := checker{op: a.Name()}
	c.float("x", a.X, a.X.Rows, a.X.Cols)
	c.float("out", a.Out, a.X.Rows, a.X.Cols)
	c.tensor("weight", a.Weight, F32, a.X.Cols, ConvRows+1)
	c.tensor("state", a.State, F32, 0, a.X.Cols)
	c.tensor("kept", a.Kept, F32, 0, a.X.Cols)
	if a.Held.Given() {
		c.tensor("held", a.Held, F32, 0, a.X.Cols)
	}
	c.sequences(a.Sequences, a.X.Rows)
	return c.err
}

// DeltaArgs is the gated delta rule. With d = 128, and for head h of a row, in the order of its sequence:
//
//	q = q / sqrt(sum of q^2 + 1e-6) * d^-1/2,  k = k / sqrt(sum of k^2 + 1e-6)
//	g = Bound * sigmoid(exp(ALog[h]) * (Gate[t,h] + Bias[h]))      the logarithm of each channel's decay
//	S = diag(exp(g)) S;  S = S + k (x) sigmoid(Beta[t,h]) * (v - S^T k);  Out[t,h] = S^T q
//
// S is the state of a head, [channels of the key, channels of the value].
type DeltaArgs struct {
	Out     Tensor // activation [T, Heads*128]
	Q, K, V Tensor // activation [T, Heads*128], after the convolution
	Gate    Tensor // f32 [T, Heads*128]
	Beta    Tensor // f32 [T, Heads]
	ALog    Tensor // f32 [1, Heads]
	Bias    Tensor // f32 [1, Heads*128]
	State   Tensor // f32 [slots*Heads*128, 128]
	Kept    Tensor // f32 [snapshots*Heads*128, 128]: copies of State, at the slots in Snapshots
	// Held stores up to n held-back rows of each sequence, f32 [slots*n, 3*Heads*128+Heads]: k, v and gate of all
	// heads, then beta; optional.
	Held Tensor
	Sequences
	Heads int
	Bound float32
	// Chunk is the number of positions that are computed together in the chunked form (glm53flash spec, 3.1); chunks
	// start at multiples of Chunk. 0 means the recurrent form, row by row, whose results are bitwise equal for every
	// division of a sequence into passes.
	Chunk int
	// First is the position of the first row of each sequence, i32 [B, 1]; given with a Chunk above 0.
	First Tensor
}

// DeltaChunkBound is the smallest Bound for which devices support chunks. With smaller decays, their products over half
// of a chunk may be too small for float32.
const DeltaChunkBound = -10

// HeldWidth returns the size of a row of DeltaArgs.Held.
func HeldWidth(heads int) int { return 3*heads*DeltaDim + heads }

// DeltaDim is the size of a head's keys and values.
const DeltaDim = 128

// Name returns the name of the operation.
func (DeltaArgs) Name() string { return "delta rule" }

// Check validates the arguments.
func (a DeltaArgs) Check() error {
	c := checker{op: a.Name()}
	t, w := a.Q.Rows, a.Heads*DeltaDim
	c.float("q", a.Q, t, w)
	c.float("k", a.K, t, w)
	c.float("v", a.V, t, w)
	c.float("out", a.Out, t, w)
	c.tensor("gate", a.Gate, F32, t, w)
	c.tensor("beta", a.Beta, F32, t, a.Heads)
	c.tensor("a_log", a.ALog, F32, 1, a.Heads)
	c.tensor("bias", a.Bias, F32, 1, w)
	c.tensor("state", a.State, F32, 0, DeltaDim)
	c.tensor("kept", a.Kept, F32, 0, DeltaDim)
	if a.Held.Given() {
		c.tensor("held", a.Held, F32, 0, HeldWidth(a.Heads))
	}
	c.sequences(a.Sequences, t)
	if !(a.Bound < 0) {
		c.fail("the bound of the decay is %v, want a negative number", a.Bound)
	}
	if a.Chunk < 0 {
		c.fail("chunks have %d rows, want 0 or more", a.Chunk)
	}
	if a.Chunk > 0 {
		c.tensor("first", a.First, I32, a.Spans.Rows, 1)
	}
	return c.err
}

// GatedNormArgs is RMSNorm of every head, with one weight that all heads share, multiplied by the sigmoid of a gate:
// Out[t,h] = X[t,h] * rsqrt(mean(X[t,h]^2) + Eps) * Weight * sigmoid(Gate[t,h]).
type GatedNormArgs struct {
	Out    Tensor // activation [T, Heads*n]; may be X
	X      Tensor // activation [T, Heads*n]
	Gate   Tensor // activation [T, Heads*n]
	Weight Tensor // f32 [1, n]
	Heads  int
	Eps    float32
}

// Name returns the name of the operation.
func (GatedNormArgs) Name() string { return "gated norm" }

// Check validates the arguments.
func (a GatedNormArgs) Check() error {
	c := checker{op: a.Name()}
	if a.Heads < 1 || a.X.Cols%max(a.Heads, 1) != 0 {
		c.fail("x has %d heads in %d columns, want heads of equal size", a.Heads, a.X.Cols)
		return c.err
	}
	c.float("x", a.X, a.X.Rows, a.X.Cols)
	c.float("out", a.Out, a.X.Rows, a.X.Cols)
	c.float("gate", a.Gate, a.X.Rows, a.X.Cols)
	c.tensor("weight", a.Weight, F32, 1, a.X.Cols/a.Heads)
	return c.err
}

// MeanStreamsArgs is the mean of the residual streams: Out[t] = sum over i of stream_i / n.
type MeanStreamsArgs struct {
	Out     Tensor // activation [T, hidden]
	X       Tensor // activation [T, n*hidden]
	Streams int    // n
}

// Name returns the name of the operation.
func (MeanStreamsArgs) Name() string { return "mean of streams" }

// Check validates the arguments.
func (a MeanStreamsArgs) Check() error {
	c := checker{op: a.Name()}
	c.streams(a.X, a.Streams)
	if c.err != nil {
		return c.err
	}
	c.float("x", a.X, a.X.Rows, a.X.Cols)
	c.float("out", a.Out, a.X.Rows, a.X.Cols/a.Streams)
	return c.err
}
