//go:build !purego

package vec

import (
	"math"
	"unsafe"
)

// A unit of a streaming kernel is blockW weight rows of at most unitBlocks blocks of codes: 8192 columns, a quarter of
// a megabyte. A call processes units with streamBlocks blocks in all, which takes less than a tenth of a millisecond.
const (
	unitBlocks   = 64
	streamBlocks = 256
	// streamRun is the number of bytes that each prefetch cursor advances in 32 rows.
	streamRun = 256
	// The eight prefetch cursors have different offsets within a page. With rows of 4096 weights, which are common,
	// they would otherwise have one offset and read the same memory banks. Some bytes between the cursors are left out,
	// and the hardware prefetches them: the longer offset leaves out one thirtieth of units of longUnit bytes.
	skewShort = 64
	skewLong  = 9 * 64
	longUnit  = 128 << 10
)

// stream multiplies few groups of columns by e4m3 weights that are read once from memory: after the first group the
// weights are in the L2 cache.
func (ts *tileScratch) stream(c *Cut, w *panelWeights) {
	for j := 0; j < c.N; {
		u := w.units(c, j)
		rows := u.rows
		for m := c.M0; m < c.M1; m += c.X.rows {
			group := *c
			group.M0, group.M1, group.Y = m, min(m+c.X.rows, c.M1), c.Y[(m-c.M0)*c.Ldy:]
			switch {
			case u.rows == 0:
				rows = ts.streamRest(&group, w, j, 0, w.block(j, c.N-j))
			case u.depth == w.k:
				ts.streamUnits(&group, w, u)
				ts.foldUnits(&group, u)
			default:
				ts.streamUnits(&group, w, u)
				ts.spreadSums(c.X, u.rows)
				ts.streamRest(&group, w, j, u.depth, u.rows)
			}
		}
		j += rows
	}
}

// streamUnits describes weight rows for streaming kernels, in units of `each` rows, and their columns that are whole
// blocks.
type streamUnits struct {
	row, rows, each, depth int
	folded                 bool
}

// units returns the rows, starting at row j, that a kernel processes in one call; there may be none. The scales of a
// unit are in one row of scales, and either all scales are multiplied into the weights or none. If the columns are not
// whole blocks, units are processed one at a time.
func (w *panelWeights) units(c *Cut, j int) streamUnits {
	u := streamUnits{row: j, each: blockW, depth: w.k / scaleBlock * scaleBlock, folded: w.folded(j)}
	most := min(streamBlocks/min(u.depth/scaleBlock, unitBlocks),
		sumsBytes/(u.each*c.X.tiles()*c.X.lineBytes()))
	if u.depth < w.k || c.M1-c.M0 > c.X.rows {
		most = 1
	}
	for n := 0; n < most && w.streams(j+u.rows, u.each, c.N-j-u.rows); n++ {
		if w.newScales(j+u.rows) && w.folded(j+u.rows) != u.folded {
			break
		}
		u.rows += u.each
	}
	return u
}

// newScales reports whether a row is the first of the rows that share its scales.
func (w *panelWeights) newScales(row int) bool { return (w.scale.Row0+row)%scaleBlock == 0 }

// streams reports whether the left rows, starting at row, are enough for a unit of n rows, and the n rows share their
// scales.
func (w *panelWeights) streams(row, n, left int) bool {
	return left >= n && (w.scale.Row0+row)%scaleBlock <= scaleBlock-n
}

// streamUnits multiplies the units. It divides them along k into pieces of equal size, of at most unitBlocks blocks.
func (ts *tileScratch) streamUnits(c *Cut, w *panelWeights, u streamUnits) {
	clear(ts.sums[:u.rows*c.X.tiles()*c.X.lineBytes()])
	blocks := u.depth / scaleBlock
	pieces := (blocks + unitBlocks - 1) / unitBlocks
	each := (blocks + pieces - 1) / pieces * scaleBlock
	for from := 0; from < u.depth; from += each {
		size := min(u.depth-from, each)
		ts.aheadOf(c, u, aheadRows{first: uintptr(at(w.b, u.row*w.ld)), ld: w.ld, from: from, size: size, all: u.depth})
		ts.streamDepth(c, w, u, from, size)
	}
}

// aheadRows describes the bytes [from, from+size) of the rows of units that a kernel processes.
type aheadRows struct {
	first           uintptr // address of the first row
	ld              int
	from, size, all int
}

// aheadOf makes the kernel prefetch, with each unit, the corresponding bytes of the next unit, and with the last unit
// the bytes that are processed after this call: the following bytes, or the first bytes of the next rows or, after the
// last rows of c, of the next product. If there are none, the current bytes are prefetched again.
func (ts *tileScratch) aheadOf(c *Cut, u streamUnits, r aheadRows) {
	current := r.first + uintptr(r.from)
	last := current + uintptr((u.rows-u.each)*r.ld)
	switch {
	case r.from+r.size < r.all:
		last = current + uintptr(r.size)
	case u.row+u.rows < c.N:
		last = r.first + uintptr(u.rows*r.ld)
	case len(c.Next) > 0:
		last = uintptr(at(c.Next, 0))
	}
	next := last
	if u.rows > u.each {
		next = current + uintptr(u.each*r.ld)
	}
	ts.fetchAhead(next, r.ld, u.each, r.size)
	ts.flow.lastAhead = last
}

