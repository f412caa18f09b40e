package kernel

import (
	"sparrow/internal/num"
	"sparrow/layout"
)

// IndexQueryArgs prepares indexer queries: rotary embedding of one half of each head, then, for FP8 and FP4 keys,
// Hadamard rotation and quantisation. Weights are multiplied by the query scale and by n^-1/2 * d^-1/2: W[t,h] =
// Weights[t,h] * n^-1/2 * d^-1/2 * scale(q[t,h]).
type IndexQueryArgs struct {
	Out      Tensor // e4m3 [T, OutHeads*128] for FP8 keys, f32 for FP4 keys and for exact keys; with V41 also bf16
	W        Tensor // f32 [T, OutHeads]
	Q        Tensor // activation [T, Heads*128]: output of wq_b; may be overwritten
	Weights  Tensor // f32 [T, Heads]: output of weights_proj
	Angles   Tensor // f32 [T, 64]; not given if heads are not rotated
	Heads    int
	Padded   int // OutHeads; heads from Heads on, and their weights, are zero; 0 means Heads
	Offset   int // first rotated element of a head: 0 or 64
	Pairing  Pairing
	Hadamard bool
	Scales   num.ScaleMode // how query scales are computed
	FP4      bool          // for FP4 keys: Out, f32, is rounded to FP4 in groups of 32, as the keys are
	V41      bool          // for keys of layout.V41Index68; only with FP4
}

// OutHeads returns the number of heads in Out and W.
func (a *IndexQueryArgs) OutHeads() int { return max(a.Heads, a.Padded) }

// Name returns the name of the operation.
func (IndexQueryArgs) Name() string { return "index query" }

// Check validates the arguments.
func (a IndexQueryArgs) Check() error {
	c := checker{op: a.Name()}
	w := a.Heads * layout.IndexDim
	if a.Padded != 0 && a.Padded < a.Heads {
		c.fail("%d heads are padded to %d, want at least as many", a.Heads, a.Padded)
	}
	switch bf16 := a.V41 && a.Out.DType == BF16; { // bf16 holds an FP4 value times a power of two exactly
	case a.Out.DType != E4M3 && a.Out.DType != F32 && !bf16:
		c.fail("out has type %v, want e4m3 or f32", a.Out.DType)
	case a.FP4 && a.Out.DType != F32 && !bf16:
		c.fail("queries for FP4 keys have type %v, want f32", a.Out.DType)
	}
	c.shape("out", a.Out, a.Q.Rows, a.OutHeads()*layout.IndexDim)
	c.tensor("w", a.W, F32, a.Q.Rows, a.OutHeads())
	c.float("q", a.Q, a.Q.Rows, w)
	c.tensor("weights", a.Weights, F32, a.Q.Rows, a.Heads)
	if a.Angles.Given() {
		c.tensor("angles", a.Angles, F32, a.Q.Rows, layout.RopeDim)
	}
	if a.Pairing != Interleaved && a.Pairing != HalfSplit {
		c.fail("unknown %v", a.Pairing)
	}
	if a.Offset < 0 || a.Offset+layout.RopeDim > layout.IndexDim {
		c.fail("offset %d + rope %d exceeds head size %d", a.Offset, layout.RopeDim, layout.IndexDim)
	}
	return c.err
}

// ScoreArgs computes index scores: Out[r, s] = scale[s] * sum over heads of W[r,h] * max(0, Q[r,h]·key[s]) for s in
// [0, Lens[r]).
//
// Paged: key s of row r is in page Table[TableRow[r], s/PageTokens] of Keys. Gathered: Table is not given, Keys is one
// page, and key s is its token Start[r]+s. Columns beyond Lens[r] are not written. Rows with Lens[r] <= SkipUpTo need
// no scores, because selection keeps every one of their keys; their columns are not written.
type ScoreArgs struct {
	Out      Tensor // f32 [R, at least the largest length]
	Q        Tensor // e4m3 or f32 [R, Heads*128]: Out of IndexQueryArgs for keys of this layout
	W        Tensor // f32 [R, Heads]
	Keys     Pool
	Table    Tensor // i32 [tables, pages]: page numbers; not given for gathered keys
	TableRow Tensor // i32 [R, 1]: row of Table
	Start    Tensor // i32 [R, 1]: first gathered key of the row
	Lens     Tensor // i32 [R, 1]: number of keys of the row
	Heads    int
	SkipUpTo int
	// Blocks, if given, lists the blocks of keys that are scored for a row of a paged cache, i32 [R, blocks]: column s
	// is the score of key Blocks[r, s/BlockKeys]*BlockKeys + s%BlockKeys of the sequence, and Lens counts columns.
	Blocks    Tensor
	BlockKeys int
	// NextN above 1 means that rows of a paged cache are in groups of NextN adjacent rows of one request, which have
	// one row of the page table: each block of keys is read once for a group. With 0 and 1 every row reads its keys
	// separately. The scores do not depend on NextN.
	NextN int
}

