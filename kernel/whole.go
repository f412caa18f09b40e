package kernel

import "sparrow/layout"

// LatentArgs is attention of queries in latent space over every key of a sequence: p = softmax over s < Lens[r] of
// Scale * Q[r,h]·row(s), Out[r,h] = sum of p_s * row_s[:512], where key s of row r is token s%PageTokens of page
// Table[TableRow[r], s/PageTokens]. A length below zero counts as zero; a row without keys gives zeros. For adjacent
// rows of one sequence, such as rows of drafts or of a prompt, a device reads the pages once.
type LatentArgs struct {
	Out      Tensor // activation [R, Heads*512]
	Q        Tensor // activation [R, Heads*576]
	Pool     Pool   // any main layout
	Table    Tensor // i32 [tables, pages]
	TableRow Tensor // i32 [R, 1]
	Lens     Tensor // i32 [R, 1]
	Heads    int
	Scale    float32
	// SplitKeys is the maximum number of keys of a row that one processor computes, on a device that cuts rows into
	// parts: a multiple of 64; 0 means all keys. The cuts of a row depend only on its length, so its result is bitwise
	// equal in any batch. Other devices ignore it.
	SplitKeys int
}

// Name returns the name of the operation.
func (LatentArgs) Name() string { return "latent attend" }

// Check validates the arguments.
func (a LatentArgs) Check() error {
	c := checker{op: a.Name()}
	r := a.Q.Rows
	c.float("q", a.Q, r, a.Heads*layout.RowDim)
	c.float("out", a.Out, r, a.Heads*layout.LatentDim)
	c.mainPool("pool", a.Pool)
	c.tensor("table", a.Table, I32, 0, -1)
	c.tensor("table row", a.TableRow, I32, r, 1)
	c.tensor("lens", a.Lens, I32, r, 1)
	if a.SplitKeys < 0 || a.SplitKeys%64 != 0 {
		c.fail("rows are cut after %d keys each; want a multiple of 64, or 0 for whole rows", a.SplitKeys)
	}
	return c.err
}
