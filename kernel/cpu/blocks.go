package cpu

import (
	"sparrow/internal/block"
	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
)

// Matrix products with block formats quantise the rows of x once to eight bits; see package vec. Weights whose scales
// have groups of equal size share the quantised rows.

// quantGroups lists the group sizes: the number of values of x that share a scale.
var quantGroups = [...]int{32, 256, vec.QuantRows32, vec.QuantRows256, vec.QuantU4, vec.QuantE2M1, vec.QuantBytes}

// quantised holds x quantised for each entry of quantGroups.
type quantised struct {
	rows [len(quantGroups)]vec.BlockRows
	done [len(quantGroups)]bool
}

// quantGroup returns the number of values of x that share a scale in products with a weight, or 0 if x is not
// quantised.
func quantGroup(tier *vec.Tier, w *host.Matrix) int {
	if codes := groupCodes(w); codes != 0 {
		if !tier.Groups(codes, w.BlockCols, w.In()) {
			return 0
		}
		return codes.Quant()
	}
	f, ok := w.Data.DType.Block()
	if !ok || !tier.Blocks() {
		return 0
	}
	return vec.BlockGroup(f)
}

// Slow describes how products with a block format are computed on this machine if that is slow, and is empty otherwise.
func Slow(f block.Format) string { return vec.Tiers()[0].SlowBlocks(f) }

// quantFor returns x quantised for a weight, or nil if the weight multiplies x as it is. Rows that were quantised for
// another weight of the current product are reused.
func (d *Device) quantFor(q *quantised, w *host.Matrix, x kernel.Tensor) (*vec.BlockRows, error) {
	for i, group := range quantGroups {
		if group != quantGroup(d.tier, w) {
			continue
		}
		if !q.done[i] {
			q.done[i] = true
			d.tier.ResetBlocks(&q.rows[i], x.Rows, x.Cols, group, false)
			if err := d.quantUnits(quantWork{to: &q.rows[i], x: x}); err != nil {
				return nil, err
			}
		}
		return &q.rows[i], nil
	}
	return nil, nil
}

// quantWork quantises rows of x in units: all rows in order, or the rows that index lists.
type quantWork struct {
	to    *vec.BlockRows
	x     kernel.Tensor
	index []int32 // row of x for each quantised row, or nil for all rows
}

// quantUnits quantises every unit. Few rows are quantised by the caller, because starting workers would take longer.
func (d *Device) quantUnits(w quantWork) error {
	units := w.to.Units()
	if units > 1 && w.x.Rows > fewPlain {
		return each(d, units, w, quantUnit)
	}
	for i := range units {
		quantUnit(d, &w, 0, i)
	}
	return nil
}

func quantUnit(d *Device, w *quantWork, _, i int) {
	if w.index == nil {
		d.tier.QuantUnit(w.to, i, host.F32(w.x), w.x.Stride)
		return
	}
	d.tier.QuantGathered(w.to, i, host.F32(w.x), w.x.Stride, w.x.Rows, w.index)
}

// blockProduct multiplies quantised rows by c.N rows of a weight, starting at row n0.
func blockProduct(tier *vec.Tier, c vec.BlockCut, w *host.Matrix, n0 int) {
	if groupCodes(w) != 0 {
		tier.MulGroups(c, groupWeights(w, n0, n0+c.N))
		return
	}
	band := w.Data.Slice(n0, n0+c.N)
	tier.MulBlocks(c, blockOf(w), host.Bytes(band), band.Stride*band.DType.Size())
}

// blockOf returns the block format of a weight; the weight must have one.
func blockOf(w *host.Matrix) block.Format {
	f, _ := w.Data.DType.Block()
	return f
}
