package host

import (
	"fmt"
	"math"

	"sparrow/kernel"
)

// Carry returns the coefficients with which a sublayer sums up the streams of row t. If a.Pre is not given, these are
// pre. If it is given, they are those of the previous sublayer, or select the first stream in the first sublayer; pre
// is stored in a.Pre for the next sublayer.
func Carry[T float32 | float64](a *kernel.HyperPreArgs, t int, pre []T) []T {
	if !a.Pre.Given() {
		return pre
	}
	var by [kernel.MaxStreams]T
	by[0] = 1
	if a.Carried.Given() {
		for i, v := range RowF32(a.Carried, t) {
			by[i] = T(v)
		}
	}
	out := RowF32(a.Pre, t)
	for i := range out {
		out[i] = float32(pre[i])
	}
	return append(pre[:0], by[:len(pre)]...)
}

// BlockKey returns, for column s of row r of block scores, the index of the key in its sequence.
func BlockKey(a *kernel.ScoreArgs, r, s int) int {
	return int(RowI32(a.Blocks, r)[s/a.BlockKeys])*a.BlockKeys + s%a.BlockKeys
}

// BlockMaxRow writes the largest score of every block of row r.
func BlockMaxRow(a *kernel.BlockMaxArgs, r int) {
	n := int(RowI32(a.Lens, r)[0])
	if n <= a.SkipUpTo || n <= 0 {
		return
	}
	scores, out := RowF32(a.Scores, r)[:n], RowF32(a.Out, r)
	for b := range (n + a.Size - 1) / a.Size {
		top := float32(math.Inf(-1))
		for _, v := range scores[b*a.Size : min((b+1)*a.Size, n)] {
			top = max(top, v)
		}
		out[b] = top
	}
	out[(n-1)/a.Size] = float32(math.Inf(1))
}

// CheckBlocks returns an error for rows with more scores than columns.
func CheckBlocks(a *kernel.BlockMaxArgs) error {
	for r := range a.Scores.Rows {
		if n := int(RowI32(a.Lens, r)[0]); n > a.SkipUpTo && n > a.Scores.Cols {
			return fmt.Errorf("%w: block max: row %d has %d keys, but scores have %d columns", kernel.ErrArgument, r, n,
				a.Scores.Cols)
		}
	}
	return nil
}

// CheckTable returns an error for row numbers outside the table.
func CheckTable(a *kernel.TableArgs) error {
	for t := range a.IDs.Rows {
		for _, id := range RowI32(a.IDs, t) {
			if id < 0 || int(id) >= a.Table.Values.Rows {
				return fmt.Errorf("%w: read table: row %d is outside the %d rows", kernel.ErrArgument, id,
					a.Table.Values.Rows)
			}
		}
	}
	return nil
}
