package cpu

import (
	"fmt"
	"math"

	"sparrow/kernel"
	"sparrow/kernel/host"
	"sparrow/layout"
)

// attendBlock is how many keys attention takes at a time: 64 rows of 576 float32 stay in the second-level cache, and the running softmax is
// brought up to date once per block. The block a key falls into depends on its place in the row's own list, so results do not depend on
// other rows.
const attendBlock = 64

// sparseWork is sparse attention cut into rows and groups of heads.
type sparseWork struct {
	kernel.SparseArgs
	groups int
}

// SparseAttend computes attention over selected rows.
func (d *Device) SparseAttend(a kernel.SparseArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	if err := onlyF32("sparse attend", a.Out, a.Q); err != nil {
		return err
	}
	for r := range a.Q.Rows {
		for _, slot := range host.RowI32(a.Indices, r)[:entries(&a, r)] {
			if int(slot) >= a.Pool.Slots() {
				return fmt.Errorf("%w: sparse attend: row %d refers to slot %d of a pool of %d", kernel.ErrArgument, r, slot, a.Pool.Slots())
			}
		}
	}
	w := sparseWork{SparseArgs: a, groups: 1}
	if a.Q.Rows < d.pool.Workers() {
		// Too few rows for all workers: heads are shared out, at the cost of gathering a row's keys once per group.
		w.groups = min(a.Heads, ceilDiv(d.pool.Workers(), a.Q.Rows))
	}
	return d.sparse.run(d, a.Q.Rows*w.groups, w, (*Device).sparseRow)
}

// entries is how many leading entries of a row's indices count.
func entries(a *kernel.SparseArgs, r int) int {
	return min(max(int(host.RowI32(a.Lens, r)[0]), 0), a.Indices.Cols)
}

// sparseRow attends with one group of heads of one row.
func (d *Device) sparseRow(w *sparseWork, worker, item int) {
	const dim, latent = layout.RowDim, layout.LatentDim
	r, g := item/w.groups, item%w.groups
	h0, h1 := g*w.Heads/w.groups, (g+1)*w.Heads/w.groups
	heads := h1 - h0
	q := host.RowF32(w.Q, r)[h0*dim : h1*dim]
	out := host.RowF32(w.Out, r)[h0*latent : h1*latent]
	s := &d.scratch[worker]
	rows := grow(&s.rows, attendBlock*dim)
	state := newSoftmax(s, heads)
	clear(out)
	n := 0
	for _, slot := range host.RowI32(w.Indices, r)[:entries(&w.SparseArgs, r)] {
		if slot < 0 {
			continue
		}
		d.widenRow(rows[n*dim:][:dim], w.Pool, int(slot))
		if n++; n == attendBlock {
			d.sparseBlock(state, w, q, rows, out, n)
			n = 0
		}
	}
	if n > 0 {
		d.sparseBlock(state, w, q, rows, out, n)
	}
	for h := range heads {
		lse, top := state.finish(out[h*latent:][:latent], h)
		if w.LSE.Given() {
			host.RowF32(w.LSE, r)[h0+h] = lse
		}
		if w.Max.Given() {
			host.RowF32(w.Max, r)[h0+h] = top
		}
	}
}

// sparseBlock folds n widened rows into the outputs of all heads of a group.
func (d *Device) sparseBlock(st softmax, w *sparseWork, q, rows, out []float32, n int) {
	const dim, latent = layout.RowDim, layout.LatentDim
	heads := len(st.top)
	p := st.scores
	d.tier.MatMulF32(p, attendBlock, q, dim, heads, rows, dim, n, dim)
	for h := range heads {
		st.fold(d, p[h*attendBlock:][:n], out[h*latent:][:latent], h, w.Scale)
	}
	d.tier.AccumulateF32(out, latent, p, attendBlock, heads, rows, dim, n, latent)
}

// softmax is the running state of a block-wise softmax, one entry for each head or query row.
type softmax struct {
	top, sum []float32 // largest score so far, sum of exponentials relative to it
	scores   []float32 // [rows, attendBlock]
}

func newSoftmax(s *scratch, rows int) softmax {
	b := grow(&s.scores, rows*(attendBlock+2))
	st := softmax{top: b[:rows], sum: b[rows : 2*rows], scores: b[2*rows:]}
	for i := range st.top {
		st.top[i], st.sum[i] = float32(math.Inf(-1)), 0
	}
	return st
}

