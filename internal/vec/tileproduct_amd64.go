//go:build !purego

package vec

// Blocks of a tiled product. A panel of weights stays in the L1 cache while it is multiplied by a block of columns. The
// part of these columns that the panel covers along k stays in the L2 cache, together with the sums of as many weight
// rows as fit.
const (
	blockTiles = 32 // tiles of columns in a block
	bandBlocks = 8  // maximum blocks of weights in a band
	// directRows is the maximum number of rows of x for which bfloat16 weights are read in place, or e4m3 weights by
	// the streaming kernels. The first group reads the weights from memory, and two further groups read them from the
	// L2 cache. For more rows panels are faster.
	directRows = 3 * GroupRows
	// directSteps is the maximum number of steps of a call that reads weights from memory.
	directSteps = 256
	// ownAhead is the number of bytes of a row from which the hardware prefetcher is faster than prefetch instructions:
	// a page.
	ownAhead = 4096
	// soonTiles is the number of tiles of columns during which the next panel is
	// prefetched: every pair of tiles prefetches four rows.
	soonTiles = 2 * blockW / 4
)

// tileScratch is the memory of one call.
type tileScratch struct {
	tiles   tileArgs
	flow    streamArgs
	scales  [1 + streamBlocks]streamScale // scales for the streaming kernel; the first is a placeholder
	nibbles nibbleTiles
	row     rowArgs
	fill    fillArgs
	pack    packArgs
	fold    foldArgs
	cols    Columns
	single  Columns // columns with only the first parts of other columns

	// These three are contiguous, in this order: the streaming kernels depend on it.
	panel []byte // [tileSteps, 2, 16, 64]
	block []byte // [4, 16, 16] float32
	sums  []byte // [blocks of a band, a block of columns, 32] float32
}

const sumsBytes = bandBlocks / 2 * blockTiles * blockW / tileSide * tileBytes

var tileScratches recycler[tileScratch]

// ready allocates the buffers of a new scratch.
func (ts *tileScratch) ready() {
	if ts.panel != nil {
		return
	}
	mem := alignedBytes(tileSteps*panelStep + 4*tileBytes + sumsBytes)
	ts.panel, mem = mem[:tileSteps*panelStep], mem[tileSteps*panelStep:]
	ts.block, ts.sums = mem[:4*tileBytes], mem[4*tileBytes:]
}

// releaseTiles drops the pointers into the caller's memory and returns ts.
func releaseTiles(ts *tileScratch) {
	ts.tiles.w, ts.tiles.x, ts.fold.y = nil, nil, nil
	ts.single = Columns{}
	ts.flow.w, ts.flow.x, ts.flow.scales, ts.nibbles.args.scale = nil, nil, nil, nil
	ts.row.w, ts.row.x = nil, nil
	tileScratches.put(ts)
}

func tiledBF16(c Cut, w []byte, ldw int) {
	tiled(&c, &panelWeights{format: panelBF16, b: w, ld: 2 * ldw, k: c.X.k})
}

func tiledFP8(c Cut, w []byte, ldw int, s FP8Blocks) {
	tiled(&c, &panelWeights{format: panelFP8, b: w, ld: ldw, k: c.X.k, scale: s})
}

// tiled computes a part of a product. In all cases one tile computes a sum, in steps of 32 along k and for both parts
// of x, and the sum is stored in memory unchanged between calls.
func tiled(c *Cut, w *panelWeights) {
	ts := tileScratches.get()
	defer releaseTiles(ts)
	ts.ready()
	switch rows := c.M1 - c.M0; {
	case w.format == panelBF16 && rows <= directRows:
		ts.direct(c, w)
		return
	case w.format == panelFP8 && rows <= directRows && c.X.parts == 2 && w.k >= scaleBlock:
		ts.stream(c, w)
		return
	}
	if c.X.single(&ts.single, c.M0, c.M1) {
		c.X = &ts.single
	}
	// Blocks of equal size, whole pairs of tiles.
	rows, most := c.M1-c.M0, blockTiles/c.X.tiles()*GroupRows
	blocks := (rows + most - 1) / most
	block := (rows + blocks*2*GroupRows - 1) / (blocks * 2 * GroupRows) * 2 * GroupRows
	for m := c.M0; m < c.M1; m += block {
		end := min(m+block, c.M1)
		for j := 0; j < c.N; {
			j += ts.band(c, w, m, end, j)
		}
	}
}

