package cpu

import (
	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
)

// absorb projects queries into latent space, one head and a tile of rows at a time.
func absorb(d *Device, a kernel.AbsorbArgs) error {
	if err := onlyF32("absorb", a.Out, a.Q); err != nil {
		return err
	}
	w, err := host.Own("absorb", a.KVB)
	if err != nil {
		return err
	}
	headsAhead(d, w, keyRows, a.Q.Rows, a.Dims)
	return each(d, a.Dims.Heads*ceilDiv(a.Q.Rows, tileRows), a, absorbTile)
}

func absorbTile(d *Device, a *kernel.AbsorbArgs, worker, item int) {
	tiles := ceilDiv(a.Q.Rows, tileRows)
	h, m0 := item/tiles, item%tiles*tileRows
	m1 := min(m0+tileRows, a.Q.Rows)
	q := a.Q.Slice(m0, m1).Columns(h*a.Dims.QK(), (h+1)*a.Dims.QK())
	out := a.Out.Slice(m0, m1).Columns(h*a.Dims.Row(), (h+1)*a.Dims.Row())
	for m := range m1 - m0 {
		copy(host.RowF32(out, m)[a.Dims.Latent:], host.RowF32(q, m)[a.Dims.Nope:])
	}
	w, each := a.KVB.(*host.Matrix), a.Dims.Nope+a.Dims.V
	n0 := h * each
	p := product{y: host.F32(out), ldy: out.Stride, x: host.F32(q), ldx: q.Stride, m: m1 - m0}
	if absorbsOnTiles(d.tier, w, a.Dims) {
		ahead := each // the weights of the next head, which few rows take from memory
		if tiles > 1 || h == a.Dims.Heads-1 {
			ahead = 0
		}
		band := w.Data.Slice(n0, n0+a.Dims.Nope)
		d.tier.TiledLatent(p.y, p.ldy, p.x, p.ldx, p.m, host.Bytes(band), band.Stride, a.Dims.Nope, ahead)
		return
	}
	for m := range m1 - m0 {
		clear(host.RowF32(out, m)[:a.Dims.Latent])
	}
	d.accumulate(worker, p, w, n0, n0+a.Dims.Nope)
}

// absorbsOnTiles reports whether queries are multiplied by the weight on tiles, for any number of rows.
func absorbsOnTiles(tier *vec.Tier, w *host.Matrix, dims kernel.LatentDims) bool {
	return tier.Tiled() && w.Data.DType == kernel.BF16 && dims.Latent == vec.LatentDim &&
		dims.Nope%vec.LatentDepth == 0 && dims.Nope <= vec.LatentRows
}

// expand projects attention outputs out of latent space, one head and a tile of rows at a time.
func expand(d *Device, a kernel.ExpandArgs) error {
	if err := onlyF32("expand", a.Out, a.U); err != nil {
		return err
	}
	w, err := host.Own("expand", a.KVB)
	if err != nil {
		return err
	}
	headsAhead(d, w, valueRows, a.U.Rows, a.Dims)
	return each(d, a.Dims.Heads*ceilDiv(a.U.Rows, tileRows), a, expandTile)
}

func expandTile(d *Device, a *kernel.ExpandArgs, worker, item int) {
	tiles := ceilDiv(a.U.Rows, tileRows)
	h, m0 := item/tiles, item%tiles*tileRows
	m1 := min(m0+tileRows, a.U.Rows)
	u := a.U.Slice(m0, m1).Columns(h*a.Dims.Latent, (h+1)*a.Dims.Latent)
	out := a.Out.Slice(m0, m1).Columns(h*a.Dims.V, (h+1)*a.Dims.V)
	n0 := h*(a.Dims.Nope+a.Dims.V) + a.Dims.Nope
	p := product{y: host.F32(out), ldy: out.Stride, x: host.F32(u), ldx: u.Stride, m: m1 - m0}
	d.product(worker, p, a.KVB.(*host.Matrix), n0, n0+a.Dims.V)
}
