//go:build !purego

package vec

import "unsafe"

// Blocks of a tiled product. A panel of weights stays in the nearest cache while
// a block of columns passes by; these, at the panel's depth, stay in the second
// cache with the sums of bandW rows.
const (
	blockX = 480 // columns: rows of bfloat16, or half as many of float32
	bandW  = 4 * blockW
	// directRows is the most rows of x that take bfloat16 weights from where
	// they lie.
	directRows = 2 * GroupRows
	// directSteps bounds one call over weights that come from memory, directAgain
	// one whose weights are then needed for a second group of columns: 64 kB.
	directSteps = 256
	directAgain = 32
	// ownAhead is the bytes of a row from which on the processor fetches ahead
	// better by itself: a page.
	ownAhead = 4096
)

// tileScratch is the memory one call works in.
type tileScratch struct {
	tiles  tileArgs
	flow   streamArgs
	tables [streamBlocks]unsafe.Pointer
	fill   fillArgs
	pack   packArgs
	fold   foldArgs
	cols   Columns

	// One after the other: the streaming kernels rely on it.
	panel []byte // [tileSteps, 2, 16, 64]
	block []byte // [8, 16, 16] float32
	sums  []byte // [bandW/blockW, blockX, 32] float32
}

const (
	sumsBytes    = bandW * blockX * 4
	scratchBytes = 8 * tileBytes
)

var tileScratches recycler[tileScratch]

// ready allocates the buffers of a new scratch.
func (ts *tileScratch) ready() {
	if ts.panel != nil {
		return
	}
	mem := alignedBytes(tileSteps*panelStep + scratchBytes + sumsBytes)
	ts.panel, mem = mem[:tileSteps*panelStep], mem[tileSteps*panelStep:]
	ts.block, ts.sums = mem[:scratchBytes], mem[scratchBytes:]
}

// giveBackTiles drops the pointers into the caller's memory and returns ts.
func giveBackTiles(ts *tileScratch) {
	ts.tiles.w, ts.tiles.x, ts.fold.y = nil, nil, nil
	ts.flow.w, ts.flow.x, ts.flow.scales = nil, nil, nil
	tileScratches.put(ts)
}

func tiledBF16(c Cut, w []byte, ldw int) {
	tiled(&c, &panelWeights{format: panelBF16, b: w, ld: 2 * ldw, k: c.X.k})
}

func tiledFP8(c Cut, w []byte, ldw int, s blockScale) {
	tiled(&c, &panelWeights{format: panelFP8, b: w, ld: ldw, k: c.X.k, scale: s})
}

func tiledFP4(c Cut, w []byte, ldw int, scale []byte, ldScale int) {
	tiled(&c, &panelWeights{format: panelFP4, b: w, ld: ldw, k: c.X.k, scales: scale, ldScale: ldScale})
}

// tiled computes a part of a product. Whatever the way, a sum is taken in steps
// of 32 along k, by one tile, and between calls it waits in memory as it is. The
// sums of the parts of a float32 are added at the end.
func tiled(c *Cut, w *panelWeights) {
	ts := tileScratches.get()
	defer giveBackTiles(ts)
	ts.ready()
	switch rows := c.M1 - c.M0; {
	case w.format == panelBF16 && rows <= directRows:
		ts.direct(c, w)
		return
	case w.format == panelFP8 && rows <= GroupRows && c.X.parts == 2 && w.k >= scaleBlock:
		ts.stream(c, w)
		return
	}
	// Blocks of equal size, whole pairs of tiles.
	rows, most, pair := c.M1-c.M0, blockX/c.X.parts, 2*GroupRows/c.X.parts
	blocks := (rows + most - 1) / most
	block := (rows + blocks*pair - 1) / (blocks * pair) * pair
	for m := c.M0; m < c.M1; m += block {
		end := min(m+block, c.M1)
		for j := 0; j < c.N; {
			j += ts.band(c, w, m, end, j)
		}
	}
}

// band computes rows [m, end) of x by up to bandW rows of weights from row j
// on and returns how many.
func (ts *tileScratch) band(c *Cut, w *panelWeights, m, end, j int) int {
	var rows [bandW / blockW]int
	var folded [bandW / blockW]bool
	n, blocks := 0, 0
	for blocks < len(rows) && j+n < c.N {
		rows[blocks], folded[blocks] = w.block(j+n, c.N-j-n), w.folded(j+n)
		n += rows[blocks]
		blocks++
	}
	for k := 0; k < w.k; k += tileK {
		depth := min(tileK, w.k-k)
		at := j
		for b, r := range rows[:blocks] {
			// The next panel is of the rows below or, after the last, of the first rows further along.
			ts.fill.ahead = r * w.ld
			if b == blocks-1 {
				ts.fill.ahead = w.bytes(tileK) - (at-j)*w.ld
			}
			w.fill(ts, at, r, k, depth, folded[b])
			ts.panelTimes(c, w, tileBlock{m: m, end: end, row: at, rows: r, sums: ts.sums[b*sumsBytes/len(rows):], k: k, depth: depth, folded: folded[b]})
			at += r
		}
	}
	at := j
	for b, r := range rows[:blocks] {
		ts.foldBlock(c, tileBlock{m: m, end: end, row: at, rows: r, sums: ts.sums[b*sumsBytes/len(rows):]})
		at += r
	}
	return n
}

