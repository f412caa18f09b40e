package cpu

import (
	"fmt"

	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
	"sparrow/layout"
)

// Adjacent query rows of a tile share one pass over their keys, denseBlock keys at a time. The keys and values of one
// head in a block, and the scores of a tile, then stay in the L2 cache. On the matrix unit keys and values are split
// into two bfloat16 parts once for all rows of a tile, so that larger tiles are faster.
const (
	denseTile     = 128 // rows of a tile without a matrix unit
	denseTileMost = 512 // maximum rows of a tile on a matrix unit; fewer if workers would be idle
	denseTileFew  = 64
	denseBlock    = 256
)

// denseWork is dense attention divided into heads and tiles of rows.
type denseWork struct {
	kernel.DenseArgs
	onTiles bool // tiles are computed on the matrix unit
	tile    int  // rows of a tile
	tiles   int  // number of tiles of rows
}

// cut chooses the number of rows of a tile. The result does not depend on it.
func (w *denseWork) cut(workers int) {
	w.tile = denseTile
	if w.onTiles {
		w.tile = denseTileMost
		for w.tile > denseTileFew && w.Dims.Heads*ceilDiv(w.Q.Rows, w.tile) < 4*workers {
			w.tile /= 2
		}
	}
	w.tiles = ceilDiv(w.Q.Rows, w.tile)
}

// denseAttend computes causal attention over expanded keys and values.
func denseAttend(d *Device, a kernel.DenseArgs) error {
	if err := onlyF32("dense attend", a.Out, a.Q, a.KV, a.Rope); err != nil {
		return err
	}
	for r := range a.Q.Rows {
		s, n := int(host.RowI32(a.Start, r)[0]), int(host.RowI32(a.Lens, r)[0])
		if s < 0 || s+n > a.KV.Rows {
			return fmt.Errorf("%w: dense attend: row %d attends to keys %d to %d, but there are only "+
				"%d", kernel.ErrArgument, r, s,
				s+n, a.KV.Rows)
		}
	}
	w := denseWork{DenseArgs: a, onTiles: d.tier.AttendsDense(a.Dims.V)}
	w.cut(d.pool.Limit())
	return each(d, w.tiles*a.Dims.Heads, w, denseTileHead)
}

// denseTileHead computes attention for one head of one tile of rows. If a tile has rows of several requests, it
// computes one request after the other.
func denseTileHead(d *Device, w *denseWork, worker, item int) {
	h, tile := item/w.tiles, item%w.tiles
	last := min((tile+1)*w.tile, w.Q.Rows)
	for r0 := tile * w.tile; r0 < last; {
		start := host.RowI32(w.Start, r0)[0]
		r1 := r0 + 1
		for r1 < last && host.RowI32(w.Start, r1)[0] == start {
			r1++
		}
		if w.onTiles {
			denseOnTiles(d, w, worker, h, r0, r1, int(start))
		} else {
			denseRows(d, w, worker, h, r0, r1, int(start))
		}
		r0 = r1
	}
}

// denseOnTiles computes attention for one head of rows r0 to r1 on the matrix unit. The keys of these rows start at one
// row of KV.
func denseOnTiles(d *Device, w *denseWork, worker, h, r0, r1, start int) {
	dims := w.Dims
	q := w.Q.Slice(r0, r1).Columns(h*dims.QK(), (h+1)*dims.QK())
	out := w.Out.Slice(r0, r1).Columns(h*dims.V, (h+1)*dims.V)
	seen := grow(&d.scratch[worker].seen, r1-r0)
	for r := range seen {
		seen[r] = max(0, int(host.RowI32(w.Lens, r0+r)[0]))
	}
	at := h * (dims.Nope + dims.V)
	kv, rope := w.KV.Slice(start, w.KV.Rows), w.Rope.Slice(start, w.KV.Rows)
	keys, values := kv.Columns(at, at+dims.Nope), kv.Columns(at+dims.Nope, at+dims.Nope+dims.V)
	d.tier.AttendDense(vec.DenseHead{Nope: dims.Nope, Rope: dims.Rope, V: dims.V, Scale: w.Scale, Seen: seen,
		Q: host.F32(q), LdQ: q.Stride, Out: host.F32(out), LdOut: out.Stride, Keys: host.F32(keys),
		LdKeys: keys.Stride, Ropes: host.F32(rope), LdRopes: rope.Stride, Values: host.F32(values),
		LdValues: values.Stride})
}