// band computes rows [m, end) of x by a band of weights that starts at row j, and returns the number of weight rows of
// the band.
func (ts *tileScratch) band(c *Cut, w *panelWeights, m, end, j int) int {
	var rows [bandBlocks]int
	var folded [bandBlocks]bool
	blockBytes := (&tileBlock{m: m, end: end}).tilesX(c.X) * blockW / tileSide * tileBytes // bytes of a block's sums
	n, blocks := 0, 0
	for blocks < min(bandBlocks, sumsBytes/blockBytes) && j+n < c.N {
		rows[blocks], folded[blocks] = w.block(j+n, c.N-j-n), w.folded(j+n)
		n += rows[blocks]
		blocks++
	}
	for k := 0; k < w.k; k += tileK {
		depth := min(tileK, w.k-k)
		at := j
		for b, r := range rows[:blocks] {
			// The next panel has the rows below or, after the last rows, the first rows further along k.
			ahead := r * w.ld
			if b == blocks-1 {
				ahead = w.bytes(tileK) - (at-j)*w.ld
			}
			block := tileBlock{m: m, end: end, row: at, rows: r, sums: ts.sums[b*blockBytes:], k: k, depth: depth,
				folded: folded[b], ahead: ahead}
			ts.fill.ahead = 0
			if block.tilesX(c.X) < soonTiles {
				ts.fill.ahead = ahead
			}
			w.fill(ts, at, r, k, depth, folded[b])
			ts.panelTimes(c, w, block)
			at += r
		}
	}
	if n == blocks*blockW && c.X.rows == GroupRows {
		ts.foldBand(c, tileBlock{m: m, end: end, row: j, rows: n}, blockBytes)
		return n
	}
	at := j
	for b, r := range rows[:blocks] {
		ts.foldBlock(c, tileBlock{m: m, end: end, row: at, rows: r, sums: ts.sums[b*blockBytes:]})
		at += r
	}
	return n
}

// tileBlock is rows [m, end) of x by weight rows [row, row+rows) and columns [k, k+depth) of both.
type tileBlock struct {
	m, end, row, rows int
	sums              []byte // sums of all groups
	k, depth          int
	folded            bool
	ahead             int // bytes from the weights of the block to the weights of the next block
}

// tilesW returns the number of tiles of the block's weights.
func (b *tileBlock) tilesW() int { return (b.rows + tileSide - 1) / tileSide }

// groupsX returns the number of groups of columns of the block, and tilesX the number of their tiles.
func (b *tileBlock) groupsX(c *Columns) int { return (b.end - b.m + c.rows - 1) / c.rows }
func (b *tileBlock) tilesX(c *Columns) int  { return b.groupsX(c) * c.tiles() }

// panelTimes multiplies the block's columns by the panel.
func (ts *tileScratch) panelTimes(c *Cut, w *panelWeights, b tileBlock) {
	a := &ts.tiles
	a.w, a.nextW, a.ldw, a.stepW = at(ts.panel, 0), tileBytes, pairLanes, panelStep
	a.block, a.ahead = at(ts.block, 0), 0
	// The address may be out of range; prefetch ignores that.
	next := uintptr(at(w.b, b.row*w.ld+w.bytes(b.k))) + uintptr(b.ahead)
	a.soon, a.soonRows, a.ldAhead = next, blockW, w.ld
	if b.folded {
		a.steps, a.fresh, a.scaled = c.X.order.steps(b.depth), flag(b.k == 0), 0
		ts.groups(c, b, b.k)
		return
	}
	scales := w.scale.row(b.row)
	a.fresh = 1
	// Whole blocks of scales first, then the columns after them.
	whole := b.depth / scaleBlock
	for _, part := range [2]struct {
		from, blocks, depth int
	}{{0, whole, scaleBlock}, {whole * scaleBlock, 1, b.depth % scaleBlock}} {
		if part.blocks*part.depth == 0 {
			continue
		}
		a.w = at(ts.panel, part.from/stepDepth*panelStep)
		a.steps, a.scaled = c.X.order.steps(part.depth), 1+flag(b.k+part.from == 0)
		a.scales, a.offsetScale, a.endScale = at(scales, (b.k+part.from)/scaleBlock), 0, 4*part.blocks
		ts.groups(c, b, b.k+part.from)
	}
	a.scales = nil
}

