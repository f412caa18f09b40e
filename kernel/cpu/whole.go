package cpu

import (
	"sparrow/internal/device/host"
	"sparrow/kernel"
	"sparrow/layout"
)

// Attention over every key of a sequence. A row's keys are divided into groups of chunks, at positions that depend only
// on the row. Chunks of a group are joined in order, and then the groups of a row. A row's result is bitwise equal
// whichever worker computes a group and whatever other rows are computed with it.
const (
	groupChunks = 8
	groupKeys   = groupChunks * attendChunk
	// groupBytes limits the memory of groups that wait to be joined. Rows that exceed it are computed afterwards.
	groupBytes = 64 << 20
)

// wholeWork is attention of a range of rows over all their keys.
type wholeWork struct {
	sparseWork
	table, tableRow kernel.Tensor
	groups          int // number of groups of the longest row
	first           int // first row of those that are computed now
}

// wholeItem is one group of keys of adjacent rows of a sequence, for some of the heads.
type wholeItem struct{ first, rows, head, group int }

// latentAttend computes attention over every key of a sequence.
func latentAttend(d *Device, a kernel.LatentArgs) error {
	if err := onlyF32("latent attend", a.Out, a.Q); err != nil {
		return err
	}
	if err := host.CheckLatent(&a); err != nil {
		return err
	}
	w := wholeWork{table: a.Table, tableRow: a.TableRow, sparseWork: sparseWork{SparseArgs: kernel.SparseArgs{
		Out: a.Out, Q: a.Q, Pool: a.Pool, Lens: a.Lens, Heads: a.Heads, Scale: a.Scale}}}
	longest := 0
	for r := range a.Q.Rows {
		longest = max(longest, w.seen(r))
	}
	w.groups = max(ceilDiv(longest, groupKeys), 1)
	row := w.groups * a.Heads * (layout.LatentDim + 2) * 4
	for first, n := 0, max(groupBytes/row, 1); first < a.Q.Rows; first += n {
		if err := wholeRows(d, &w, first, min(first+n, a.Q.Rows)); err != nil {
			return err
		}
	}
	return nil
}

// seen returns the number of keys of a row.
func (w *wholeWork) seen(r int) int { return max(int(host.RowI32(w.Lens, r)[0]), 0) }

// wholeRows computes attention of the rows [first, last).
func wholeRows(d *Device, w *wholeWork, first, last int) error {
	w.together = min(rowsTogether, max(2, rowsTogether*headTile/w.Heads))
	d.partials.take((last-first)*w.groups, w.Heads)
	list := w.items(d.items[:0], first, last)
	w.heads = w.Heads
	if n := len(list); n > 0 && n < 2*d.pool.Limit() { // too few items for all workers: divide the heads too
		w.heads = ceilDiv(ceilDiv(w.Heads, headTile), ceilDiv(2*d.pool.Limit(), n)) * headTile
		for h := w.heads; h < w.Heads; h += w.heads {
			for _, x := range list[:n] {
				x.head = h
				list = append(list, x)
			}
		}
	}
	d.items, w.first = list, first
	if err := each(d, len(list), *w, wholeGroup); err != nil {
		return err
	}
	return each(d, last-first, *w, wholeJoin)
}

// items lists the groups of rows [first, last). Adjacent rows of one sequence form one item.
func (w *wholeWork) items(list []wholeItem, first, last int) []wholeItem {
	for r := first; r < last; {
		end, seen := r+1, w.seen(r)
		for end < last && end-r < w.together && host.RowI32(w.tableRow, end)[0] == host.RowI32(w.tableRow, r)[0] {
			seen = max(seen, w.seen(end))
			end++
		}
		for g := range ceilDiv(seen, groupKeys) {
			list = append(list, wholeItem{first: r, rows: end - r, group: g})
		}
		r = end
	}
	return list
}

// wholeGroup computes attention of adjacent rows over a group of keys, for some heads, chunk by chunk: a chunk is still
// in the CPU cache when the next row reads it.
func wholeGroup(d *Device, w *wholeWork, worker, item int) {
	s, x := &d.scratch[worker], d.items[item]
	s.hasQuery = [rowsTogether]bool{}
	places, ahead := s.places, s.ahead
	defer func() { s.places, s.ahead = places, ahead }()
	head := min(x.head+w.heads, w.Heads)
	s.part.take(1, head-x.head)
	longest := 0
	for r := x.first; r < x.first+x.rows; r++ {
		longest = max(longest, w.seen(r))
		p := w.partial(d, r, x.group).some(x.head, head)
		softmax{top: p.top, sum: p.sum}.reset()
		clear(p.out)
	}
	end := min(longest, (x.group+1)*groupKeys)
	now, next := w.places(&s.chunk[0], x.first, x.group*groupKeys, end), []int(nil)
	for from := x.group * groupKeys; from < end; from += attendChunk {
		next = w.places(&s.chunk[from/attendChunk%2^1], x.first, from+attendChunk, end)
		for i := range x.rows {
			r := x.first + i
			s.places, s.ahead = now[:clampInt(w.seen(r)-from, len(now))], next
			part := s.part.at(0)
			sparseChunk(d, &w.sparseWork, s, rowChunk{r: r, head: x.head, turn: i}, part)
			p := w.partial(d, r, x.group).some(x.head, head)
			j := join{softmax: softmax{top: p.top, sum: p.sum}, out: p.out}
			j.add(d, part)
		}
		now = next
	}
}

// clampInt returns n, limited to the range from 0 to most.
func clampInt(n, most int) int { return max(0, min(n, most)) }

// partial returns the memory for the partial result of a group of row r.
func (w *wholeWork) partial(d *Device, r, group int) partial {
	return d.partials.at((r-w.first)*w.groups + group)
}

// places lists the byte offsets in the pool of a chunk of keys of a row's sequence.
func (w *wholeWork) places(to *[]int, r, from, end int) []int {
	list, row, tokens := (*to)[:0], w.rowBytes(), w.Pool.PageTokens
	pages := host.RowI32(w.table, int(host.RowI32(w.tableRow, r)[0]))
	for s := from; s < min(from+attendChunk, end); s++ {
		list = append(list, int(pages[s/tokens])*w.Pool.Mem.Stride+s%tokens*row)
	}
	*to = list
	return list
}

// wholeJoin joins the partial results of a row's groups into its output.
func wholeJoin(d *Device, w *wholeWork, worker, item int) {
	r := w.first + item
	j := w.newJoin(grow(&d.scratch[worker].join, 2*w.Heads), r, 0, w.Heads)
	for g := range ceilDiv(w.seen(r), groupKeys) {
		j.add(d, w.partial(d, r, g))
	}
	j.finish(d, &w.sparseWork, r)
}
