package kernel

import "sparrow/layout"

// Stream is a paged pool of V4 entries and the indices that each row reads.
type Stream struct {
	Pool    Pool
	Indices Tensor // i32 [R, K]: slots of the pool; below zero: masked
	Lens    Tensor // i32 [R, 1]: number of leading entries of a row that are read
}

// Given reports whether the stream is set.
func (s Stream) Given() bool { return s.Pool.Mem.Given() }

// DualArgs is V4 attention over the window entries and, in layers that have them, the compressed entries, with one
// softmax over both (v4 spec, 2.2, 4.1):
//
//	p = exp(Scale * Q[r,h]·v_i - M), Out[r,h] = sum of p_i * v_i / (sum of p_i + exp(Sinks[h] - M))
//
// over the valid entries of the window, in their order, and then of the extra stream. A row without a valid entry
// gives zeros. LSE does not include the sink, and is +inf for such a row.
type DualArgs struct {
	Out    Tensor // activation [R, Heads*512]
	LSE    Tensor // f32 [R, Heads], natural logarithm, without the sink; optional
	Q      Tensor // activation [R, Heads*512], rotated
	Window Stream
	Extra  Stream // not given for layers without compressed entries
	Sinks  Tensor // f32 [1, Heads], neither scaled nor in base 2
	Heads  int
	Scale  float32
	// MostExtra is the maximum number of columns of the extra stream's indices over all calls; 0 if all calls have as
	// many columns as this call. A device may cut sums at positions that depend on it, but not on the number of columns
	// of this call, which depends on the other rows of the batch.
	MostExtra int
}

// Name returns the name of the operation.
func (DualArgs) Name() string { return "dual attend" }

// Check validates the arguments.
func (a DualArgs) Check() error {
	c := checker{op: a.Name()}
	c.heads(a.Out, a.LSE, a.Q, a.Sinks, a.Heads)
	c.stream("window", a.Window, a.Q.Rows)
	if a.Extra.Given() {
		c.stream("extra", a.Extra, a.Q.Rows)
	}
	if a.MostExtra < 0 || a.MostExtra > 0 && a.MostExtra < a.Extra.Indices.Cols {
		c.fail("the extra indices have %d columns, want at most %d", a.Extra.Indices.Cols, a.MostExtra)
	}
	return c.err
}

func (c *checker) stream(name string, s Stream, rows int) {
	c.entryPool(name, s.Pool)
	if c.err != nil {
		return
	}
	c.of = name
	c.tensor("indices", s.Indices, I32, rows, -1)
	c.tensor("lens", s.Lens, I32, rows, 1)
	c.of = ""
}

// heads checks the arguments that both forms of V4 attention have in common.
func (c *checker) heads(out, lse, q, sinks Tensor, heads int) {
	if heads < 1 {
		c.fail("there are %d heads, want at least 1", heads)
	}
	c.float("q", q, q.Rows, heads*layout.V4Dim)
	c.float("out", out, q.Rows, heads*layout.V4Dim)
	c.tensor("sinks", sinks, F32, 1, heads)
	if lse.Given() {
		c.tensor("lse", lse, F32, q.Rows, heads)
	}
}

// FlatArgs is the attention of DualArgs over entries that were gathered into a workspace. Entries below zero and
// entries beyond Lens[r] are not read.
type FlatArgs struct {
	Out     Tensor // activation [R, Heads*512]
	LSE     Tensor // f32 [R, Heads]; optional
	Q       Tensor // activation [R, Heads*512], rotated
	KV      Tensor // f32 or bf16 [n, 512]
	Indices Tensor // i32 [R, W]: rows of KV
	Lens    Tensor // i32 [R, 1]: number of leading entries of a row that are read
	Sinks   Tensor // f32 [1, Heads]
	Heads   int
	Scale   float32
}

// Name returns the name of the operation.
func (FlatArgs) Name() string { return "flat attend" }

// Check validates the arguments.
func (a FlatArgs) Check() error {
	c := checker{op: a.Name()}
	c.heads(a.Out, a.LSE, a.Q, a.Sinks, a.Heads)
	c.float("kv", a.KV, 0, layout.V4Dim)
	c.tensor("indices", a.Indices, I32, a.Q.Rows, -1)
	c.tensor("lens", a.Lens, I32, a.Q.Rows, 1)
	return c.err
}

// UnpackArgs reads V4 entries in the order of Slots and widens them: Out[i] = entry at Slots[i], zeros for a slot
// below zero. 584-byte entries are exact in bf16.
type UnpackArgs struct {
	Out   Tensor // f32 or bf16 [n, 512]
	Slots Tensor // i32 [n, 1]
	Pool  Pool
}

// Name returns the name of the operation.
func (UnpackArgs) Name() string { return "unpack" }

// Check validates the arguments.
func (a UnpackArgs) Check() error {
	c := checker{op: a.Name()}
	c.float("out", a.Out, a.Slots.Rows, layout.V4Dim)
	c.tensor("slots", a.Slots, I32, 0, 1)
	c.entryPool("pool", a.Pool)
	return c.err
}

// CombineWidth is the unit of the width of combined rows: widths are multiples of it.
const CombineWidth = 128

// CombineArgs concatenates the indices of two streams into one list of workspace rows (v4 spec, 4.4, 4.5):
//
//	Out[r] = Window[r,j] + WindowBase[r] for j < WindowLens[r],
//	         then Extra[r,j] + ExtraBase[r] for j < ExtraLens[r], then -1
//
// Indices below zero stay -1 whatever the base. Lens[r] is the sum of the two lengths, each clamped to its row.
type CombineArgs struct {
	Out        Tensor // i32 [R, W], W a multiple of 128 that holds both rows
	Lens       Tensor // i32 [R, 1]: number of indices of the row in Out
	Window     Tensor // i32 [R, Kw]: indices of window entries
	WindowLens Tensor // i32 [R, 1]
	WindowBase Tensor // i32 [R, 1]
	Extra      Tensor // i32 [R, Ke]: indices of compressed entries; not given if the layer has none
	ExtraLens  Tensor // i32 [R, 1]
	ExtraBase  Tensor // i32 [R, 1]
}

// Name returns the name of the operation.
func (CombineArgs) Name() string { return "combine" }

// Check validates the arguments.
func (a CombineArgs) Check() error {
	c := checker{op: a.Name()}
	r := a.Window.Rows
	c.tensor("window", a.Window, I32, r, -1)
	c.tensor("window lens", a.WindowLens, I32, r, 1)
	c.tensor("window base", a.WindowBase, I32, r, 1)
	w := a.Window.Cols
	if a.Extra.Given() {
		c.tensor("extra", a.Extra, I32, r, -1)
		c.tensor("extra lens", a.ExtraLens, I32, r, 1)
		c.tensor("extra base", a.ExtraBase, I32, r, 1)
		w += a.Extra.Cols
	}
	c.tensor("out", a.Out, I32, r, -1)
	c.tensor("lens", a.Lens, I32, r, 1)
	if c.err == nil && (a.Out.Cols%CombineWidth != 0 || a.Out.Cols < w) {
		c.fail("out has %d columns, want a multiple of %d that holds %d", a.Out.Cols, CombineWidth, w)
	}
	return c.err
}
