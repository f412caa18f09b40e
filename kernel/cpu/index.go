package cpu

import (
	"fmt"
	"math"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/host"
	"sparrow/layout"
)

// IndexQuery prepares indexer queries.
func (d *Device) IndexQuery(a kernel.IndexQueryArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	if err := onlyF32("index query", a.Q); err != nil {
		return err
	}
	return d.eachRow(rowWork{rows: a.Q.Rows, query: a, do: (*Device).indexQueryRow})
}

func (d *Device) indexQueryRow(w *rowWork, _, r int) {
	const dim = layout.IndexDim
	a := &w.query
	q, angles := host.RowF32(a.Q, r), host.RowF32(a.Angles, r)
	out, weights := host.RowF32(a.W, r), host.RowF32(a.Weights, r)
	fold := 1 / math.Sqrt(float64(a.Heads)*dim)
	for h := range a.Heads {
		head := q[h*dim:][:dim]
		rotate(head[a.Offset:][:layout.RopeDim], angles, a.Pairing, false)
		if a.Hadamard {
			num.Hadamard128(head)
		}
		scale := float32(1)
		if a.Out.DType == kernel.E4M3 {
			scale = num.QuantE4M3(host.Bytes(a.Out.Slice(r, r+1))[h*dim:][:dim], head, a.Scales)
		} else {
			copy(host.RowF32(a.Out, r)[h*dim:], head)
		}
		out[h] = float32(float64(weights[h]) * fold * float64(scale))
	}
}

// keyBlock is how many keys one item scores: a few pages, so that one row of a long context keeps every worker busy.
const keyBlock = 512

// scoreWork is a score matrix cut into rows and blocks of keys.
type scoreWork struct {
	kernel.ScoreArgs
	blocks int
}

// Scores computes index scores.
func (d *Device) Scores(a kernel.ScoreArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	longest, err := checkScores(&a)
	if err != nil {
		return err
	}
	w := scoreWork{ScoreArgs: a, blocks: ceilDiv(longest, keyBlock)}
	return d.scores.run(d, a.Q.Rows*w.blocks, w, (*Device).scoreBlock)
}

// checkScores verifies once that every key lies in the pool, so that workers cannot fail, and finds the longest row.
func checkScores(a *kernel.ScoreArgs) (longest int, err error) {
	lens := host.I32(a.Lens)
	for r := range a.Q.Rows {
		n := int(lens[r*a.Lens.Stride])
		if n <= a.SkipUpTo {
			continue
		}
		longest = max(longest, n)
		if n > a.Out.Cols {
			return 0, fmt.Errorf("%w: scores: row %d has %d keys, out has %d columns", kernel.ErrArgument, r, n, a.Out.Cols)
		}
		if !a.Table.Given() {
			if s := int(host.RowI32(a.Start, r)[0]); s < 0 || s+n > a.Keys.PageTokens {
				return 0, fmt.Errorf("%w: scores: row %d sees keys %d to %d of %d", kernel.ErrArgument, r, s, s+n, a.Keys.PageTokens)
			}
			continue
		}
		if err := checkTable("scores", a.Table, a.TableRow, r, ceilDiv(n, a.Keys.PageTokens), a.Keys.Pages()); err != nil {
			return 0, err
		}
	}
	return longest, nil
}

// checkTable verifies the first n pages of a row's table.
func checkTable(op string, table, tableRow kernel.Tensor, r, n, pages int) error {
	t := int(host.RowI32(tableRow, r)[0])
	if t < 0 || t >= table.Rows || n > table.Cols {
		return fmt.Errorf("%w: %s: row %d needs %d pages of table row %d, the page table is %v", kernel.ErrArgument, op, r, n, t, table)
	}
	for _, p := range host.RowI32(table, t)[:n] {
		if p < 0 || int(p) >= pages {
			return fmt.Errorf("%w: %s: row %d refers to page %d of %d", kernel.ErrArgument, op, r, p, pages)
		}
	}
	return nil
}

// scoreBlock scores one block of keys for one row.
func (d *Device) scoreBlock(w *scoreWork, worker, item int) {
	r, s0 := item/w.blocks, item%w.blocks*keyBlock
	n := int(host.RowI32(w.Lens, r)[0])
	if n <= w.SkipUpTo || s0 >= n {
		return
	}
	s1 := min(s0+keyBlock, n)
	out := host.RowF32(w.Out, r)
	if !w.Table.Given() {
		start := int(host.RowI32(w.Start, r)[0])
		d.scorePage(w, worker, r, out[s0:s1], host.Page(w.Keys, 0), start+s0)
		return
	}
	table := host.RowI32(w.Table, int(host.RowI32(w.TableRow, r)[0]))
	for s := s0; s < s1; {
		slot := s % w.Keys.PageTokens
		end := min(s+w.Keys.PageTokens-slot, s1)
		d.scorePage(w, worker, r, out[s:end], host.Page(w.Keys, int(table[s/w.Keys.PageTokens])), slot)
		s = end
	}
}

