package cpu

import (
	"fmt"
	"math"

	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
	"sparrow/layout"
)

// attendChunk is the number of entries of a row's list in one partial softmax. Chunks are joined in order, whichever
// worker computed them, so that a row has the same bits on one worker and on many. A chunk costs about ten times as
// much as joining it.
const attendChunk = 512

// rowsTogether is the number of adjacent rows one worker processes together, chunk by chunk. Their first chunks
// select much the same cache rows, as do their second ones, so that rows fetched for one query are still in the CPU
// cache for the next. The result does not depend on it.
const rowsTogether = 8

// headTile is the number of heads that kernels take together: a row is shared by whole tiles of them.
const headTile = 16

// sparseWork is sparse attention cut into rows, or into chunks of rows and heads.
type sparseWork struct {
	kernel.SparseArgs
	chunks   int // chunks of every row if workers share a row; else 0
	heads    int // heads of a chunk if workers share a row; the last chunks of a row have fewer
	runs     int // runs of adjacent chunks that workers compute if they share a row
	together int // rows of an item, where it is whole rows
}

// sparseAttend computes attention over selected rows.
func sparseAttend(d *Device, a kernel.SparseArgs) error {
	if err := onlyF32("sparse attend", a.Out, a.Q); err != nil {
		return err
	}
	w := sparseWork{SparseArgs: a}
	d.outside.Store(-1)
	if err := divideSparse(d, &w); err != nil {
		return err
	}
	if d.outside.Load() < 0 {
		return nil
	}
	for r := range a.Q.Rows {
		for _, slot := range host.Counted(a.Indices, a.Lens, r) {
			if int(slot) >= a.Pool.Slots() {
				return fmt.Errorf("%w: sparse attend: row %d refers to slot %d, outside the pool of %d slots",
					kernel.ErrArgument, r, slot, a.Pool.Slots())
			}
		}
	}
	return nil
}

// divideSparse distributes rows, or chunks of them, to the workers.
func divideSparse(d *Device, w *sparseWork) error {
	if w.Q.Rows >= 2*d.pool.Limit() || d.pool.Limit() == 1 {
		// With more heads than a tile, the queries take the CPU cache space of the rows they share.
		w.together = min(rowsTogether, max(1, rowsTogether*headTile/w.Heads), max(1, w.Q.Rows/(4*d.pool.Limit())))
		return each(d, ceilDiv(w.Q.Rows, w.together), *w, sparseRows)
	}
	// Too few rows for all workers: they share the chunks of a row, and where these are too few its heads, and the
	// partial results are joined afterwards.
	w.chunks = ceilDiv(w.Indices.Cols, attendChunk)
	d.partials.take(w.Q.Rows*w.chunks, w.Heads)
	chunks := 0
	for r := range w.Q.Rows {
		chunks += w.chunksOf(r)
	}
	w.heads = ceilDiv(ceilDiv(w.Heads, headTile), ceilDiv(d.pool.Limit(), max(1, chunks))) * headTile
	list := d.shared[:0]
	for r := range w.Q.Rows {
		for h := 0; h < w.Heads; h += w.heads {
			for c := range w.chunksOf(r) {
				list = append(list, rowChunk{r: r, head: h, chunk: c})
			}
		}
	}
	d.shared, w.runs = list, min(len(list), d.pool.Limit())
	if err := each(d, w.runs, *w, sparseRun); err != nil {
		return err
	}
	return each(d, w.Q.Rows*ceilDiv(w.Heads, w.heads), *w, sparseJoin)
}

// partial is the result of one chunk of a row: for every head the largest score, the sum of weights relative to it,
// and the weighted sum of rows [heads, 512]. A sum of zero means that the chunk has no valid entry.
type partial struct{ top, sum, out []float32 }

// partials is the memory of several partial results.
type partials struct {
	mem   []float32
	heads int
}

