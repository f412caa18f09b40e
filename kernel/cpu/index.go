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
