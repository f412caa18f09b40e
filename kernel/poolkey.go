package kernel

// This file has the operations of attention over pools of tokens (glm53flash spec, 5): CompressArgs without overlap
// computes the key of a pool from the keys of its tokens, a selection is a list of pools, and attention reads the
// tokens of the selected pools.

// LayerNormArgs is LayerNorm of every row: Out[t] = (X[t] - mean) * rsqrt(variance + Eps) * Weight + Bias.
type LayerNormArgs struct {
	Out    Tensor // f32 or activation [T, n]; may be X
	X      Tensor // f32 or activation [T, n], element type of Out
	Weight Tensor // f32 [1, n]
	Bias   Tensor // f32 [1, n]
	Eps    float32
}

// Name returns the name of the operation.
func (LayerNormArgs) Name() string { return "layer norm" }

// Check validates the arguments.
func (a LayerNormArgs) Check() error {
	c := checker{op: a.Name()}
	c.float("x", a.X, a.X.Rows, a.X.Cols)
	c.float("out", a.Out, a.X.Rows, a.X.Cols)
	c.tensor("weight", a.Weight, F32, 1, a.X.Cols)
	c.tensor("bias", a.Bias, F32, 1, a.X.Cols)
	return c.err
}

// SpreadArgs converts selected pools to the slots of their tokens: the Pool tokens of each selected pool in ascending
// order, then the tokens after the last complete pool, up to Seen[r]. With a table, token p is in page
// Table[TableRow[r], p/PageTokens]; otherwise its slot is Offset[r] + p. Lens receives the number of slots of a row;
// entries after these are -1.
type SpreadArgs struct {
	Out        Tensor // i32 [R, K*Pool+Pool-1]
	Lens       Tensor // i32 [R, 1]: number of slots of the row
	Pools      Tensor // i32 [R, K]: ascending, then -1
	Seen       Tensor // i32 [R, 1]: tokens the row may attend to, including its own
	Table      Tensor // i32 [tables, pages]
	TableRow   Tensor // i32 [R, 1]
	PageTokens int    // tokens of a page, a multiple of Pool
	Offset     Tensor // i32 [R, 1]
	Pool       int
}

// Name returns the name of the operation.
func (SpreadArgs) Name() string { return "spread pools" }

// Check validates the arguments.
func (a SpreadArgs) Check() error {
	c := checker{op: a.Name()}
	switch paged := a.Table.Given(); {
	case a.Pool < 1:
		c.fail("pools have %d tokens, want at least 1", a.Pool)
	case paged && (a.PageTokens < 1 || a.PageTokens%a.Pool != 0):
		c.fail("pools have %d tokens and pages %d, want whole pools in a page", a.Pool, a.PageTokens)
	}
	if c.err != nil {
		return c.err
	}
	r := a.Pools.Rows
	c.tensor("pools", a.Pools, I32, r, -1)
	c.tensor("out", a.Out, I32, r, a.Pools.Cols*a.Pool+a.Pool-1)
	c.tensor("lens", a.Lens, I32, r, 1)
	c.tensor("seen", a.Seen, I32, r, 1)
	if a.Table.Given() {
		c.tensor("table", a.Table, I32, 0, -1)
		c.tensor("table row", a.TableRow, I32, r, 1)
	} else {
		c.tensor("offset", a.Offset, I32, r, 1)
	}
	return c.err
}