func (p *partials) take(n, heads int) {
	p.mem, p.heads = grow(&p.mem, n*heads*(layout.LatentDim+2)), heads
}

func (p *partials) at(i int) partial {
	size := p.heads * (layout.LatentDim + 2)
	m := p.mem[i*size:][:size]
	return partial{top: m[:p.heads], sum: m[p.heads:][:p.heads], out: m[2*p.heads:]}
}

// some returns the part for the heads [from, to).
func (p partial) some(from, to int) partial {
	return partial{top: p.top[from:to], sum: p.sum[from:to], out: p.out[from*layout.LatentDim : to*layout.LatentDim]}
}

// sparseRows attends with a few rows, chunk by chunk.
func sparseRows(d *Device, w *sparseWork, worker, item int) {
	s := &d.scratch[worker]
	s.part.take(1, w.Heads)
	s.hasQuery = [rowsTogether]bool{}
	r0, r1 := item*w.together, min((item+1)*w.together, w.Q.Rows)
	var joins [rowsTogether]join
	state := grow(&s.join, 2*w.Heads*w.together)
	for r := r0; r < r1; r++ {
		joins[r-r0] = w.newJoin(state[2*w.Heads*(r-r0):], r, 0, w.Heads)
	}
	c := rowChunk{r: r0}
	w.locate(d, &s.places, c)
	for more := w.Indices.Cols > 0; more; {
		next := rowChunk{r: c.r + 1, chunk: c.chunk, turn: c.turn + 1}
		if next.r == r1 {
			next = rowChunk{r: r0, chunk: c.chunk + 1}
		}
		w.locate(d, &s.ahead, next)
		sparseChunk(d, w, s, c, s.part.at(0))
		joins[c.turn].add(d, s.part.at(0))
		s.places, s.ahead = s.ahead, s.places
		c, more = next, next.chunk*attendChunk < w.Indices.Cols
	}
	for r := r0; r < r1; r++ {
		joins[r-r0].finish(d, w, r)
	}
}

// sparseRun attends over a range of a row's chunks. While it computes one chunk, the rows of the next are prefetched.
func sparseRun(d *Device, w *sparseWork, worker, item int) {
	s := &d.scratch[worker]
	run := d.shared[item*len(d.shared)/w.runs : (item+1)*len(d.shared)/w.runs]
	w.locate(d, &s.places, run[0])
	for i, c := range run {
		if i == 0 || run[i-1].r != c.r || run[i-1].head != c.head {
			s.hasQuery[0] = false
		}
		if s.ahead = s.ahead[:0]; i+1 < len(run) {
			w.locate(d, &s.ahead, run[i+1])
		}
		to := d.partials.at(c.r*w.chunks + c.chunk)
		sparseChunk(d, w, s, c, to.some(c.head, min(c.head+w.heads, w.Heads)))
		s.places, s.ahead = s.ahead, s.places
	}
}

// sparseJoin joins the chunks of some heads of a row that workers shared.
func sparseJoin(d *Device, w *sparseWork, worker, item int) {
	groups := ceilDiv(w.Heads, w.heads)
	r, from := item/groups, item%groups*w.heads
	to := min(from+w.heads, w.Heads)
	j := w.newJoin(grow(&d.scratch[worker].join, 2*(to-from)), r, from, to)
	for c := range w.chunksOf(r) {
		j.add(d, d.partials.at(r*w.chunks+c).some(from, to))
	}
	j.finish(d, w, r)
}

// rowChunk is one chunk of a row, from one of its heads on. The row is one of those that a worker takes together.
type rowChunk struct{ r, head, chunk, turn int }