// tileBlock is rows [m, end) of x by rows [row, row+rows) of weights at the
// depth [k, k+depth).
type tileBlock struct {
	m, end, row, rows int
	sums              []byte // of all groups
	k, depth          int
	folded            bool
}

// tilesW is how many tiles the block's weights take.
func (b *tileBlock) tilesW() int { return (b.rows + tileSide - 1) / tileSide }

// groupsX is how many groups the block's columns are.
func (b *tileBlock) groupsX(c *Columns) int { return (b.end - b.m + c.rows - 1) / c.rows }

// panelTimes multiplies the block's columns by the panel.
func (ts *tileScratch) panelTimes(c *Cut, w *panelWeights, b tileBlock) {
	a := &ts.tiles
	a.w, a.nextW, a.ldw, a.stepW = at(ts.panel, 0), tileBytes, pairLanes, panelStep
	a.block, a.ahead = at(ts.block, 0), 0
	if b.folded {
		a.steps, a.fresh, a.scaled = (b.depth+stepDepth-1)/stepDepth, flag(b.k == 0), 0
		ts.groups(c, b, b.k)
		return
	}
	scales := w.scale.row(b.row)
	for from := 0; from < b.depth; from += scaleBlock {
		a.w = at(ts.panel, from/stepDepth*panelStep)
		a.steps, a.fresh = (min(scaleBlock, b.depth-from)+stepDepth-1)/stepDepth, 1
		a.scaled, a.scale = 1+flag(b.k+from == 0), scales[(b.k+from)/scaleBlock]
		ts.groups(c, b, b.k+from)
	}
}

// groups runs the block's columns from depth k on: two tiles at a time, which
// are the parts of one group or two neighbours, and what is left over alone.
func (ts *tileScratch) groups(c *Cut, b tileBlock, k int) {
	a, x := &ts.tiles, c.X
	groups, tilesW := b.groupsX(x), b.tilesW()
	a.ldx, a.stepX = x.lineBytes(), x.stepBytes()
	ts.shape(b.rows, a.ldx)
	kernels := &tileKernels[tilesW-1]
	run := func(kernel func(*tileArgs), first, n int) {
		if n == 0 {
			return
		}
		a.groups, a.offsetX = n, 0
		a.x = at(x.mem[:cap(x.mem)], (b.m/x.rows+first)*x.groupBytes()+k/stepDepth*x.stepBytes())
		a.sums = at(b.sums, first*x.tiles()*tilesW*tileBytes)
		runTiles(kernel, a)
	}
	switch {
	case x.tiles() == 2:
		a.nextX, a.groupX = x.partBytes(), x.groupBytes()
		run(kernels[1], 0, groups)
	default:
		a.nextX, a.groupX = x.groupBytes(), 2*x.groupBytes()
		run(kernels[1], 0, groups/2)
		run(kernels[0], groups&^1, groups%2)
	}
}

// shape sets the tiles for a block of rows of weights and columns whose lines
// have the given bytes: sums 0 and 1 belong to the upper tile of weights, 2 and
// 3 to the lower one.
func (ts *tileScratch) shape(rows, line int) {
	s := &ts.tiles.shapes
	upper, lower := min(rows, tileSide), rows-tileSide
	if lower <= 0 {
		lower = upper // not used
	}
	for i, n := range [2]int{upper, lower} {
		s.set(tileW+i, n, pairLanes)
		s.set(2*i, n, line)
		s.set(2*i+1, n, line)
		s.set(tileX+i, tileSide, line)
	}
}

