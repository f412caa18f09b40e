package host

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/layout"
)

// Counted returns the valid part of row r of an index tensor: its first lens[r] entries, or the whole row if lens[r] is
// larger.
func Counted(indices, lens kernel.Tensor, r int) []int32 {
	return RowI32(indices, r)[:min(max(int(RowI32(lens, r)[0]), 0), indices.Cols)]
}

// ClearPadding sets the padding heads of row r of prepared indexer queries, and their weights, to zero.
func ClearPadding(a *kernel.IndexQueryArgs, r int) {
	out := Bytes(a.Out.Slice(r, r+1))
	clear(out[a.Heads*layout.IndexDim*a.Out.DType.Size():])
	clear(RowF32(a.W, r)[a.Heads:])
}

// Put writes rows to given positions. It only copies, so every CPU device uses it.
func Put(a kernel.PutArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	if err := words("put", a.Out, a.X); err != nil {
		return err
	}
	for i := range a.X.Rows {
		r := int(RowI32(a.Rows, i)[0])
		if r >= a.Out.Rows {
			return fmt.Errorf("%w: put: row %d is outside the %d rows", kernel.ErrArgument, r, a.Out.Rows)
		}
		if r >= 0 {
			copy(Bytes(a.Out.Slice(r, r+1)), Bytes(a.X.Slice(i, i+1)))
		}
	}
	return nil
}

// Tally counts choices of experts. It only adds integers, so every CPU device uses it.
func Tally(a kernel.TallyArgs) error {
	counts := RowI32(a.Counts, 0)
	for r := range a.IDs.Rows {
		if RowI32(a.Seen, r)[0] <= 0 {
			continue
		}
		for _, e := range RowI32(a.IDs, r) {
			if uint32(e) >= uint32(len(counts)) {
				return fmt.Errorf("%w: tally: expert %d is outside the %d experts", kernel.ErrArgument, e, len(counts))
			}
			counts[e]++
		}
	}
	return nil
}

// Take copies selected rows. It only copies, so every CPU device uses it.
func Take(a kernel.TakeArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	if err := words("take", a.Out, a.X); err != nil {
		return err
	}
	for i := range a.Out.Rows {
		r := int(RowI32(a.Rows, i)[0])
		if r < 0 || r >= a.X.Rows {
			return fmt.Errorf("%w: take: row %d is outside the %d rows", kernel.ErrArgument, r, a.X.Rows)
		}
		copy(Bytes(a.Out.Slice(i, i+1)), Bytes(a.X.Slice(r, r+1)))
	}
	return nil
}

// words returns an error for types other than f32 and i32, which CPU devices do not copy.
func words(op string, out, x kernel.Tensor) error {
	if out.DType != x.DType || x.DType != kernel.F32 && x.DType != kernel.I32 {
		return fmt.Errorf("%w: %s: the output has type %v and the input %v; CPU devices support f32 or i32, the same "+
			"for both", kernel.ErrUnsupported, op,
			out.DType, x.DType)
	}
	return nil
}

// SelectedScores writes the scores of the keys that Select chose.
func SelectedScores(a kernel.SelectArgs) {
	if !a.Values.Given() {
		return
	}
	for r := range a.Out.Rows {
		out, values := RowI32(a.Out, r), RowF32(a.Values, r)
		clear(values)
		if int(RowI32(a.Lens, r)[0]) <= len(out) {
			continue // the key has no score
		}
		scores := RowF32(a.Scores, r)
		for i, p := range out {
			if p >= 0 {
				values[i] = scores[p]
			}
		}
	}
}

// Combine joins the indices of two streams. It copies integers, so every CPU device uses it.
func Combine(a kernel.CombineArgs) error {
	for r := range a.Window.Rows {
		out := RowI32(a.Out, r)
		n := shift(out, Counted(a.Window, a.WindowLens, r), RowI32(a.WindowBase, r)[0])
		if a.Extra.Given() {
			n += shift(out[n:], Counted(a.Extra, a.ExtraLens, r), RowI32(a.ExtraBase, r)[0])
		}
		for i := n; i < len(out); i++ {
			out[i] = -1
		}
		RowI32(a.Lens, r)[0] = int32(n)
	}
	return nil
}

// shift writes indices plus base; negative indices stay -1, because the sum with base could be the index of another
// stream's row.
func shift(out, in []int32, base int32) int {
	for i, v := range in {
		if v < 0 {
			out[i] = -1
		} else {
			out[i] = v + base
		}
	}
	return len(in)
}