// locate lists the byte offsets of a chunk's rows in their pool. Slots outside the pool are skipped and recorded.
func (w *sparseWork) locate(d *Device, to *[]int, c rowChunk) {
	entries := host.Counted(w.Indices, w.Lens, c.r)
	list, slots, row := (*to)[:0], uint(w.Pool.Slots()), w.rowBytes()
	for _, slot := range entries[min(c.chunk*attendChunk, len(entries)):min((c.chunk+1)*attendChunk, len(entries))] {
		switch {
		case uint(slot) < slots:
			list = append(list, w.rowAt(int(slot), row))
		case slot >= 0:
			d.outside.Store(slot)
		}
	}
	*to = list
}

// chunksOf returns the number of chunks of a row's own entries.
func (w *sparseWork) chunksOf(r int) int {
	return ceilDiv(len(host.Counted(w.Indices, w.Lens, r)), attendChunk)
}

// rowBytes returns the size of a row: main layouts are rows, one after the other.
func (w *sparseWork) rowBytes() int { return w.Pool.Mem.Cols / w.Pool.PageTokens }

// sparseChunk attends with the heads in `to` over a chunk of the row's entries, whose offsets are in s.places; the
// offsets in s.ahead are prefetched.
func sparseChunk(d *Device, w *sparseWork, s *scratch, c rowChunk, to partial) {
	if len(s.places) == 0 {
		clear(to.sum)
		return
	}
	if chunkOnTiles(d, w, s, c, to) || chunkInVectors(d, w, s, c, to) {
		return
	}
	st := softmax{top: to.top, sum: to.sum, scores: grow(&s.scores, len(to.top)*attendBlock)}
	st.reset()
	clear(to.out)
	width := w.width()
	rows := grow(&s.rows, attendBlock*width)
	q, row := w.query(c), w.rowBytes()
	for i := 0; i < len(s.places); i += attendBlock {
		n := min(attendBlock, len(s.places)-i)
		for k, at := range s.places[i:][:n] {
			widenRow(d.tier, rows[k*width:][:width], w.Pool.Layout, host.Bytes(w.Pool.Mem)[at:][:row])
		}
		sparseBlock(d, st, w.Scale, widened{q: q, rows: rows, width: width, n: n}, to.out)
	}
}

// query returns the queries of a chunk, from its first head on.
func (w *sparseWork) query(c rowChunk) []float32 { return host.RowF32(w.Q, c.r)[c.head*w.width():] }

// width returns the number of values of a row, and of a query's head.
func (w *sparseWork) width() int { return layout.Width(w.Pool.Layout) }

// rowAt returns where a row of the pool starts.
func (w *sparseWork) rowAt(slot, rowBytes int) int {
	if w.Pool.Mem.Stride == w.Pool.PageTokens*rowBytes {
		return slot * rowBytes
	}
	return slot/w.Pool.PageTokens*w.Pool.Mem.Stride + slot%w.Pool.PageTokens*rowBytes
}

// chunkOnTiles attends to the rows in s.places on tiles, if the tier has tiles and they can hold the rows.
func chunkOnTiles(d *Device, w *sparseWork, s *scratch, c rowChunk, to partial) bool {
	var format vec.RowFormat
	switch w.Pool.Layout {
	case layout.BF16Row1152:
		format = vec.RowBF16
	case layout.FP8Row656:
		format = vec.RowBlock
	case layout.FP8Row576:
		format = vec.RowRaw
	default:
		return false // float32 rows keep their precision, rows without a rotated part have no tiles
	}
	if s.latent == nil {
		if s.latent = vec.NewLatentAttend(d.tier, vec.LatentRow); s.latent == nil {
			return false
		}
	}
	if !s.hasQuery[c.turn] {
		s.latent.Query(c.turn, w.query(c)[:len(to.top)*layout.RowDim], len(to.top), w.Scale, format)
		s.hasQuery[c.turn] = true
	}
	if !s.latent.Attend(c.turn, host.Bytes(w.Pool.Mem), s.places, s.ahead, format) {
		return false
	}
	s.latent.Result(to.out, to.top, to.sum)
	return true
}

