package kernel

import "sparrow/layout"

// CompressArgs compresses each group of tokens to one entry (v4 spec, 2.4). Every token has a raw row: a value and a
// gate for each channel. With Overlap the row has two halves: the first is used for the entry of the next group, the
// second for the entry of the token's own group. Each channel of entry e is a sum of values over slots s, weighted by
// the softmax of gate + APE:
//
//	without overlap: Ratio slots,   slot s reads row Sources[e,s], whole,            with APE[s]
//	with overlap:    2*Ratio slots, slot s < Ratio reads the first half with APE[s], the others the second half with
//	                 APE[s-Ratio]
//
// A source s >= 0 is row s of Values and Gates, -1 is absent, and s <= -2 is row -2-s of State, which holds values
// and then gates. An entry without any source is zero.
type CompressArgs struct {
	Out     Tensor // activation [n, dim]
	Values  Tensor // f32 [T, halves*dim]: raw rows of this step
	Gates   Tensor // f32 [T, halves*dim]
	State   Tensor // f32 [rows, 2*halves*dim]: raw rows of earlier steps
	APE     Tensor // f32 [Ratio, halves*dim]: bias of the gates by position in the group
	Sources Tensor // i32 [n, halves*Ratio]
	Ratio   int
	Overlap bool
}

// Halves is 2 with overlap and 1 without.
func (a *CompressArgs) Halves() int {
	if a.Overlap {
		return 2
	}
	return 1
}

// Name returns the name of the operation.
func (CompressArgs) Name() string { return "compress" }

// Check validates the arguments.
func (a CompressArgs) Check() error {
	c := checker{op: a.Name()}
	if a.Ratio < 1 {
		c.fail("the ratio is %d tokens per entry, want at least 1", a.Ratio)
	}
	w := a.Halves() * a.Out.Cols
	c.float("out", a.Out, a.Sources.Rows, a.Out.Cols)
	c.tensor("values", a.Values, F32, 0, w)
	c.tensor("gates", a.Gates, F32, a.Values.Rows, w)
	c.tensor("state", a.State, F32, 0, 2*w)
	c.tensor("ape", a.APE, F32, a.Ratio, w)
	c.tensor("sources", a.Sources, I32, 0, a.Halves()*a.Ratio)
	return c.err
}

// PutArgs writes rows to given positions: Out[Rows[i]] = X[i]. A negative position writes nothing. No two rows may
// have the same position.
type PutArgs struct {
	Out  Tensor // activation or f32 [N, w]; i32 if X is i32
	X    Tensor // activation, f32 or i32 [n, w]
	Rows Tensor // i32 [n, 1]: positions in Out
}

// RowPutter writes rows to given positions.
type RowPutter interface{ Put(PutArgs) error }

// Name returns the name of the operation.
func (PutArgs) Name() string { return "put" }

// Check validates the arguments.
func (a PutArgs) Check() error {
	c := checker{op: a.Name()}
	c.movable("out", a.Out, a.X.DType, 0, a.X.Cols)
	c.movable("x", a.X, a.X.DType, a.X.Rows, a.X.Cols)
	c.tensor("rows", a.Rows, I32, a.X.Rows, 1)
	return c.err
}

// EntryStoreArgs writes V4 entries, both window rows and compressed ones: RMSNorm, rotation of the last 64 values
// (interleaved), encoding. A slot below zero writes nothing.
type EntryStoreArgs struct {
	Rows   Tensor // activation [n, 512]: neither normalised nor rotated
	Norm   Tensor // f32 [1, 512]
	Eps    float32
	Angles Tensor // f32 [n, 64]: of a token's own position, or of the first position of a compressed entry's group
	Slots  Tensor // i32 [n, 1]
	Pool   Pool
}

// Name returns the name of the operation.
func (EntryStoreArgs) Name() string { return "store entries" }

// Check validates the arguments.
func (a EntryStoreArgs) Check() error {
	c := checker{op: a.Name()}
	c.float("rows", a.Rows, a.Rows.Rows, layout.V4Dim)
	c.tensor("norm", a.Norm, F32, 1, layout.V4Dim)
	c.tensor("angles", a.Angles, F32, a.Rows.Rows, layout.RopeDim)
	c.tensor("slots", a.Slots, I32, a.Rows.Rows, 1)
	c.entryPool("pool", a.Pool)
	return c.err
}

// KeyStoreArgs writes indexer keys that Compress computed: RMSNorm, rotation of the last 64 values (interleaved),
// optional Hadamard rotation, quantisation by the layout with scales that are not rounded to powers of two. A slot
// below zero writes nothing. If Norm and Angles are not given, keys are neither normalised nor rotated.
type KeyStoreArgs struct {
	Keys     Tensor // activation [n, 128]
	Norm     Tensor // f32 [1, 128]; optional
	Eps      float32
	Angles   Tensor // f32 [n, 64]; optional
	Hadamard bool
	Slots    Tensor // i32 [n, 1]
	Pool     Pool
}

// Name returns the name of the operation.
func (KeyStoreArgs) Name() string { return "store keys" }

// Check validates the arguments.
func (a KeyStoreArgs) Check() error {
	c := checker{op: a.Name()}
	c.float("keys", a.Keys, a.Keys.Rows, layout.IndexDim)
	if a.Norm.Given() {
		c.tensor("norm", a.Norm, F32, 1, layout.IndexDim)
	}
	if a.Angles.Given() {
		c.tensor("angles", a.Angles, F32, a.Keys.Rows, layout.RopeDim)
	}
	c.tensor("slots", a.Slots, I32, a.Keys.Rows, 1)
	c.indexPool("pool", a.Pool)
	return c.err
}

func (c *checker) entryPool(name string, p Pool) {
	l, err := layout.V4Of(p.Layout)
	c.pool(name, p, l, err)
}