// Name returns the name of the operation.
func (ScoreArgs) Name() string { return "scores" }

// Check validates the arguments.
func (a ScoreArgs) Check() error {
	c := checker{op: a.Name()}
	want := E4M3
	switch {
	case a.Keys.Layout == layout.V41Index68 && a.Q.DType == BF16:
		want = BF16
	case a.Keys.Layout != layout.IndexPage132:
		want = F32
	}
	r := a.Q.Rows
	c.tensor("q", a.Q, want, r, a.Heads*layout.IndexDim)
	c.tensor("w", a.W, F32, r, a.Heads)
	c.tensor("out", a.Out, F32, r, -1)
	c.tensor("lens", a.Lens, I32, r, 1)
	c.indexPool("keys", a.Keys)
	if a.Blocks.Given() {
		c.tensor("blocks", a.Blocks, I32, r, -1)
		if a.BlockKeys < 1 || !a.Table.Given() || a.NextN > 1 || a.Keys.PageTokens%max(a.BlockKeys, 1) != 0 {
			c.fail("blocks have %d keys, %d rows are scored at a time, and pages have %d keys; want blocks that "+
				"divide pages, a page table and single rows", a.BlockKeys, max(a.NextN, 1), a.Keys.PageTokens)
		}
	}
	if a.NextN > 1 && (!a.Table.Given() || r%a.NextN != 0) {
		c.fail("there are %d rows in groups of %d of a request, want a page table and whole groups", r, a.NextN)
	}
	if a.Table.Given() {
		c.tensor("table", a.Table, I32, 0, -1)
		c.tensor("table row", a.TableRow, I32, r, 1)
	} else {
		c.tensor("start", a.Start, I32, r, 1)
		if a.Keys.Mem.Rows != 1 {
			c.fail("gathered keys have %d pages, want one", a.Keys.Mem.Rows)
		}
	}
	return c.err
}

// SelectArgs chooses for every row the K best scored positions of [0, Lens[r]): higher score first, the lower position
// on a tie. NaN and minus infinity are never chosen. Out lists positions in ascending order, then -1, so that attention
// always adds in the same order. Rows with Lens[r] <= K get 0..Lens[r]-1 and their scores are not read; a length below
// zero counts as zero.
type SelectArgs struct {
	Out    Tensor // i32 [R, K]: positions
	Scores Tensor // f32 [R, at least the largest length]; need not be given if every length is at most K
	Lens   Tensor // i32 [R, 1]: number of scores of the row
	// Values receives the scores of the chosen positions in the order of Out, f32 [R, K]; optional. It is zero for rows
	// that are not scored and after the last position.
	Values Tensor
}

// Name returns the name of the operation.
func (SelectArgs) Name() string { return "select" }

// Check validates the arguments.
func (a SelectArgs) Check() error {
	c := checker{op: a.Name()}
	c.tensor("out", a.Out, I32, a.Out.Rows, -1)
	c.tensor("lens", a.Lens, I32, a.Out.Rows, 1)
	if a.Scores.Given() {
		c.tensor("scores", a.Scores, F32, a.Out.Rows, -1)
	}
	if a.Values.Given() {
		c.tensor("values", a.Values, F32, a.Out.Rows, a.Out.Cols)
	}
	return c.err
}

// LocateArgs converts positions to slots of a cache. Paged: Out = Table[TableRow[r], p/PageTokens]*PageTokens +
// p%PageTokens. Ragged (Table not given): Out = p + Offset[r]. -1 stays -1. Out may be Positions.
type LocateArgs struct {
	Out        Tensor // i32 [R, K]
	Positions  Tensor // i32 [R, K]
	Table      Tensor // i32 [tables, pages]
	TableRow   Tensor // i32 [R, 1]
	PageTokens int
	Offset     Tensor // i32 [R, 1]
}

// Name returns the name of the operation.
func (LocateArgs) Name() string { return "locate" }

// Check validates the arguments.
func (a LocateArgs) Check() error {
	c := checker{op: a.Name()}
	c.tensor("positions", a.Positions, I32, a.Positions.Rows, -1)
	c.tensor("out", a.Out, I32, a.Positions.Rows, a.Positions.Cols)
	if a.Table.Given() {
		c.tensor("table", a.Table, I32, 0, -1)
		c.tensor("table row", a.TableRow, I32, a.Positions.Rows, 1)
		if a.PageTokens <= 0 {
			c.fail("there are %d tokens per page, want at least 1", a.PageTokens)
		}
	} else {
		c.tensor("offset", a.Offset, I32, a.Positions.Rows, 1)
	}
	return c.err
}