// vectorRows has the layouts whose rows are read without being widened first.
var vectorRows = map[layout.Kind]vec.RowFormat{layout.BF16Row1152: vec.RowBF16, layout.BF16Row1024: vec.RowBF16,
	layout.FP8Row656: vec.RowBlock, layout.FP8Row528: vec.RowBlock, layout.FP8Row576: vec.RowRaw,
	layout.F32Row2304: vec.RowF32, layout.F32Row2048: vec.RowF32}

// chunkInVectors attends to the rows in s.places in float32. It returns false if the tier cannot read the layout so.
func chunkInVectors(d *Device, w *sparseWork, s *scratch, c rowChunk, to partial) bool {
	attend, width := &s.vectors, w.width()
	if width == layout.LatentDim {
		attend = &s.vectorsShort
	}
	if *attend == nil {
		if *attend = vec.NewFloatAttend(d.tier, width); *attend == nil {
			return false
		}
	}
	format, ok := vectorRows[w.Pool.Layout]
	if !ok {
		return false
	}
	if !s.hasQuery[c.turn] {
		(*attend).Query(c.turn, w.query(c)[:len(to.top)*width], len(to.top), w.Scale)
		s.hasQuery[c.turn] = true
	}
	(*attend).Attend(c.turn, host.Bytes(w.Pool.Mem), s.places, s.ahead, format)
	(*attend).Result(to.out, to.top, to.sum)
	return true
}

// widened is n rows [n, width] and the queries [heads, width] that attend to them.
type widened struct {
	q, rows  []float32
	width, n int
}

// sparseBlock folds widened rows into the outputs of all heads.
func sparseBlock(d *Device, st softmax, scale float32, x widened, out []float32) {
	const latent = layout.LatentDim
	heads := len(st.top)
	p := st.scores
	d.tier.MatMulF32(p, attendBlock, x.q, x.width, heads, x.rows, x.width, x.n, x.width)
	for h := range heads {
		st.fold(d, p[h*attendBlock:][:x.n], out[h*latent:][:latent], h, scale)
	}
	d.tier.AccumulateF32(out, latent, p, attendBlock, heads, x.rows, x.width, x.n, latent)
}

// join holds the outputs of a row, or of some of its heads, while chunks are added to them.
type join struct {
	softmax
	first int       // head
	out   []float32 // [heads, 512]
}

// newJoin starts the heads [from, to) of row r without any chunk; state has two numbers per head.
func (w *sparseWork) newJoin(state []float32, r, from, to int) join {
	n := to - from
	j := join{softmax: softmax{top: state[:n], sum: state[n:][:n]}, first: from,
		out: host.RowF32(w.Out, r)[from*layout.LatentDim : to*layout.LatentDim]}
	j.reset()
	clear(j.out)
	return j
}

// add joins a chunk: both sides are rescaled to the larger of their largest scores.
func (j *join) add(d *Device, p partial) {
	const latent = layout.LatentDim
	for h, sum := range p.sum {
		if sum == 0 {
			continue
		}
		out, top := j.out[h*latent:][:latent], max(j.top[h], p.top[h])
		if top > j.top[h] && j.sum[h] != 0 {
			keep := float32(math.Exp(float64(j.top[h] - top)))
			j.sum[h] *= keep
			scaleBy(d.tier, out, keep)
		}
		weight := float32(math.Exp(float64(p.top[h] - top)))
		j.top[h] = top
		j.sum[h] += sum * weight
		d.tier.Axpy(out, weight, p.out[h*latent:][:latent])
	}
}

func (j *join) finish(d *Device, w *sparseWork, r int) {
	for h := range j.top {
		lse, top := j.softmax.finish(d, j.out[h*layout.LatentDim:][:layout.LatentDim], h)
		if w.LSE.Given() {
			host.RowF32(w.LSE, r)[j.first+h] = lse
		}
		if w.Max.Given() {
			host.RowF32(w.Max, r)[j.first+h] = top
		}
	}
}