// groups processes the block's columns, starting at depth k, in pairs of tiles of one or two groups, and a last single
// tile if their number is odd.
func (ts *tileScratch) groups(c *Cut, b tileBlock, k int) {
	a, x := &ts.tiles, c.X
	tilesX, tilesW := b.tilesX(x), b.tilesW()
	ts.columnsAt(x)
	first := at(x.mem[:cap(x.mem)], b.m/x.rows*x.groupBytes()+k/stepDepth*x.stepBytes())
	ts.shape(b.rows, a.ldx)
	kernels := &tileKernels[tilesW-1]
	if pairs := tilesX / 2; pairs > 0 {
		a.groups, a.x, a.offsetX, a.sums = pairs, first, 0, at(b.sums, 0)
		runKernel(kernels[1], a)
	}
	if tilesX%2 == 1 {
		a.groups, a.x, a.sums = 1, first, at(b.sums, (tilesX-1)*tilesW*tileBytes)
		a.offsetX = tilesX / 2 * a.groupX
		runKernel(kernels[0], a)
	}
}

// columnsAt sets the strides of the tiles of columns.
func (ts *tileScratch) columnsAt(x *Columns) {
	a := &ts.tiles
	a.ldx, a.stepX = x.lineBytes(), x.stepBytes()
	a.nextX, a.groupX = x.groupBytes(), 2*x.groupBytes()
	if x.tiles() == 2 {
		a.nextX, a.groupX = x.tileBytes(), x.groupBytes()
	}
}

// shape sets the tile shapes for a block of weight rows and for columns whose lines have the given number of bytes:
// sums 0 and 1 belong to the upper tile of weights, and sums 2 and 3 to the lower one.
func (ts *tileScratch) shape(rows, line int) {
	s := &ts.tiles.shapes
	upper, lower := min(rows, tileSide), rows-tileSide
	if lower <= 0 {
		lower = upper // the lower tile is not used
	}
	for i, n := range [2]int{upper, lower} {
		s.set(tileW+i, n, pairLanes)
		s.set(2*i, n, line)
		s.set(2*i+1, n, line)
		s.set(tileX+i, tileSide, line)
	}
}

// direct multiplies one group of columns by bfloat16 weights in place. If weight rows are short, it prefetches the next
// block of them.
func (ts *tileScratch) direct(c *Cut, w *panelWeights) {
	a := &ts.tiles
	whole := w.k / stepDepth
	for j := ts.short(c, w); j < c.N; j += blockW {
		b := tileBlock{m: c.M0, end: c.M1, row: j, rows: min(blockW, c.N-j), sums: ts.sums, folded: true}
		a.scaled = 0
		a.nextW, a.ldw, a.stepW = tileSide*w.ld, w.ld, pairLanes
		a.ldAhead, a.stepAhead = w.ld, pairLanes-b.tilesW()*tileSide*w.ld
		a.soonRows = 0
		for s := 0; s < whole; s += directSteps {
			a.w = at(w.b, j*w.ld+s*pairLanes)
			a.ahead, a.soon = 0, uintptr(a.w)
			if w.ld < ownAhead {
				// The address may be out of range; prefetch ignores that.
				a.ahead = uintptr(a.w) + uintptr(b.rows*w.ld)
			}
			a.steps, a.fresh = min(directSteps, whole-s), flag(s == 0)
			ts.groups(c, b, s*stepDepth)
		}
		if whole*stepDepth < w.k {
			w.fill(ts, j, b.rows, whole*stepDepth, w.k-whole*stepDepth, true)
			a.w, a.nextW, a.ldw, a.stepW, a.ahead = at(ts.panel, 0), tileBytes, pairLanes, panelStep, 0
			a.soon = uintptr(a.w)
			a.steps, a.fresh = 1, flag(whole == 0)
			ts.groups(c, b, whole*stepDepth)
		}
		ts.foldBlock(c, b)
	}
}

// foldAhead is the distance, in groups of rows, at which lines of y are prefetched.
const foldAhead = 4