// fold turns one block of raw scores of row i into weights, and rescales what the row has gathered so far when the largest score grows.
func (st softmax) fold(d *Device, p, out []float32, i int, scale float32) {
	for j := range p {
		p[j] *= scale
	}
	top := max(st.top[i], d.tier.Max(p))
	if top > st.top[i] {
		keep := float32(math.Exp(float64(st.top[i] - top)))
		st.sum[i] *= keep
		for c := range out {
			out[c] *= keep
		}
		st.top[i] = top
	}
	st.sum[i] += d.tier.ExpSum(p, p, top)
}

// finish divides the gathered sum of row i by the sum of weights. A row that saw no key stays zero.
func (st softmax) finish(out []float32, i int) (lse, top float32) {
	if st.sum[i] == 0 {
		return float32(math.Inf(1)), st.top[i]
	}
	inv := 1 / st.sum[i]
	for c := range out {
		out[c] *= inv
	}
	return st.top[i] + float32(math.Log(float64(st.sum[i]))), st.top[i]
}

// denseTile is how many neighbouring query rows share one pass over their keys.
const denseTile = 16

// denseWork is dense attention cut into heads and tiles of rows.
type denseWork struct {
	kernel.DenseArgs
	tiles int
}

// DenseAttend computes causal attention over expanded keys and values.
func (d *Device) DenseAttend(a kernel.DenseArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	if err := onlyF32("dense attend", a.Out, a.Q, a.KV, a.Rope); err != nil {
		return err
	}
	for r := range a.Q.Rows {
		s, n := int(host.RowI32(a.Start, r)[0]), int(host.RowI32(a.Lens, r)[0])
		if s < 0 || s+n > a.KV.Rows {
			return fmt.Errorf("%w: dense attend: row %d sees keys %d to %d of %d", kernel.ErrArgument, r, s, s+n, a.KV.Rows)
		}
	}
	w := denseWork{DenseArgs: a, tiles: ceilDiv(a.Q.Rows, denseTile)}
	return d.dense.run(d, w.tiles*a.Dims.Heads, w, (*Device).denseTileHead)
}

// denseTileHead attends with one head of one tile of rows. Rows of several requests in a tile are taken request by request.
func (d *Device) denseTileHead(w *denseWork, worker, item int) {
	h, tile := item/w.tiles, item%w.tiles
	last := min((tile+1)*denseTile, w.Q.Rows)
	for r0 := tile * denseTile; r0 < last; {
		start := host.RowI32(w.Start, r0)[0]
		r1 := r0 + 1
		for r1 < last && host.RowI32(w.Start, r1)[0] == start {
			r1++
		}
		d.denseRows(w, worker, h, r0, r1, int(start))
		r0 = r1
	}
}

// denseRows attends with one head of rows r0 to r1, whose keys start at the same row of KV.
func (d *Device) denseRows(w *denseWork, worker, h, r0, r1, start int) {
	dims, rows := w.Dims, r1-r0
	q := w.Q.Slice(r0, r1).Columns(h*dims.QK(), (h+1)*dims.QK())
	out := w.Out.Slice(r0, r1).Columns(h*dims.V, (h+1)*dims.V)
	s := &d.scratch[worker]
	st := newSoftmax(s, rows)
	rope := grow(&s.rows, rows*attendBlock)
	longest := 0
	for r := range rows {
		clear(host.RowF32(out, r))
		longest = max(longest, int(host.RowI32(w.Lens, r0+r)[0]))
	}
	at := h * (dims.Nope + dims.V)
	for s0 := 0; s0 < longest; s0 += attendBlock {
		n := min(attendBlock, longest-s0)
		block := w.KV.Slice(start+s0, start+s0+n)
		keys, values := block.Columns(at, at+dims.Nope), block.Columns(at+dims.Nope, at+dims.Nope+dims.V)
		turned := w.Rope.Slice(start+s0, start+s0+n)
		d.tier.MatMulF32(st.scores, attendBlock, host.F32(q), q.Stride, rows, host.F32(keys), keys.Stride, n, dims.Nope)
		qr := q.Columns(dims.Nope, dims.QK())
		d.tier.MatMulF32(rope, attendBlock, host.F32(qr), qr.Stride, rows, host.F32(turned), turned.Stride, n, dims.Rope)
		for r := range rows {
			seen := min(int(host.RowI32(w.Lens, r0+r)[0])-s0, n)
			if seen <= 0 {
				continue
			}
			p := st.scores[r*attendBlock:][:seen]
			for j, v := range rope[r*attendBlock:][:seen] {
				p[j] += v
			}
			o := host.RowF32(out, r)
			st.fold(d, p, o, r, w.Scale)
			d.tier.AccumulateF32(o, dims.V, p, attendBlock, 1, host.F32(values), values.Stride, seen, dims.V)
		}
	}
	for r := range rows {
		st.finish(host.RowF32(out, r), r)
	}
}