// direct multiplies one or two groups of columns by bfloat16 weights where they lie,
// fetching the next block of rows meanwhile if they are short.
func (ts *tileScratch) direct(c *Cut, w *panelWeights) {
	a := &ts.tiles
	whole, most := w.k/stepDepth, directSteps
	if c.M1-c.M0 > GroupRows {
		most = directAgain
	}
	for j := 0; j < c.N; j += blockW {
		b := tileBlock{m: c.M0, end: c.M1, row: j, rows: min(blockW, c.N-j), sums: ts.sums, folded: true}
		a.scaled = 0
		a.nextW, a.ldw, a.stepW = tileSide*w.ld, w.ld, pairLanes
		a.ldAhead, a.stepAhead = w.ld, pairLanes-b.tilesW()*tileSide*w.ld
		for s := 0; s < whole; s += most {
			a.w = at(w.b, j*w.ld+s*pairLanes)
			a.ahead = 0
			if w.ld < ownAhead {
				// Past the end this names no weights, which fetching does not mind.
				a.ahead = uintptr(a.w) + uintptr(b.rows*w.ld)
			}
			a.steps, a.fresh = min(most, whole-s), flag(s == 0)
			ts.groups(c, b, s*stepDepth)
		}
		if whole*stepDepth < w.k {
			w.fill(ts, j, b.rows, whole*stepDepth, w.k-whole*stepDepth, true)
			a.w, a.nextW, a.ldw, a.stepW, a.ahead = at(ts.panel, 0), tileBytes, pairLanes, panelStep, 0
			a.steps, a.fresh = 1, flag(whole == 0)
			ts.groups(c, b, whole*stepDepth)
		}
		ts.foldBlock(c, b)
	}
}

// foldBlock writes the sums of a block to y.
func (ts *tileScratch) foldBlock(c *Cut, b tileBlock) {
	groups, tilesW := b.groupsX(c.X), b.tilesW()
	switch {
	case c.X.rows == 1:
		ts.foldOne(c, b)
		return
	case c.X.parts == 2:
		each := c.X.tiles() * tileBytes
		for i := range tilesW {
			ts.foldTiles(c, b, foldRun{i: i, each: 1, tiles: groups, sums: i * each, next: tilesW * each})
		}
		return
	}
	for i := range tilesW {
		for x := range 2 {
			ts.foldTiles(c, b, foldRun{i: i, first: x, each: 2, tiles: groups / 2, sums: (i*2 + x) * tileBytes, next: 2 * tilesW * tileBytes})
		}
		if groups%2 == 1 {
			ts.foldTiles(c, b, foldRun{i: i, first: groups - 1, each: 1, tiles: 1, sums: ((groups-1)*tilesW + i) * tileBytes})
		}
	}
}

// foldKernel writes the sums of a group of columns.
func (c *Columns) foldKernel() func(*foldArgs) {
	switch {
	case c.parts == 1:
		return foldPlain
	case c.rows == GroupRows:
		return foldSixteen
	case c.rows == halfRows:
		return foldEight
	default:
		return foldFour
	}
}

// foldRun is groups of columns first, first+each, ... by tile i of a block's
// weights, whose sums begin at byte sums and lie next apart.
type foldRun struct {
	i                 int
	first, each       int
	tiles, sums, next int
}

// foldTiles folds the tiles whose rows all exist, then one that may end early.
func (ts *tileScratch) foldTiles(c *Cut, b tileBlock, r foldRun) {
	rows := c.X.rows
	a := &ts.fold
	a.ldy, a.add = 4*c.Ldy, flag(c.Add)
	a.nextSums, a.nextY = r.next, 4*r.each*rows*c.Ldy
	a.mask = 1<<min(tileSide, b.rows-r.i*tileSide) - 1
	whole := min(r.tiles, ((b.end-b.m)/rows-r.first+r.each-1)/r.each)
	for tile := 0; tile < r.tiles; {
		m := b.m - c.M0 + (r.first+tile*r.each)*rows
		a.rows, a.tiles = rows, whole-tile
		if tile >= whole {
			a.rows, a.tiles = (b.end-b.m)%rows, 1
		}
		a.sums = at(b.sums, r.sums+tile*r.next)
		a.y = at(c.Y, m*c.Ldy+b.row+r.i*tileSide)
		runFold(c.X.foldKernel(), a)
		tile += a.tiles
	}
}

// foldOne writes the sums of a single row.
func (ts *tileScratch) foldOne(c *Cut, b tileBlock) {
	y := c.Y[b.row:][:b.rows]
	for i := range y {
		// In bounds: a block has at most two tiles of 16 lines of 64 bytes.
		parts := (*[2]float32)(at(b.sums, i*pairLanes))
		v := parts[0] + parts[1]
		if c.Add {
			v += y[i]
		}
		y[i] = v
	}
}

// packedOnce packs x for a single product.
func packedOnce(p *product, multiply func(Cut)) {
	ts := tileScratches.get()
	defer tileScratches.put(ts)
	ts.cols.Reset(p.m, p.k)
	for i := range ts.cols.Chunks() {
		packColumns(&ts.cols, i, p.x, p.ldx)
	}
	multiply(Cut{Y: p.y, Ldy: p.ldy, X: &ts.cols, M1: p.m, N: p.n})
}
