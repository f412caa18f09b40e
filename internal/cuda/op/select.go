package op

import (
	"sparrow/kernel"
	"sparrow/kernel/cuda"
	"sparrow/layout"
)

// scores computes index scores over paged or gathered keys.
func scores(d *Device, a kernel.ScoreArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "scores"}
	if a.Keys.Layout == layout.V41Index68 {
		return scoresV41(d, &r, &a)
	}
	r.layout(a.Keys, layout.IndexPage132, layout.V41Index68)
	if a.Blocks.Given() {
		r.fail("blocks of keys have layout %v, this backend supports %v", a.Keys.Layout, layout.V41Index68)
	}
	if a.Heads != 32 && a.Heads != 64 {
		r.fail("there are %d heads, this backend supports 32 and 64", a.Heads)
	}
	r.packed("q", a.Q)
	r.packed("w", a.W)
	r.packed("lens", a.Lens)
	r.aligned("q", a.Q, 16)
	r.aligned("w", a.W, 16)
	r.aligned("keys", a.Keys.Mem, 16)
	if r.err != nil || a.Q.Rows == 0 || a.Out.Cols == 0 {
		return r.err
	}
	if a.Table.Given() {
		return pagedScores(d, &r, &a)
	}
	return gatheredScores(d, &r, &a)
}

// mostNextN is the maximum number of rows of a request that the paged kernels score together.
const mostNextN = 4

// pagedScores scores paged keys. It scores adjacent rows together if ScoreArgs.NextN states that they belong to one
// request.
func pagedScores(d *Device, r *require, a *kernel.ScoreArgs) error {
	if a.Keys.PageTokens != layout.PageTokens {
		r.fail("pages have %d keys, this backend supports %d", a.Keys.PageTokens, layout.PageTokens)
	}
	r.packed("table row", a.TableRow)
	n := max(a.NextN, 1)
	if n > mostNextN {
		r.fail("%d rows of a request are scored at once, this backend supports at most %d", n, mostNextN)
	}
	x := cuda.IndexPaged{Queries: at(a.Q), Cache: at(a.Keys.Mem), PageBytes: int64(a.Keys.Mem.Stride),
		Pages: int64(a.Keys.Pages()), Weights: at(a.W), ContextLengths: at(a.Lens), BlockTable: at(a.Table),
		TableRows: at(a.TableRow), Scores: at(a.Out), Stride: int64(a.Out.Stride), TableStride: int64(a.Table.Stride),
		Requests: r.count("requests", a.Q.Rows/n), NextN: int32(n), Heads: int32(a.Heads),
		MaxContext: r.count("columns", a.Out.Cols), MaxBlocks: r.count("pages of a table", a.Table.Cols),
		Skip: r.count("keys to skip", a.SkipUpTo)}
	if r.err != nil {
		return r.err
	}
	args, err := x.Encode(d.gpu)
	if err != nil {
		return err
	}
	return cuda.ScorePaged(d.kernels, d.stream, x.Heads, &args)
}

// gatheredScores scores keys that are contiguous in a page.
func gatheredScores(d *Device, r *require, a *kernel.ScoreArgs) error {
	r.packed("start", a.Start)
	if a.Keys.PageTokens%4 != 0 {
		r.fail("there are %d gathered keys, this backend supports multiples of 4; round the page up", a.Keys.PageTokens)
	}
	keys := at(a.Keys.Mem)
	x := cuda.IndexRagged{Queries: at(a.Q), Keys: keys, Scales: keys.Add(int64(a.Keys.PageTokens) * layout.IndexDim),
		Weights: at(a.W), KeyStart: at(a.Start), KeyEnd: at(a.Lens), Scores: at(a.Out), Stride: int64(a.Out.Stride),
		Rows: r.count("rows", a.Q.Rows), KeyCount: r.count("keys", a.Keys.PageTokens), Heads: int32(a.Heads),
		Relative: true, Lengths: true, Skip: r.count("keys to skip", a.SkipUpTo)}
	if r.err != nil {
		return r.err
	}
	args, err := x.Encode(d.gpu)
	if err != nil {
		return err
	}
	return cuda.ScoreRagged(d.kernels, d.stream, x.Heads, &args)
}

// selectBest chooses the positions with the highest scores.
func selectBest(d *Device, a kernel.SelectArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "select"}
	r.packed("out", a.Out)
	r.packed("lens", a.Lens)
	if a.Out.Cols < 1 || a.Out.Cols > cuda.MaxTopK {
		r.fail("the best %d are requested, this backend selects 1 to %d", a.Out.Cols, cuda.MaxTopK)
	}
	args := cuda.TopKArgs{Lengths: at(a.Lens), Out: at(a.Out), Rows: r.count("rows", a.Out.Rows), K: int32(a.Out.Cols),
		RowsPerRequest: 1}
	if a.Scores.Given() {
		r.aligned("scores", a.Scores, 16)
		args.Scores, args.Stride, args.Columns = at(a.Scores), int64(a.Scores.Stride), r.count("columns", a.Scores.Cols)
	}
	if r.err != nil || a.Out.Rows == 0 {
		return r.err
	}
	n := max(cuda.TopKScratch(d.kernels, args.Rows, args.Columns, args.K), 4)
	err := d.temporary(8*n, func(p cuda.Ptr) error {
		if args.Scores == 0 { // no row is longer than K, so no scores are read
			args.Scores, args.Columns = p, args.K
		}
		args.Kept, args.Via = p, p.Add(4*n)
		return cuda.SelectTopK(d.kernels, d.stream, &args)
	})
	if err != nil || !a.Values.Given() {
		return err
	}
	values := cuda.SelectedScoresArgs{Positions: at(a.Out), Lengths: at(a.Lens), Out: at(a.Values),
		PositionStride: stride(a.Out), OutStride: stride(a.Values), Rows: args.Rows, Columns: args.K}
	if a.Scores.Given() {
		values.Scores, values.Stride, values.Keys = at(a.Scores), int64(a.Scores.Stride), int32(a.Scores.Cols)
	}
	return cuda.SelectedScores(d.kernels, d.stream, &values)
}

// locate converts positions to slots, in one launch with a delayed copy of rotated queries.
func locate(d *Device, a kernel.LocateArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	if h := &d.held; h.kind != holdTurn || !h.copied || overlap(a.Out, h.turned) || overlap(a.Positions, h.turned) {
		if err := d.settle(); err != nil {
			return err
		}
	}
	r := require{op: "locate"}
	args := cuda.LocateArgs{Positions: at(a.Positions), Out: at(a.Out), Faults: d.faults.Ptr(),
		PositionStride: int64(a.Positions.Stride), OutStride: int64(a.Out.Stride),
		Rows: r.count("rows", a.Positions.Rows), Columns: r.count("columns", a.Positions.Cols)}
	if a.Table.Given() {
		r.packed("table row", a.TableRow)
		args.Table, args.TableRows, args.TableStride = at(a.Table), at(a.TableRow), int64(a.Table.Stride)
		args.PageTokens, args.TableColumns, args.Tables = r.count("tokens of a page", a.PageTokens),
			r.count("pages of a table", a.Table.Cols), r.count("tables", a.Table.Rows)
	} else {
		r.packed("offset", a.Offset)
		args.Offsets = at(a.Offset)
	}
	if r.err != nil || a.Positions.Rows == 0 || a.Positions.Cols == 0 {
		return r.err
	}
	if d.held.kind == holdTurn {
		d.held.turn.Locate = args
		return d.settle()
	}
	return cuda.Locate(d.kernels, d.stream, &args)
}
