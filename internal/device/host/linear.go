package host

import (
	"fmt"

	"sparrow/kernel"
)

// Span describes the rows of one sequence in a pass.
type Span struct {
	Rows  []int32 // rows of the sequence in the pass, by position
	Slot  int     // slot of the sequence's state; negative for padding
	Begin bool    // the state of the sequence is empty before these rows
	Held  int     // number of held-back rows with which the state is updated first
	Hold  bool    // the rows of this pass are held back
}

// SpanAt returns the rows of sequence i. They are consecutive: Sequences.Rows is an array of the input block.
func SpanAt(s *kernel.Sequences, i int) Span {
	w := RowI32(s.Spans, i)
	return Span{Rows: I32(s.Rows)[w[0] : w[0]+w[1]], Slot: int(w[2]), Begin: w[3] != 0, Held: int(w[4]),
		Hold: w[5] != 0}
}

// HeldRow returns a held-back row of the sequence in a slot, of the given number of slots.
func HeldRow(held kernel.Tensor, slots, slot, i int) []float32 {
	return RowF32(held, slot*(held.Rows/slots)+i)
}

// CheckSequences returns an error for rows outside a pass of the given number of rows, and slots, snapshots and
// held-back rows that do not exist.
func CheckSequences(op string, s *kernel.Sequences, rows, slots, kept int, held kernel.Tensor) error {
	if s.Rows.Stride != 1 && s.Rows.Rows > 1 {
		return fmt.Errorf("%w: %s: the stride of rows is %d words, want 1", kernel.ErrArgument, op, s.Rows.Stride)
	}
	for i := range s.Spans.Rows {
		w := RowI32(s.Spans, i)
		if w[0] < 0 || w[1] < 0 || int(w[0])+int(w[1]) > s.Rows.Rows || int(w[2]) >= slots {
			return fmt.Errorf("%w: %s: sequence %d has rows %d to %d (of %d) and slot %d (of %d), out of range",
				kernel.ErrArgument, op,
				i, w[0], w[0]+w[1], s.Rows.Rows, w[2], slots)
		}
		if most := held.Rows / max(slots, 1); w[4] < 0 || int(w[4]) > most || w[5] != 0 && int(w[1]) > most {
			return fmt.Errorf("%w: %s: sequence %d held back %d rows and has %d new ones, but at most %d can be "+
				"held back", kernel.ErrArgument,
				op, i, w[4], w[1], most)
		}
		for _, r := range SpanAt(s, i).Rows {
			if r < 0 || int(r) >= rows || int(RowI32(s.Snapshots, int(r))[0]) >= kept {
				return fmt.Errorf("%w: %s: sequence %d has row %d, outside the %d rows, or a snapshot outside the %d "+
					"slots", kernel.ErrArgument,
					op, i, r, rows, kept)
			}
		}
	}
	return nil
}

// Spread converts selected pools of keys to the positions of their tokens.
func Spread(a kernel.SpreadArgs) error {
	for r := range a.Pools.Rows {
		out, seen, n := RowI32(a.Out, r), max(int(RowI32(a.Seen, r)[0]), 0), 0
		place, err := placed(&a, r, seen)
		if err != nil {
			return err
		}
		add := func(p int) {
			out[n] = place(p)
			n++
		}
		for _, pool := range RowI32(a.Pools, r) {
			if pool < 0 {
				break
			}
			if (int(pool)+1)*a.Pool > seen {
				return fmt.Errorf("%w: spread pools: row %d attends to %d tokens, which do not fill pool %d",
					kernel.ErrArgument,
					r, seen, pool)
			}
			for j := range a.Pool {
				add(int(pool)*a.Pool + j)
			}
		}
		for p := seen / a.Pool * a.Pool; p < seen; p++ {
			add(p)
		}
		RowI32(a.Lens, r)[0] = int32(n)
		for ; n < len(out); n++ {
			out[n] = -1
		}
	}
	return nil
}

// placed returns a function that returns the slot of a token of row r, which may attend to the given number of tokens.
func placed(a *kernel.SpreadArgs, r, seen int) (func(token int) int32, error) {
	if !a.Table.Given() {
		first := RowI32(a.Offset, r)[0]
		return func(p int) int32 { return first + int32(p) }, nil
	}
	row := int(RowI32(a.TableRow, r)[0])
	if row < 0 || row >= a.Table.Rows || (seen+a.PageTokens-1)/a.PageTokens > a.Table.Cols {
		return nil, fmt.Errorf("%w: spread pools: row %d attends to %d tokens through row %d of the page table %v, "+
			"which is too small", kernel.ErrArgument, r, seen, row, a.Table)
	}
	table := RowI32(a.Table, row)
	return func(p int) int32 { return table[p/a.PageTokens]*int32(a.PageTokens) + int32(p%a.PageTokens) }, nil
}
