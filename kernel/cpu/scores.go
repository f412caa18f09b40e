package cpu

import (
	"fmt"

	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
	"sparrow/layout"
)

// scoreRows is the number of adjacent rows over the same gathered keys that share the widening of a block of keys.
// Scoring a row costs about as much as the widening, so more rows would gain little, and fewer rows leave more items
// to divide among workers. Over a paged cache the caller sets the number of rows that share the keys
// (kernel.ScoreArgs.NextN).
const scoreRows = 32

// scoreItem is a part of the work: the scores of rows r0 to r1, which read the same keys, over keys s0 to s1.
type scoreItem struct{ r0, r1, s0, s1 int }

// scores computes index scores.
func scores(d *Device, a kernel.ScoreArgs) error {
	if err := checkScores(&a); err != nil {
		return err
	}
	d.scoreItems = d.scoreItems[:0]
	for r := 0; r < a.Q.Rows; {
		end := sharing(&a, r)
		longest := 0
		for i := r; i < end; i++ {
			longest = max(longest, scored(&a, i))
		}
		for s := 0; s < longest; s += vec.IndexBlockKeys {
			d.scoreItems = append(d.scoreItems, scoreItem{r, end, s, min(s+vec.IndexBlockKeys, longest)})
		}
		r = end
	}
	return each(d, len(d.scoreItems), a, scoreBlock)
}

// sharing returns the end of the range of rows from r on that share blocks of keys.
func sharing(a *kernel.ScoreArgs, r int) int {
	if a.Table.Given() {
		return r + max(a.NextN, 1)
	}
	end := r + 1
	for end < min(a.Q.Rows, r+scoreRows) && host.RowI32(a.Start, r)[0] == host.RowI32(a.Start, end)[0] {
		end++
	}
	return end
}

// scored returns how many keys of a row get scores.
func scored(a *kernel.ScoreArgs, r int) int {
	if n := int(host.RowI32(a.Lens, r)[0]); n > a.SkipUpTo {
		return max(n, 0)
	}
	return 0
}

// checkScores verifies once that every key is in the pool, and that rows with shared keys have one table, so that
// workers cannot fail.
func checkScores(a *kernel.ScoreArgs) error {
	for r := range a.Q.Rows {
		if n := a.NextN; n > 1 {
			first := r / n * n
			if t, want := host.RowI32(a.TableRow, r)[0], host.RowI32(a.TableRow, first)[0]; t != want {
				return fmt.Errorf("%w: scores: rows %d and %d of a group of %d have table rows %d and %d, want the "+
					"same", kernel.ErrArgument,
					first, r, n, want, t)
			}
		}
		n := scored(a, r)
		if n == 0 {
			continue
		}
		if n > a.Out.Cols {
			return fmt.Errorf("%w: scores: row %d has %d keys, but out has %d columns", kernel.ErrArgument, r, n,
				a.Out.Cols)
		}
		if !a.Table.Given() {
			if s := int(host.RowI32(a.Start, r)[0]); s < 0 || s+n > a.Keys.PageTokens {
				return fmt.Errorf("%w: scores: row %d attends to keys %d to %d, but there are only "+
					"%d", kernel.ErrArgument, r, s,
					s+n, a.Keys.PageTokens)
			}
			continue
		}
		if a.Blocks.Given() {
			if n > a.Blocks.Cols*a.BlockKeys {
				return fmt.Errorf("%w: scores: row %d has %d keys, which do not fit %d blocks of %d",
					kernel.ErrArgument, r, n, a.Blocks.Cols,
					a.BlockKeys)
			}
			n = host.BlockKey(a, r, n-1) + 1 // blocks are ascending
		}
		if err := checkTable("scores", a.Table, a.TableRow, r, ceilDiv(n, a.Keys.PageTokens),
			a.Keys.Pages()); err != nil {
			return err
		}
	}
	return nil
}

// checkTable verifies the first n pages of a row's table.
func checkTable(op string, table, tableRow kernel.Tensor, r, n, pages int) error {
	t := int(host.RowI32(tableRow, r)[0])
	if t < 0 || t >= table.Rows || n > table.Cols {
		return fmt.Errorf("%w: %s: row %d needs %d pages of table row %d, which the page table %v does not have",
			kernel.ErrArgument, op, r, n, t, table)
	}
	for _, p := range host.RowI32(table, t)[:n] {
		if p < 0 || int(p) >= pages {
			return fmt.Errorf("%w: %s: row %d refers to page %d, outside the %d pages", kernel.ErrArgument, op, r, p,
				pages)
		}
	}
	return nil
}

// scoreBlock scores one block of keys for the rows that share it.
func scoreBlock(d *Device, a *kernel.ScoreArgs, worker, item int) {
	it, s := d.scoreItems[item], &d.scratch[worker]
	switch {
	case a.Keys.Layout == layout.IndexPage132:
		scoreFP8(d, a, s, it)
	case fp4Keys(a.Keys) && d.tier.ScoresFP4():
		scoreFP4(d, a, s, it)
	default:
		scoreExact(d, a, s, it)
	}
}

