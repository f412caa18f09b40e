package cpu

import (
	"fmt"
	"math"
	"math/bits"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
)

// indexQuery rotates and quantises indexer queries and folds their scales into the weights.
func indexQuery(d *Device, a kernel.IndexQueryArgs) error {
	if err := onlyF32("index query", a.Q); err != nil {
		return err
	}
	return eachRow(d, a.Q.Rows, a, indexQueryRow)
}

func indexQueryRow(d *Device, a *kernel.IndexQueryArgs, worker, r int) {
	const dim = layout.IndexDim
	q := host.RowF32(a.Q, r)
	out, weights := host.RowF32(a.W, r), host.RowF32(a.Weights, r)
	if a.Angles.Given() {
		d.rotate(worker, headsAt{x: q[a.Offset:], n: a.Heads, ld: dim}, host.RowF32(a.Angles, r), a.Pairing, false)
	}
	scales := grow(&d.scratch[worker].scores, a.Heads)
	indexCodes(d, a, r, q, scales)
	fold := 1 / math.Sqrt(float64(a.Heads)*dim)
	for h := range a.Heads {
		out[h] = float32(float64(weights[h]) * fold * float64(scales[h]))
	}
	host.ClearPadding(a, r)
}

// indexCodes writes the rotated heads of one row in the format of the keys, and returns their scales in scales.
func indexCodes(d *Device, a *kernel.IndexQueryArgs, r int, q, scales []float32) {
	const dim = layout.IndexDim
	if a.Out.DType == kernel.E4M3 && a.Hadamard {
		d.tier.RotateQuant(host.Bytes(a.Out.Slice(r, r+1)), scales, q, a.Heads, a.Scales)
		return
	}
	for h := range a.Heads {
		head := q[h*dim:][:dim]
		if a.Hadamard {
			num.Hadamard128(head)
		}
		if scales[h] = 1; a.Out.DType == kernel.E4M3 {
			scales[h] = num.QuantE4M3(host.Bytes(a.Out.Slice(r, r+1))[h*dim:][:dim], head, a.Scales)
		} else {
			exact := host.RowF32(a.Out, r)[h*dim:][:dim]
			copy(exact, head)
			switch {
			case a.FP4 && a.V41:
				layout.RoundV41Queries(exact)
			case a.FP4:
				num.RoundE2M1(exact, layout.IndexFP4Group)
			}
		}
	}
}

// locate converts positions to slots or to rows of gathered keys.
func locate(d *Device, a kernel.LocateArgs) error {
	if !a.Table.Given() {
		return eachRow(d, a.Positions.Rows, a, func(_ *Device, a *kernel.LocateArgs, _, r int) {
			in, out, offset := host.RowI32(a.Positions, r), host.RowI32(a.Out, r),
				host.RowI32(a.Offset, r)[0]
			for i, p := range in {
				if out[i] = -1; p >= 0 {
					out[i] = p + offset
				}
			}
		})
	}
	for r := range a.Positions.Rows {
		if t := int(host.RowI32(a.TableRow, r)[0]); t < 0 || t >= a.Table.Rows {
			return fmt.Errorf("%w: locate: row %d uses table row %d, outside the %d rows", kernel.ErrArgument, r, t,
				a.Table.Rows)
		}
	}
	d.outside.Store(-1)
	err := eachRow(d, a.Positions.Rows, a, func(d *Device, a *kernel.LocateArgs, _, r int) {
		table := host.RowI32(a.Table, int(host.RowI32(a.TableRow, r)[0]))
		if p := locatePaged(host.RowI32(a.Out, r), host.RowI32(a.Positions, r), table,
			a.PageTokens); p >= 0 {
			d.outside.Store(p)
		}
	})
	if p := d.outside.Load(); err == nil && p >= 0 {
		err = fmt.Errorf("%w: locate: position %d is outside the page table %v", kernel.ErrArgument, p, a.Table)
	}
	return err
}

// locatePaged looks positions up in a page table. It returns a position that is outside the table, or -1. Page sizes
// are usually powers of two: shifts avoid the division, which would cost more than the rest of the loop.
func locatePaged(out, positions, table []int32, tokens int) int32 {
	shift := bits.TrailingZeros(uint(tokens))
	if tokens != 1<<shift {
		return locateOdd(out, positions, table, int32(tokens))
	}
	low := int32(tokens - 1)
	for i, p := range positions[:len(out)] {
		if p < 0 {
			out[i] = -1
			continue
		}
		page := int(p >> shift)
		if page >= len(table) {
			return p
		}
		out[i] = table[page]<<shift | p&low
	}
	return -1
}

// locateOdd is locatePaged for pages of any size.
func locateOdd(out, positions, table []int32, tokens int32) int32 {
	for i, p := range positions {
		if p < 0 {
			out[i] = -1
			continue
		}
		page := int(p / tokens)
		if page >= len(table) {
			return p
		}
		out[i] = table[page]*tokens + p%tokens
	}
	return -1
}