// denseRows computes attention for one head of rows r0 to r1. The keys of these rows start at one row of KV.
func denseRows(d *Device, w *denseWork, worker, h, r0, r1, start int) {
	dims, rows := w.Dims, r1-r0
	q := w.Q.Slice(r0, r1).Columns(h*dims.QK(), (h+1)*dims.QK())
	out := w.Out.Slice(r0, r1).Columns(h*dims.V, (h+1)*dims.V)
	s := &d.scratch[worker]
	st := newSoftmax(s, rows, denseBlock)
	rope := grow(&s.rows, rows*denseBlock)
	longest := 0
	for r := range rows {
		clear(host.RowF32(out, r))
		longest = max(longest, int(host.RowI32(w.Lens, r0+r)[0]))
	}
	at := h * (dims.Nope + dims.V)
	for s0 := 0; s0 < longest; s0 += denseBlock {
		n := min(denseBlock, longest-s0)
		block := w.KV.Slice(start+s0, start+s0+n)
		keys, values := block.Columns(at, at+dims.Nope), block.Columns(at+dims.Nope, at+dims.Nope+dims.V)
		turned := w.Rope.Slice(start+s0, start+s0+n)
		d.tier.MatMulF32(st.scores, denseBlock, host.F32(q), q.Stride, rows, host.F32(keys), keys.Stride, n, dims.Nope)
		qr := q.Columns(dims.Nope, dims.QK())
		d.tier.MatMulF32(rope, denseBlock, host.F32(qr), qr.Stride, rows, host.F32(turned), turned.Stride, n, dims.Rope)
		if n == denseBlock {
			d.tier.Axpy(st.scores[:rows*denseBlock], 1, rope[:rows*denseBlock])
		} else {
			for r := range rows {
				d.tier.Axpy(st.scores[r*denseBlock:][:n], 1, rope[r*denseBlock:][:n])
			}
		}
		least := n // number of keys of the block that every row attends to
		for r := range rows {
			p := st.scores[r*denseBlock:][:n]
			seen := max(0, min(int(host.RowI32(w.Lens, r0+r)[0])-s0, n))
			if seen > 0 {
				st.fold(d, p[:seen], host.RowF32(out, r), r, w.Scale)
			}
			clear(p[seen:])
			least = min(least, seen)
		}
		if finite(d.tier, values.Slice(least, n)) {
			// Masked keys have weight zero, so adding them does not change the sums.
			d.tier.AccumulateF32(host.F32(out), out.Stride, st.scores, denseBlock, rows, host.F32(values),
				values.Stride, n, dims.V)
			continue
		}
		for r := range rows {
			if seen := min(int(host.RowI32(w.Lens, r0+r)[0])-s0, n); seen > 0 {
				p := st.scores[r*denseBlock:][:seen]
				d.tier.AccumulateF32(host.RowF32(out, r), dims.V, p, denseBlock, 1, host.F32(values), values.Stride,
					seen, dims.V)
			}
		}
	}
	for r := range rows {
		st.finish(d, host.RowF32(out, r), r)
	}
}

// finite reports whether a tensor holds neither infinities nor NaN, whose products with a weight of zero would be NaN.
func finite(tier *vec.Tier, t kernel.Tensor) bool {
	for r := range t.Rows {
		row := host.RowF32(t, r)
		for len(row) > 0 {
			n := min(len(row), len(zeros))
			if tier.Dot(row[:n], zeros[:n]) != 0 {
				return false
			}
			row = row[n:]
		}
	}
	return true
}

// zeros is a vector of factors of 0.
var zeros [layout.LatentDim]float32