func scoreFP8(d *Device, a *kernel.ScoreArgs, s *scratch, it scoreItem) {
	if s.index == nil {
		s.index = vec.NewIndexBlock(d.tier)
	}
	s.index.Reset(it.r1 - it.r0)
	eachRun(a, it, func(page []byte, slot, at, n int) {
		scales := page[a.Keys.PageTokens*layout.IndexDim:]
		s.index.Append(page[slot*layout.IndexDim:], scales[slot*layout.IndexScaleBytes:], n)
	})
	eachScored(a, it, func(r int, out []float32) {
		s.index.Scores(out, host.Bytes(a.Q.Slice(r, r+1)), host.RowF32(a.W, r), a.Heads)
	})
}

func scoreFP4(d *Device, a *kernel.ScoreArgs, s *scratch, it scoreItem) {
	if s.indexFP4 == nil {
		s.indexFP4 = vec.NewIndexBlockFP4(d.tier)
	}
	s.indexFP4.Reset(it.r1 - it.r0)
	eachRun(a, it, func(page []byte, slot, at, n int) {
		codes, exponents := layout.IndexFP4{}.Tokens(page, a.Keys.PageTokens, slot, n)
		s.indexFP4.Append(codes, exponents, n)
	})
	eachScored(a, it, func(r int, out []float32) {
		s.indexFP4.Scores(out, host.RowF32(a.Q, r), host.RowF32(a.W, r), a.Heads)
	})
}

// scoreExact scores keys that float32 represents exactly.
func scoreExact(d *Device, a *kernel.ScoreArgs, s *scratch, it scoreItem) {
	const dim = layout.IndexDim
	keys := grow(&s.rows, (it.s1-it.s0)*dim)
	eachRun(a, it, func(page []byte, slot, at, n int) {
		for i := range n {
			decodeKey(a.Keys, keys[(at+i)*dim:][:dim], page, slot+i)
		}
	})
	eachScored(a, it, func(r int, out []float32) {
		n := len(out)
		dots := grow(&s.scores, a.Heads*n)
		d.tier.MatMulF32(dots, n, host.RowF32(a.Q, r), dim, a.Heads, keys, dim, n, dim)
		clear(out)
		for h, weight := range host.RowF32(a.W, r) {
			for i, v := range dots[h*n:][:n] {
				out[i] += weight * max(v, 0)
			}
		}
	})
}

// eachScored visits the rows of an item that get scores.
func eachScored(a *kernel.ScoreArgs, it scoreItem, visit func(r int, out []float32)) {
	for r := it.r0; r < it.r1; r++ {
		if n := min(it.s1, scored(a, r)) - it.s0; n > 0 {
			visit(r, host.RowF32(a.Out, r)[it.s0:][:n])
		}
	}
}

// eachRun visits the keys of an item page by page: n keys from token slot of a page on are keys from at on of the item.
func eachRun(a *kernel.ScoreArgs, it scoreItem, visit func(page []byte, slot, at, n int)) {
	if !a.Table.Given() {
		start := int(host.RowI32(a.Start, it.r0)[0])
		visit(host.Page(a.Keys, 0), start+it.s0, 0, it.s1-it.s0)
		return
	}
	if a.Blocks.Given() {
		for s := it.s0; s < it.s1; {
			key := host.BlockKey(a, it.r0, s)
			n := min(a.BlockKeys-s%a.BlockKeys, it.s1-s)
			visit(keyPage(a, it.r0, key), key%a.Keys.PageTokens, s-it.s0, n)
			s += n
		}
		return
	}
	for s := it.s0; s < it.s1; {
		slot := s % a.Keys.PageTokens
		end := min(s+a.Keys.PageTokens-slot, it.s1)
		visit(keyPage(a, it.r0, s), slot, s-it.s0, end-s)
		s = end
	}
}

// keyPage returns the page that contains key s of a row.
func keyPage(a *kernel.ScoreArgs, r, s int) []byte {
	table := host.RowI32(a.Table, int(host.RowI32(a.TableRow, r)[0]))
	return host.Page(a.Keys, int(table[s/a.Keys.PageTokens]))
}

// fp4Keys reports whether a pool has FP4 keys.
func fp4Keys(p kernel.Pool) bool {
	return p.Layout == layout.IndexPage68 || p.Layout == layout.V41Index68
}

// decodeKey widens a key of a layout whose values float32 represents exactly.
func decodeKey(p kernel.Pool, key []float32, page []byte, token int) {
	if fp4Keys(p) {
		layout.IndexFP4{}.Decode(key, page, p.PageTokens, token)
		return
	}
	layout.IndexF32{}.Decode(key, page, p.PageTokens, token)
}