// foldBand writes the sums of whole blocks of weights to y, one group of rows after the other. The sums of one block
// have blockBytes bytes.
func (ts *tileScratch) foldBand(c *Cut, b tileBlock, blockBytes int) {
	a := &ts.fold
	a.ldy, a.add, a.mask = 4*c.Ldy, flag(c.Add), 1<<tileSide-1
	groups := b.groupsX(c.X)
	for g := range groups {
		// Tiles are stored in pairs; the last tile may be single.
		tile := g * c.X.tiles()
		first := tile/2*4*tileBytes + tile%2*tileBytes
		a.lower = 2 * tileBytes
		if tile == b.tilesX(c.X)-1 && tile%2 == 0 {
			a.lower = tileBytes
		}
		row := b.m + g*GroupRows
		a.sums, a.y = at(ts.sums, first), at(c.Y, (row-c.M0)*c.Ldy+b.row)
		a.nextSums, a.nextY = blockBytes-a.lower, pairLanes
		a.rows, a.tiles = min(GroupRows, b.end-row), b.rows/blockW
		// The rows below or, after the last rows, the first rows of the next columns. The address may be out of range;
		// prefetch ignores that.
		a.soon = uintptr(a.y) + uintptr(4*foldAhead*GroupRows*c.Ldy)
		if g+foldAhead >= groups {
			a.soon += uintptr(4 * (b.rows - groups*GroupRows*c.Ldy))
		}
		runKernel(c.X.folds().wide, a)
	}
}

// foldBlock writes the sums of a block to y.
func (ts *tileScratch) foldBlock(c *Cut, b tileBlock) {
	if c.X.rows == 1 {
		foldOne(c.Y[b.row:][:b.rows], b.sums, pairLanes, c.Add)
		return
	}
	tilesX, tilesW := b.tilesX(c.X), b.tilesW()
	pairs := tilesX / 2
	for i := range tilesW {
		if c.X.tiles() == 2 {
			ts.foldTiles(c, b, foldRun{i: i, each: 1, tiles: pairs, sums: i * 2 * tileBytes,
				next: 2 * tilesW * tileBytes})
			continue
		}
		for x := range 2 {
			ts.foldTiles(c, b, foldRun{i: i, first: x, each: 2, tiles: pairs, sums: (i*2 + x) * tileBytes,
				next: 2 * tilesW * tileBytes})
		}
		if tilesX%2 == 1 {
			ts.foldTiles(c, b, foldRun{i: i, first: tilesX - 1, each: 1, tiles: 1,
				sums: ((tilesX-1)*tilesW + i) * tileBytes})
		}
	}
}

// foldRun is groups of columns first, first+each, ... times tile i of a block's weights. Their sums begin at byte sums
// and are next bytes apart.
type foldRun struct {
	i                 int
	first, each       int
	tiles, sums, next int
}

// foldTiles writes the sums of the tiles whose rows all exist, and then of one tile that may have fewer rows.
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
		runKernel(c.X.folds().tiles, a)
		tile += a.tiles
	}
}

// foldOne writes the sums of a single row of x to y. The sums are stride bytes apart, and the sums of the two parts of
// x are adjacent.
func foldOne(y []float32, sums []byte, stride int, add bool) {
	for i := range y {
		p := (*[2]float32)(at(sums[i*stride:][:8], 0)) // in bounds: the slice has eight bytes
		v := p[0] + p[1]
		if add {
			v += y[i]
		}
		y[i] = v
	}
}

// folds returns the kernels that write sums of these columns to y.
func (c *Columns) folds() foldKernels {
	switch {
	case c.parts == 1:
		return foldKernels{foldTilesPlain, foldStridedPlain, foldWidePlain}
	case c.rows == GroupRows:
		return foldKernels{foldTilesParts, foldStridedParts, foldWideParts}
	case c.rows == halfRows:
		return foldKernels{tiles: foldTilesEight, strided: foldStridedEight}
	case c.rows == fewRows:
		return foldKernels{tiles: foldTilesFour, strided: foldStridedFour}
	default: // foldOne writes the sums instead
		return foldKernels{strided: foldStridedOne}
	}
}

// foldKernels write sums to y: tiles, tile by tile; strided, tiles whose lines have a stride; wide, pairs of tiles of
// whole groups.
type foldKernels struct{ tiles, strided, wide func(*foldArgs) }

// packedOnce packs x for a single product and computes it.
func packedOnce(p *product, o Order, multiply func(Cut)) {
	ts := tileScratches.get()
	defer tileScratches.put(ts)
	ts.cols.Reset(p.m, p.k, o)
	for i := range ts.cols.Chunks() {
		packColumns(&ts.cols, i, p.x, p.ldx)
	}
	multiply(Cut{Y: p.y, Ldy: p.ldy, X: &ts.cols, M1: p.m, N: p.n})
}
