package ref

import (
	"fmt"
	"math"
	"slices"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
)

// indexQuery rotates and quantises indexer queries, and multiplies the weights by their scales.
func indexQuery(a kernel.IndexQueryArgs) error {
	if err := onlyF32("index query", a.Q); err != nil {
		return err
	}
	const d = layout.IndexDim
	fold := 1 / math.Sqrt(float64(a.Heads)*d)
	for t := range a.Q.Rows {
		q := host.RowF32(a.Q, t)
		w, weights := host.RowF32(a.W, t), host.RowF32(a.Weights, t)
		for h := range a.Heads {
			head := q[h*d:][:d]
			if a.Angles.Given() {
				rotate(head[a.Offset:][:layout.RopeDim], host.RowF32(a.Angles, t), a.Pairing, false)
			}
			if a.Hadamard {
				num.Hadamard128(head)
			}
			scale := float32(1)
			if a.Out.DType == kernel.E4M3 {
				out := host.Bytes(a.Out.Slice(t, t+1))
				scale = num.QuantE4M3(out[h*d:][:d], head, a.Scales)
			} else {
				out := host.RowF32(a.Out, t)[h*d:][:d]
				copy(out, head)
				switch {
				case a.FP4 && a.V41:
					layout.RoundV41Queries(out)
				case a.FP4:
					num.RoundE2M1(out, layout.IndexFP4Group)
				}
			}
			w[h] = float32(float64(weights[h]) * fold * float64(scale))
		}
		host.ClearPadding(&a, t)
	}
	return nil
}

// scores computes index scores over paged or gathered keys.
func scores(a kernel.ScoreArgs) error {
	index, err := layout.IndexOf(a.Keys.Layout)
	if err != nil {
		return err
	}
	var key [layout.IndexDim]float32
	q := make([]float64, a.Q.Cols)
	lens := host.I32(a.Lens)
	for r := range a.Q.Rows {
		n := int(lens[r*a.Lens.Stride])
		if n <= a.SkipUpTo {
			continue
		}
		if n > a.Out.Cols {
			return fmt.Errorf("%w: scores: row %d has %d keys, but out has %d columns", kernel.ErrArgument, r, n,
				a.Out.Cols)
		}
		widen(q, a.Q, r)
		out, w := host.RowF32(a.Out, r), host.RowF32(a.W, r)
		for s := range n {
			slot, err := keySlot(&a, r, s)
			if err != nil {
				return err
			}
			page, offset, err := host.Place("scores", a.Keys, slot)
			if err != nil {
				return err
			}
			index.Decode(key[:], page, a.Keys.PageTokens, offset)
			var sum float64
			for h := range a.Heads {
				var qk float64
				for c, v := range q[h*layout.IndexDim:][:layout.IndexDim] {
					qk += v * float64(key[c])
				}
				sum += float64(w[h]) * max(qk, 0)
			}
			out[s] = float32(sum)
		}
	}
	return nil
}

// keySlot returns the slot of key s of row r.
func keySlot(a *kernel.ScoreArgs, r, s int) (int32, error) {
	if !a.Table.Given() {
		return host.I32(a.Start)[r*a.Start.Stride] + int32(s), nil
	}
	if a.Blocks.Given() {
		s = host.BlockKey(a, r, s)
	}
	return pagedSlot("scores", a.Table, a.TableRow, a.Keys.PageTokens, r, s)
}

// pagedSlot looks up the slot of position p of row r in a page table.
func pagedSlot(op string, table, tableRow kernel.Tensor, pageTokens, r, p int) (int32, error) {
	row := int(host.I32(tableRow)[r*tableRow.Stride])
	if row < 0 || row >= table.Rows || p/pageTokens >= table.Cols {
		return 0, fmt.Errorf("%w: %s: position %d of table row %d is outside the page table %v", kernel.ErrArgument, op,
			p, row, table)
	}
	page := host.I32(table)[row*table.Stride+p/pageTokens]
	return page*int32(pageTokens) + int32(p%pageTokens), nil
}

// selectBest sorts all scores: higher score first, lower position on a tie.
func selectBest(a kernel.SelectArgs) error {
	lens, k := host.I32(a.Lens), a.Out.Cols
	for r := range a.Out.Rows {
		out := host.RowI32(a.Out, r)
		n := max(int(lens[r*a.Lens.Stride]), 0)
		var chosen []int32
		if n <= k {
			for p := range n {
				chosen = append(chosen, int32(p))
			}
		} else {
			if n > a.Scores.Cols {
				return fmt.Errorf("%w: select: row %d has %d keys, but scores have %d "+
					"columns", kernel.ErrArgument, r, n,
					a.Scores.Cols)
			}
			chosen = best(host.RowF32(a.Scores, r)[:n], k)
		}
		for i := range out {
			out[i] = -1
		}
		copy(out, chosen)
	}
	host.SelectedScores(a)
	return nil
}

func best(scores []float32, k int) []int32 {
	var all []int32
	for p, v := range scores {
		if v == v && !math.IsInf(float64(v), -1) {
			all = append(all, int32(p))
		}
	}
	slices.SortStableFunc(all, func(x, y int32) int {
		switch {
		case scores[x] > scores[y]:
			return -1
		case scores[x] < scores[y]:
			return 1
		}
		return 0
	})
	all = all[:min(k, len(all))]
	slices.Sort(all)
	return all
}

// locate converts positions to slots or to rows of gathered keys.
func locate(a kernel.LocateArgs) error {
	for r := range a.Positions.Rows {
		in, out := host.RowI32(a.Positions, r), host.RowI32(a.Out, r)
		for i, p := range in {
			switch {
			case p < 0:
				out[i] = -1
			case a.Table.Given():
				slot, err := pagedSlot("locate", a.Table, a.TableRow, a.PageTokens, r, int(p))
				if err != nil {
					return err
				}
				out[i] = slot
			default:
				out[i] = p + host.I32(a.Offset)[r*a.Offset.Stride]
			}
		}
	}
	return nil
}
