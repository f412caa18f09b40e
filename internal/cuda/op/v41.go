package op

import (
	"errors"
	"math/bits"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
	"sparrow/layout"
)

// Operations that only DeepSeek-V4.1 has.

// scoresV41 scores FP4 keys of a paged cache: all keys of a row, or the keys of its blocks.
func scoresV41(d *Device, r *require, a *kernel.ScoreArgs) error {
	if a.Heads != 32 {
		r.fail("there are %d heads over keys of layout %v, this backend supports 32", a.Heads, a.Keys.Layout)
	}
	if !a.Table.Given() {
		r.fail("keys of layout %v are gathered, this backend supports only keys in their pages", a.Keys.Layout)
	}
	r.dtype("q", a.Q, kernel.BF16)
	r.packed("q", a.Q)
	r.packed("w", a.W)
	r.packed("lens", a.Lens)
	r.packed("table row", a.TableRow)
	r.aligned("q", a.Q, 16)
	args := cuda.ScoreV41Args{Pool: r.pool(a.Keys), Queries: at(a.Q), Weights: at(a.W), Table: at(a.Table),
		TableRows: at(a.TableRow), Lengths: at(a.Lens), Scores: at(a.Out), Faults: d.faults.Ptr(),
		TableStride: int64(a.Table.Stride), Stride: stride(a.Out), Rows: r.count("rows", a.Q.Rows),
		Columns: r.count("columns", a.Out.Cols), Skip: r.count("keys to skip", a.SkipUpTo),
		Tables: r.count("tables", a.Table.Rows), Pages: r.count("pages of a table", a.Table.Cols)}
	if a.Blocks.Given() {
		if a.BlockKeys&(a.BlockKeys-1) != 0 {
			r.fail("blocks have %d keys, this backend supports powers of two", a.BlockKeys)
		}
		args.Blocks, args.BlockStride, args.MostBlocks = at(a.Blocks), stride(a.Blocks), r.count("blocks",
			a.Blocks.Cols)
		args.BlockShift = int32(bits.TrailingZeros32(uint32(a.BlockKeys)))
	}
	if r.err != nil || a.Q.Rows == 0 || a.Out.Cols == 0 {
		return r.err
	}
	return cuda.ScoreV41(d.kernels, d.stream, &args)
}

// storeKeysV41 normalises, rotates and encodes FP4 indexer keys.
func storeKeysV41(d *Device, r *require, a *kernel.KeyStoreArgs) error {
	if a.Hadamard {
		r.fail("keys have a Hadamard rotation, but layout %v has none", a.Pool.Layout)
	}
	args := keyWriter(d, r, a.Keys, a.Angles, a.Slots, a.Pool)
	args.Recipe = indexRecipe(layout.IndexDim-layout.RopeDim, kernel.Interleaved, false, num.ScalePow2)
	if a.Norm.Given() {
		r.dtype("norm", a.Norm, kernel.F32)
		r.aligned("norm", a.Norm, 16)
		args.Gamma, args.Epsilon = at(a.Norm), float64(a.Eps)
	}
	if r.err != nil || a.Keys.Rows == 0 {
		return errors.Join(r.err, d.settle())
	}
	var err error
	if args.Positions, err = counting(d, a.Keys.Rows); err != nil {
		return err
	}
	if err := d.settle(); err != nil {
		return err
	}
	return cuda.WriteKeysV41(d.kernels, d.stream, &args)
}

// blockMax computes the largest score of every block of keys.
func blockMax(d *Device, a kernel.BlockMaxArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "block max"}
	r.packed("lens", a.Lens)
	args := cuda.BlockMaxArgs{Scores: at(a.Scores), Lengths: at(a.Lens), Out: at(a.Out), Stride: stride(a.Scores),
		OutStride: stride(a.Out), Rows: r.count("rows", a.Scores.Rows), Columns: r.count("columns", a.Scores.Cols),
		Size: r.count("keys of a block", a.Size), Skip: r.count("keys to skip", a.SkipUpTo)}
	if r.err != nil || args.Rows == 0 || args.Columns == 0 {
		return r.err
	}
	return cuda.BlockMax(d.kernels, d.stream, &args)
}

// hyperSum computes the sum of residual streams with given coefficients.
func hyperSum(d *Device, a kernel.HyperSumArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "hyper sum"}
	r.dtype("x", a.X, kernel.BF16)
	r.dtype("out", a.Out, kernel.BF16)
	args := cuda.CollapseArgs{X: at(a.X), Weights: at(a.Weights), Out: at(a.Out), XStride: stride(a.X),
		WeightStride: stride(a.Weights), OutStride: stride(a.Out), Rows: r.count("rows", a.X.Rows),
		Hidden: r.count("columns", a.Out.Cols), Streams: r.count("streams", a.Weights.Cols)}
	if r.err != nil || args.Rows == 0 || args.Hidden == 0 {
		return r.err
	}
	return cuda.Collapse(d.kernels, d.stream, &args)
}

// addEngram adds the values of n-gram tables, multiplied by gates, to the residual streams.
func addEngram(d *Device, a kernel.EngramArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "engram"}
	r.dtype("x", a.X, kernel.BF16)
	r.dtype("kv", a.KV, kernel.BF16)
	args := cuda.EngramArgs{X: at(a.X), KV: at(a.KV), Weight: at(a.Weight), Epsilon: float64(a.Eps),
		XStride: stride(a.X), KVStride: stride(a.KV), WeightStride: stride(a.Weight), Rows: r.count("rows", a.X.Rows),
		Hidden: r.count("columns", a.Weight.Cols), Streams: r.count("streams", a.Weight.Rows)}
	if r.err != nil || args.Rows == 0 {
		return r.err
	}
	return cuda.Engram(d.kernels, d.stream, &args)
}