// scorePage scores neighbouring keys of one page, from token slot on.
func (d *Device) scorePage(w *scoreWork, worker, r int, out []float32, page []byte, slot int) {
	const dim = layout.IndexDim
	n, weights := len(out), host.RowF32(w.W, r)
	if w.Keys.Layout == layout.IndexPage132 {
		scales := page[w.Keys.PageTokens*dim:]
		d.tier.IndexScoresFP8(out, host.Bytes(w.Q.Slice(r, r+1)), weights, page[slot*dim:][:n*dim], scales[4*slot:][:4*n], w.Heads, n)
		return
	}
	keys := grow(&d.scratch[worker].rows, n*dim)
	for i := range n {
		layout.IndexF32{}.Decode(keys[i*dim:][:dim], page, w.Keys.PageTokens, slot+i)
	}
	dots := grow(&d.scratch[worker].scores, w.Heads*n)
	d.tier.MatMulF32(dots, n, host.RowF32(w.Q, r), dim, w.Heads, keys, dim, n, dim)
	clear(out)
	for h, weight := range weights {
		for i, v := range dots[h*n:][:n] {
			out[i] += weight * max(v, 0)
		}
	}
}

// Select chooses the best scored positions of every row.
func (d *Device) Select(a kernel.SelectArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	lens := host.I32(a.Lens)
	for r := range a.Out.Rows {
		if n := int(lens[r*a.Lens.Stride]); n > a.Out.Cols && (!a.Scores.Given() || n > a.Scores.Cols) {
			return fmt.Errorf("%w: select: row %d has %d keys, scores are %v", kernel.ErrArgument, r, n, a.Scores)
		}
	}
	return d.eachRow(rowWork{rows: a.Out.Rows, pick: a, do: func(d *Device, w *rowWork, worker, r int) {
		out := host.RowI32(w.pick.Out, r)
		n := max(int(host.RowI32(w.pick.Lens, r)[0]), 0)
		if n > len(out) {
			n = d.best(out, host.RowF32(w.pick.Scores, r)[:n], worker)
		} else {
			for p := range n {
				out[p] = int32(p)
			}
		}
		for i := n; i < len(out); i++ {
			out[i] = -1
		}
	}})
}

// rank maps a score to an unsigned number of the same order; NaN and minus infinity, never chosen, become 0.
func rank(v float32) uint32 {
	b := math.Float32bits(v)
	if v != v || b == 0xff800000 {
		return 0
	}
	if b == 0x80000000 {
		b = 0 // minus zero equals zero
	}
	if b>>31 != 0 {
		return ^b
	}
	return b | 1<<31
}

// best writes the positions of the len(out) best scores in ascending order and returns how many there are. Three passes over histograms of
// 11, 11 and 10 bits of the rank find the last score that is kept; a fourth collects.
func (d *Device) best(out []int32, scores []float32, worker int) int {
	hist := grow(&d.scratch[worker].hist, 2048)
	need := len(out) // still to be chosen among ranks that share the prefix
	var prefix, mask uint32
	for _, shift := range [3]uint{21, 10, 0} {
		clear(hist)
		bits := uint32(2047)
		if shift == 0 {
			bits = 1023
		}
		for _, v := range scores {
			if k := rank(v); k&mask == prefix {
				hist[k>>shift&bits]++
			}
		}
		bin := int(bits)
		for bin > 0 && int(hist[bin]) < need {
			need -= int(hist[bin])
			bin--
		}
		prefix |= uint32(bin) << shift
		mask |= bits << shift
	}
	// prefix is now the rank of the last kept score, and need how many of that very rank are kept, lowest position first.
	n := 0
	for p, v := range scores {
		k := rank(v)
		if k == 0 || k < prefix {
			continue
		}
		if k == prefix {
			if need == 0 {
				continue
			}
			need--
		}
		out[n] = int32(p)
		n++
	}
	return n
}

// Locate turns positions into slots or gathered rows.
func (d *Device) Locate(a kernel.LocateArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	for r := range a.Positions.Rows {
		in, out := host.RowI32(a.Positions, r), host.RowI32(a.Out, r)
		if a.Table.Given() {
			t := int(host.RowI32(a.TableRow, r)[0])
			if t < 0 || t >= a.Table.Rows {
				return fmt.Errorf("%w: locate: row %d uses table row %d of %d", kernel.ErrArgument, r, t, a.Table.Rows)
			}
			table := host.RowI32(a.Table, t)
			for i, p := range in {
				out[i] = -1
				if p < 0 {
					continue
				}
				if int(p)/a.PageTokens >= len(table) {
					return fmt.Errorf("%w: locate: position %d is outside the page table %v", kernel.ErrArgument, p, a.Table)
				}
				out[i] = table[int(p)/a.PageTokens]*int32(a.PageTokens) + p%int32(a.PageTokens)
			}
			continue
		}
		offset := host.RowI32(a.Offset, r)[0]
		for i, p := range in {
			if out[i] = -1; p >= 0 {
				out[i] = p + offset
			}
		}
	}
	return nil
}
