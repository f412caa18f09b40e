package ref

import (
	"fmt"
	"math"

	"sparrow/internal/device/host"
	"sparrow/kernel"
	"sparrow/layout"
)

// softmax converts scores to weights in place and returns the largest score and the sum of exponentials relative to
// it.
func softmax(scores []float64) (largest, sum float64) {
	largest = math.Inf(-1)
	for _, s := range scores {
		largest = max(largest, s)
	}
	for i, s := range scores {
		scores[i] = math.Exp(s - largest)
		sum += scores[i]
	}
	for i := range scores {
		scores[i] /= sum
	}
	return largest, sum
}

// sparseAttend computes attention over selected rows.
func sparseAttend(d *Device, a kernel.SparseArgs) error {
	if err := onlyF32("sparse attend", a.Out, a.Q); err != nil {
		return err
	}
	main, err := layout.MainOf(a.Pool.Layout)
	if err != nil {
		return err
	}
	lens := host.I32(a.Lens)
	var rows [][]float32
	for r := range a.Q.Rows {
		n := min(max(int(lens[r*a.Lens.Stride]), 0), a.Indices.Cols)
		rows = rows[:0]
		for _, slot := range host.RowI32(a.Indices, r)[:n] {
			if slot < 0 {
				continue
			}
			page, offset, err := host.Place("sparse attend", a.Pool, slot)
			if err != nil {
				return fmt.Errorf("row %d: %w", r, err)
			}
			row := make([]float32, layout.Width(a.Pool.Layout))
			main.Decode(row, page, offset)
			rows = append(rows, row)
		}
		for h := range a.Heads {
			d.attendHead(&a, r, h, rows)
		}
	}
	return nil
}

// inner returns the inner product of two rows in float64.
func inner(x, y []float32) (sum float64) {
	for c, v := range x {
		sum += float64(v) * float64(y[c])
	}
	return sum
}

// addScaled adds p times each element of a row to sums.
func addScaled(sums []float64, p float64, row []float32) {
	for c := range sums {
		sums[c] += p * float64(row[c])
	}
}

func (d *Device) attendHead(a *kernel.SparseArgs, r, h int, rows [][]float32) {
	width := layout.Width(a.Pool.Layout)
	q := host.RowF32(a.Q, r)[h*width:][:width]
	out := host.RowF32(a.Out, r)[h*layout.LatentDim:][:layout.LatentDim]
	scores := make([]float64, len(rows))
	for i, row := range rows {
		scores[i] = inner(q, row) * float64(a.Scale)
	}
	weigh := softmax
	if a.Pool.Layout == layout.BF16Row1152 {
		weigh = func(s []float64) (float64, float64) { return d.weigh(s, tiles{keys: 64}) }
	}
	largest, sum := weigh(scores)
	sums := make([]float64, len(out))
	for i, row := range rows {
		addScaled(sums, scores[i], row)
	}
	for c, o := range sums {
		out[c] = float32(o)
	}
	lse := largest + math.Log(sum)
	if len(rows) == 0 {
		lse = math.Inf(1)
	}
	if a.LSE.Given() {
		host.RowF32(a.LSE, r)[h] = float32(lse)
	}
	if a.Max.Given() {
		host.RowF32(a.Max, r)[h] = float32(largest)
	}
}

// denseAttend computes causal attention over expanded keys and values.
func denseAttend(dev *Device, a kernel.DenseArgs) error {
	if err := onlyF32("dense attend", a.Out, a.Q, a.KV, a.Rope); err != nil {
		return err
	}
	d := a.Dims
	start, lens := host.I32(a.Start), host.I32(a.Lens)
	for r := range a.Q.Rows {
		s0, n := int(start[r*a.Start.Stride]), max(int(lens[r*a.Lens.Stride]), 0)
		if s0 < 0 || s0+n > a.KV.Rows {
			return fmt.Errorf("%w: dense attend: row %d attends to keys %d to %d, but there are only "+
				"%d", kernel.ErrArgument, r,
				s0, s0+n, a.KV.Rows)
		}
		for h := range d.Heads {
			q := host.RowF32(a.Q, r)[h*d.QK():][:d.QK()]
			scores := make([]float64, n)
			for s := range scores {
				k := host.RowF32(a.KV, s0+s)[h*(d.Nope+d.V):][:d.Nope]
				sum := inner(k, q)
				for c, v := range host.RowF32(a.Rope, s0+s) {
					sum += float64(v) * float64(q[d.Nope+c])
				}
				scores[s] = sum * float64(a.Scale)
			}
			dev.weigh(scores, denseTiles(d))
			out := host.RowF32(a.Out, r)[h*d.V:][:d.V]
			sums := make([]float64, d.V)
			for s, p := range scores {
				addScaled(sums, p, host.RowF32(a.KV, s0+s)[h*(d.Nope+d.V)+d.Nope:])
			}
			for c, o := range sums {
				out[c] = float32(o)
			}
		}
	}
	return nil
}