// streamRest multiplies weight rows, starting at row j, through the panel, from a column on. It returns the number of
// rows.
func (ts *tileScratch) streamRest(c *Cut, w *panelWeights, j, from, rows int) int {
	for r := 0; r < rows; r += blockW {
		b := tileBlock{m: c.M0, end: c.M1, row: j + r, rows: min(blockW, rows-r),
			sums: ts.sums[r/tileSide*c.X.tiles()*tileBytes:], folded: w.folded(j)}
		ts.fill.ahead = w.bytes(tileK)
		for k := from; k < w.k; k += tileK {
			b.k, b.depth = k, min(tileK, w.k-k)
			w.fill(ts, b.row, b.rows, k, b.depth, b.folded)
			ts.panelTimes(c, w, b)
		}
		ts.foldBlock(c, b)
	}
	return rows
}

// spreadSums moves the lines of the sums of rows to the line stride of the panel's sums.
func (ts *tileScratch) spreadSums(x *Columns, rows int) {
	line := x.lineBytes()
	for r := rows*x.tiles() - 1; r > 0 && line < pairLanes; r-- {
		copy(ts.sums[r*pairLanes:][:line], ts.sums[r*line:])
	}
}

// foldUnits writes the sums of units to y.
func (ts *tileScratch) foldUnits(c *Cut, u streamUnits) {
	a := &ts.fold
	a.ldy, a.add, a.mask = 4*c.Ldy, flag(c.Add), 1<<tileSide-1
	a.rows, a.tiles, a.line = c.M1-c.M0, u.rows/tileSide, c.X.lineBytes()
	a.nextSums, a.nextY = tileSide*c.X.tiles()*a.line, pairLanes
	a.sums, a.y = at(ts.sums, 0), at(c.Y, u.row)
	runKernel(c.X.folds().strided, a)
}

// fetchAhead makes the kernel prefetch the first run bytes of rows that are ld bytes apart. Eight cursors that advance
// line by line give more memory bandwidth than 64 rows in parallel.
func (ts *tileScratch) fetchAhead(first uintptr, ld, rows, run int) {
	a, skew := &ts.flow, skewShort
	if rows*ld >= longUnit {
		skew = skewLong
	}
	a.ahead, a.ldAhead = first, rows/8*ld+skew
	a.backAhead = 64 - 4*a.ldAhead
	a.runAhead = (run + streamRun - 1) / streamRun * streamRun
	a.leftAhead, a.jumpAhead = a.runAhead, ld-a.runAhead
	a.unitAhead = rows * ld
}

// streamDepth adds the products of columns [from, from+depth) of units to their sums.
func (ts *tileScratch) streamDepth(c *Cut, w *panelWeights, u streamUnits, from, depth int) {
	a, x := &ts.flow, c.X
	ts.flowShapes(x)
	a.w, a.ldw, a.nextW = at(w.b, u.row*w.ld+from), w.ld, u.each*w.ld-depth
	a.x = at(x.mem[:cap(x.mem)], c.M0/x.rows*x.groupBytes()+from/stepDepth*x.stepBytes())
	a.panel, a.sums, a.scales = at(ts.panel, 0), at(ts.sums, 0), unsafe.Pointer(&ts.scales[1])
	a.units, a.blocks = u.rows/u.each, depth/scaleBlock
	a.left, a.leftSums = a.blocks, 1+a.blocks
	for i := range a.units {
		row, to := u.row+i*u.each, ts.scales[1+i*a.blocks:][:a.blocks]
		if i > 0 && !w.newScales(row) {
			copy(to, ts.scales[1+(i-1)*a.blocks:])
			continue
		}
		ts.streamScales(to, w.scale.row(row)[from/scaleBlock:][:a.blocks], u.folded)
	}
	runKernel(streamKernels[x.rows][flag(!u.folded)], a)
}

// flowShapes sets the tile shapes of a streaming kernel.
func (ts *tileScratch) flowShapes(x *Columns) {
	s := &ts.flow.shapes
	for t := range 8 {
		s.set(t, tileSide, x.lineBytes())
	}
	s.set(tileW, tileSide, pairLanes)
	s.set(tileW+1, tileSide, pairLanes)
}

// streamScales writes the scales of the kernel's blocks to `to`.
func (ts *tileScratch) streamScales(to []streamScale, scales []float32, folded bool) {
	tables := tablesFP8()
	for i, s := range scales {
		power := 0
		if folded {
			power = int(math.Float32bits(s)>>23) - 127
		}
		to[i] = streamScale{table: unsafe.Pointer(&tables[power+maxPower]), scale: s}
	}
}

// streamKernels is indexed by the rows of a group, then by 0 for scales multiplied into the weights and 1 for separate
// scales.
var streamKernels = map[int]*[2]func(*streamArgs){
	1:         {stream1, stream1scaled},
	fewRows:   {stream4, stream4scaled},
	halfRows:  {stream8, stream8scaled},
	GroupRows: {stream16, stream16scaled},
}
