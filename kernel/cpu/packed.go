package cpu

import (
	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
)

// packWork packs rows of x in pieces: all rows in order, or the rows that index lists.
type packWork struct {
	to    *vec.Columns
	x     kernel.Tensor
	index []int32 // row of x for each column, or nil for all rows
}

// packs reports whether products with a weight use packed columns: on a tier with tiles, for the formats they support.
func packs(tier *vec.Tier, w *host.Matrix) bool {
	if !tier.Tiled() {
		return false
	}
	switch w.Data.DType {
	case kernel.BF16:
		return true
	case kernel.E4M3:
		return blocksOf128(w)
	case kernel.E2M1x2:
		return groupsOf32(w) && w.In() <= vec.MostFP4
	default:
		return false
	}
}

// orders is the number of orders of columns.
const orders = vec.Halves + 1

// orderFor returns the order in which columns are packed for products with a weight.
func orderFor(w *host.Matrix) vec.Order {
	switch w.Data.DType {
	case kernel.E4M3:
		return vec.Halves
	case kernel.E2M1x2:
		return vec.Nibbles
	default:
		return vec.InOrder
	}
}

// packRows packs the rows of x as columns.
func (d *Device) packRows(to *vec.Columns, x kernel.Tensor, o vec.Order) error {
	to.Reset(x.Rows, x.Cols, o)
	return d.packChunks(packWork{to: to, x: x})
}

// packGathered packs the rows of x that index lists, in groups of columns; a negative index is a column of padding.
func (d *Device) packGathered(to *vec.Columns, x kernel.Tensor, o vec.Order, index []int32, group int) error {
	to.ResetGroups(len(index), x.Cols, o, group)
	return d.packChunks(packWork{to: to, x: x, index: index})
}

// packChunks packs every piece. A single row is packed by the caller, because starting workers would take longer.
func (d *Device) packChunks(w packWork) error {
	chunks := w.to.Chunks()
	if chunks > 1 && w.x.Rows > 1 {
		return each(d, chunks, w, packChunk)
	}
	for i := range chunks {
		packChunk(d, &w, 0, i)
	}
	return nil
}

func packChunk(d *Device, w *packWork, _, i int) {
	if w.index == nil {
		d.tier.PackChunk(w.to, i, host.F32(w.x), w.x.Stride)
		return
	}
	d.tier.PackGathered(w.to, i, host.F32(w.x), w.x.Stride, w.x.Rows, w.index)
}

// packedProduct multiplies packed columns by c.N rows of a weight, starting at row n0.
func packedProduct(tier *vec.Tier, c vec.Cut, w *host.Matrix, n0 int) {
	band := w.Data.Slice(n0, n0+c.N)
	switch w.Data.DType {
	case kernel.BF16:
		tier.TiledBF16(c, host.Bytes(band), band.Stride)
	case kernel.E4M3:
		row, within := w.ScaleRow(n0)
		tier.TiledFP8(c, host.Bytes(band), band.Stride, host.F32(w.Scale)[row*w.Scale.Stride:], w.Scale.Stride,
			within)
	case kernel.E2M1x2:
		tier.TiledFP4(c, host.Bytes(band), band.Stride, host.Bytes(w.Scale.Slice(n0, n0+c.N)), w.Scale.Stride)
	}
}
