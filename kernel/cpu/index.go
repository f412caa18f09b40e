package cpu

import (
	"fmt"
	"math"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/host"
	"sparrow/layout"
)

// IndexQuery prepares indexer queries.
func (d *Device) IndexQuery(a kernel.IndexQueryArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	if err := onlyF32("index query", a.Q); err != nil {
		return err
	}
	return d.eachRow(rowWork{rows: a.Q.Rows, query: a, do: (*Device).indexQueryRow})
}

func (d *Device) indexQueryRow(w *rowWork, _, r int) {
	const dim = layout.IndexDim
	a := &w.query
	q, angles := host.RowF32(a.Q, r), host.RowF32(a.Angles, r)
	out, weights := host.RowF32(a.W, r), host.RowF32(a.Weights, r)
	fold := 1 / math.Sqrt(float64(a.Heads)*dim)
	for h := range a.Heads {
		head := q[h*dim:][:dim]
		rotate(head[a.Offset:][:layout.RopeDim], angles, a.Pairing, false)
		if a.Hadamard {
			num.Hadamard128(head)
		}
		scale := float32(1)
		if a.Out.DType == kernel.E4M3 {
			scale = num.QuantE4M3(host.Bytes(a.Out.Slice(r, r+1))[h*dim:][:dim], head, a.Scales)
		} else {
			copy(host.RowF32(a.Out, r)[h*dim:], head)
		}
		out[h] = float32(float64(weights[h]) * fold * float64(scale))
	}
}

// Select chooses the best scored positions of every row.
func (d *Device) Select(a kernel.SelectArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	lens := host.I32(a.Lens)
	for r := range a.Out.Rows {
		if n := int(lens[r*a.Lens.Stride]); n > a.Out.Cols && (!a.Scores.Given() || n > a.Scores.Cols) {
			return fmt.Errorf("%w: select: row %d has %d keys, scores are %v", kernel.ErrArgument, r, n, a.Scores)
		}
	}
	return d.eachRow(rowWork{rows: a.Out.Rows, pick: a, do: func(d *Device, w *rowWork, worker, r int) {
		out := host.RowI32(w.pick.Out, r)
		n := max(int(host.RowI32(w.pick.Lens, r)[0]), 0)
		if n > len(out) {
			n = d.best(out, host.RowF32(w.pick.Scores, r)[:n], worker)
		} else {
			for p := range n {
				out[p] = int32(p)
			}
		}
		for i := n; i < len(out); i++ {
			out[i] = -1
		}
	}})
}

// rank maps a score to an unsigned number of the same order; NaN and minus infinity, never chosen, become 0.
func rank(v float32) uint32 {
	b := math.Float32bits(v)
	if v != v || b == 0xff800000 {
		return 0
	}
	if b == 0x80000000 {
		b = 0 // minus zero equals zero
	}
	if b>>31 != 0 {
		return ^b
	}
	return b | 1<<31
}

// best writes the positions of the len(out) best scores in ascending order and returns how many there are. Three passes over histograms of
// 11, 11 and 10 bits of the rank find the last score that is kept; a fourth collects.
func (d *Device) best(out []int32, scores []float32, worker int) int {
	hist := grow(&d.scratch[worker].hist, 2048)
	need := len(out) // still to be chosen among ranks that share the prefix
	var prefix, mask uint32
	for _, shift := range [3]uint{21, 10, 0} {
		clear(hist)
		bits := uint32(2047)
		if shift == 0 {
			bits = 1023
		}
		for _, v := range scores {
			if k := rank(v); k&mask == prefix {
				hist[k>>shift&bits]++
			}
		}
		bin := int(bits)
		for bin > 0 && int(hist[bin]) < need {
			need -= int(hist[bin])
			bin--
		}
		prefix |= uint32(bin) << shift
		mask |= bits << shift
	}
	// prefix is now the rank of the last kept score, and need how many of that very rank are kept, lowest position first.
	n := 0
	for p, v := range scores {
		k := rank(v)
		if k == 0 || k < prefix {
			continue
		}
		if k == prefix {
			if need == 0 {
				continue
			}
			need--
		}
		out[n] = int32(p)
		n++
	}
	return n
}

// Locate turns positions into slots or gathered rows.
func (d *Device) Locate(a kernel.LocateArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	for r := range a.Positions.Rows {
		in, out := host.RowI32(a.Positions, r), host.RowI32(a.Out, r)
		if a.Table.Given() {
			t := int(host.RowI32(a.TableRow, r)[0])
			if t < 0 || t >= a.Table.Rows {
				return fmt.Errorf("%w: locate: row %d uses table row %d of %d", kernel.ErrArgument, r, t, a.Table.Rows)
			}
			table := host.RowI32(a.Table, t)
			for i, p := range in {
				out[i] = -1
				if p < 0 {
					continue
				}
				if int(p)/a.PageTokens >= len(table) {
					return fmt.Errorf("%w: locate: position %d is outside the page table %v", kernel.ErrArgument, p, a.Table)
				}
				out[i] = table[int(p)/a.PageTokens]*int32(a.PageTokens) + p%int32(a.PageTokens)
			}
			continue
		}
		offset := host.RowI32(a.Offset, r)[0]
		for i, p := range in {
			if out[i] = -1; p >= 0 {
				out[i] = p + offset
			}
		}
	}
	return nil
}
