package cpu

import (
	"fmt"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/cpu/vec"
	"sparrow/kernel/host"
)

// Tiles of a product: a worker takes a band of rows of the weight and a tile of rows of x at a time. Sizes change nothing in the result.
const (
	bandRows = 64
	tileRows = 128
	// x as it is: a band of whole panels, of six rows or four.
	plainBand = 96
	// Packed columns: a band is eight blocks of the tiles, a tile the rows that they take at once. Where the weight streams through, bands are long;
	// see longBand.
	packedBand     = 256
	packedBandFew  = 64
	packedTileRows = 256
)

// multiplyWork is one product cut into tiles.
type multiplyWork struct {
	kernel.MultiplyArgs
	columns *vec.Columns // x packed, or nil to take it as it is
	band    int          // weight rows of a tile
	bands   int
	tile    int // rows of x of a tile
	tiles   int
}

// cut divides the product among workers.
func (w *multiplyWork) cut(workers int) {
	w.band, w.tile = plainBand, tileRows
	switch {
	case w.columns != nil && w.X.Rows <= 2*vec.GroupRows:
		w.band = longBand(w.W.Out(), workers)
		if workers > 1 && ceilDiv(w.W.Out(), w.band) < 2*workers {
			w.band = packedBandFew / 2
		}
	case w.columns != nil:
		w.band = packedBand
		tiles := ceilDiv(w.X.Rows, packedTileRows)
		w.tile = ceilDiv(w.X.Rows, tiles*2*vec.GroupRows) * 2 * vec.GroupRows // of equal size
		for w.band > packedBandFew && ceilDiv(w.W.Out(), w.band)*ceilDiv(w.X.Rows, w.tile) < 4*workers {
			w.band /= 2
		}
	case w.X.Rows <= 4:
		// Few rows: the weight streams through once, and narrow bands share it evenly among the workers.
		w.band = 16
	}
	w.bands, w.tiles = ceilDiv(w.W.Out(), w.band), ceilDiv(w.X.Rows, w.tile)
}

// longBand is the rows of a band of weights that stream through, of so many in all: one for a single worker, two for each of several, whole
// units of what the kernels for few rows take at once. They fetch what they multiply next, and every band begins without that.
func longBand(rows, workers int) int {
	bands := 1
	if workers > 1 {
		bands = 2 * workers
	}
	return max(1, ceilDiv(rows, bands*packedBandFew)) * packedBandFew
}

// Multiply multiplies by a stored weight.
func (d *Device) Multiply(a kernel.MultiplyArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	if err := onlyF32("multiply", a.Out, a.X); err != nil {
		return err
	}
	if err := readable(a.W); err != nil {
		return err
	}
	w := multiplyWork{MultiplyArgs: a}
	if d.packs(a.W) {
		w.columns = &d.columns
		if err := d.packRows(w.columns, a.X, orderFor(a.W)); err != nil {
			return err
		}
	}
	w.cut(d.pool.Workers())
	return d.multiply.run(d, w.bands*w.tiles, w, (*Device).multiplyTile)
}

// readable rejects weights this backend has no product for.
func readable(w kernel.Weight) error {
	if w.Data.DType == kernel.E4M3 && (w.BlockRows != 128 || w.BlockCols != 128) {
		return fmt.Errorf("%w: e4m3 weights in blocks of %d x %d, supported are 128 x 128", kernel.ErrUnsupported, w.BlockRows, w.BlockCols)
	}
	return nil
}

// multiplyTile computes one tile. Neighbouring items share a tile of x: its rows fill half of the second cache, and the kernels fetch weights
// ahead but not x.
func (d *Device) multiplyTile(w *multiplyWork, worker, item int) {
	n0, m0 := item%w.bands*w.band, item/w.bands*w.tile
	n1, m1 := min(n0+w.band, w.W.Out()), min(m0+w.tile, w.X.Rows)
	out := w.Out.Slice(m0, m1).Columns(n0, n1)
	if w.columns != nil {
		d.packedProduct(vec.Cut{Y: host.F32(out), Ldy: out.Stride, X: w.columns, M0: m0, M1: m1, N: n1 - n0, Add: w.Accumulate}, w.W, n0)
		return
	}
	x := w.X.Slice(m0, m1)
	y, ldy := host.F32(out), out.Stride
	if w.Accumulate {
		y, ldy = grow(&d.scratch[worker].tile, (m1-m0)*(n1-n0)), n1-n0
	}
	d.product(worker, product{y: y, ldy: ldy, x: host.F32(x), ldx: x.Stride, m: m1 - m0}, w.W, n0, n1)
	if w.Accumulate {
		for m := range m1 - m0 {
			to := host.RowF32(out, m)
			for n, v := range y[m*ldy:][:ldy] {
				to[n] += v
			}
		}
	}
}

// product is the left side and the result of a product: y [m, n] and x [m, k].
type product struct {
	y   []float32
	ldy int
	x   []float32
	ldx int
	m   int
}

// product computes y = x times rows n0 to n1 of a weight, transposed.
func (d *Device) product(worker int, p product, w kernel.Weight, n0, n1 int) {
	k := w.In()
	band := w.Data.Slice(n0, n1)
	switch w.Data.DType {
	case kernel.F32:
		d.tier.MatMulF32(p.y, p.ldy, p.x, p.ldx, p.m, host.F32(band), band.Stride, n1-n0, k)
	case kernel.BF16:
		d.tier.MatMulBF16(p.y, p.ldy, p.x, p.ldx, p.m, host.Bytes(band), band.Stride, n1-n0, k)
	case kernel.E4M3:
		s := host.F32(w.Scale)
		d.tier.MatMulFP8(p.y, p.ldy, p.x, p.ldx, p.m, host.Bytes(band), band.Stride, n1-n0, k, s[n0/128*w.Scale.Stride:], w.Scale.Stride, n0%128)
	default:
		wide := grow(&d.scratch[worker].rows, (n1-n0)*k)
		widenBand(wide, w, n0, n1)
		d.tier.MatMulF32(p.y, p.ldy, p.x, p.ldx, p.m, wide, k, n1-n0, k)
	}
}

// accumulate adds x times rows n0 to n1 of a weight, not transposed, to y: y[m] += sum over n of x[m][n] * w[n].
func (d *Device) accumulate(worker int, p product, w kernel.Weight, n0, n1 int) {
	c := w.In()
	band := w.Data.Slice(n0, n1)
	switch w.Data.DType {
	case kernel.F32:
		d.tier.AccumulateF32(p.y, p.ldy, p.x, p.ldx, p.m, host.F32(band), band.Stride, n1-n0, c)
	case kernel.BF16:
		d.tier.AccumulateBF16(p.y, p.ldy, p.x, p.ldx, p.m, host.Bytes(band), band.Stride, n1-n0, c)
	case kernel.E4M3:
		s := host.F32(w.Scale)
		d.tier.AccumulateFP8(p.y, p.ldy, p.x, p.ldx, p.m, host.Bytes(band), band.Stride, n1-n0, c, s[n0/128*w.Scale.Stride:], w.Scale.Stride, n0%128)
	default:
		wide := grow(&d.scratch[worker].rows, (n1-n0)*c)
		widenBand(wide, w, n0, n1)
		d.tier.AccumulateF32(p.y, p.ldy, p.x, p.ldx, p.m, wide, c, n1-n0, c)
	}
}

// widenHalf widens f16 rows. Released checkpoints hold bf16; this path is for the rare re-export.
func widenHalf(out []float32, t kernel.Tensor) {
	for r := range t.Rows {
		for c, v := range host.U16(t.Slice(r, r+1)) {
			out[r*t.Cols+c] = num.FromF16(v)
		}
	}
}

// Absorb moves queries into latent space, one head and a tile of rows at a time.
func (d *Device) Absorb(a kernel.AbsorbArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	if err := onlyF32("absorb", a.Out, a.Q); err != nil {
		return err
	}
	if err := readable(a.KVB); err != nil {
		return err
	}
	return d.absorb.run(d, a.Dims.Heads*ceilDiv(a.Q.Rows, tileRows), a, (*Device).absorbTile)
}

func (d *Device) absorbTile(a *kernel.AbsorbArgs, worker, item int) {
	tiles := ceilDiv(a.Q.Rows, tileRows)
	h, m0 := item/tiles, item%tiles*tileRows
	m1 := min(m0+tileRows, a.Q.Rows)
	q := a.Q.Slice(m0, m1).Columns(h*a.Dims.QK(), (h+1)*a.Dims.QK())
	out := a.Out.Slice(m0, m1).Columns(h*a.Dims.Row(), (h+1)*a.Dims.Row())
	for m := range m1 - m0 {
		to := host.RowF32(out, m)
		clear(to[:a.Dims.Latent])
		copy(to[a.Dims.Latent:], host.RowF32(q, m)[a.Dims.Nope:])
	}
	n0 := h * (a.Dims.Nope + a.Dims.V)
	d.accumulate(worker, product{y: host.F32(out), ldy: out.Stride, x: host.F32(q), ldx: q.Stride, m: m1 - m0}, a.KVB, n0, n0+a.Dims.Nope)
}

// Expand moves attention outputs out of latent space, one head and a tile of rows at a time.
func (d *Device) Expand(a kernel.ExpandArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	if err := onlyF32("expand", a.Out, a.U); err != nil {
		return err
	}
	if err := readable(a.KVB); err != nil {
		return err
	}
	return d.expand.run(d, a.Dims.Heads*ceilDiv(a.U.Rows, tileRows), a, (*Device).expandTile)
}

func (d *Device) expandTile(a *kernel.ExpandArgs, worker, item int) {
	tiles := ceilDiv(a.U.Rows, tileRows)
	h, m0 := item/tiles, item%tiles*tileRows
	m1 := min(m0+tileRows, a.U.Rows)
	u := a.U.Slice(m0, m1).Columns(h*a.Dims.Latent, (h+1)*a.Dims.Latent)
	out := a.Out.Slice(m0, m1).Columns(h*a.Dims.V, (h+1)*a.Dims.V)
	n0 := h*(a.Dims.Nope+a.Dims.V) + a.Dims.Nope
	d.product(worker, product{y: host.F32(out), ldy: out.Stride, x: host.F32(u), ldx: u.Stride, m: m1 - m0}, a.KVB, n0, n0+a.Dims.V)
}
