//go:build !purego

package vec

// Rows of weights that are short and adjacent lie within few pages, and memory bandwidth is higher if many pages are
// read at one time, line by line. So a block is not 32 adjacent rows but one row of each of 32 runs of rows:
//
//	block 0   rows 0, runs, 2 runs, ..., 31 runs
//	block 1   rows 1, 1 + runs, 1 + 2 runs, ...
//
// and every run is read from its first byte to its last.

// shortBlocks is the number of blocks of one call, and so the number of sums of a weight row that are written to y
// together. shortBytes is the maximum size of their weights: 50 microseconds of reading.
const (
	shortBlocks = tileSide
	shortBytes  = 1 << 20
)

// short multiplies one tile of columns by short rows of bfloat16 weights without gaps between rows. It returns the
// number of weight rows that it has multiplied: whole blocks, or none.
func (ts *tileScratch) short(c *Cut, w *panelWeights) int {
	run := c.N / blockW // rows of a run
	if w.ld > ownAhead || w.ld != 2*w.k || w.k%stepDepth != 0 || c.M1-c.M0 > c.X.rows || run < 2 {
		return 0
	}
	a := &ts.tiles
	a.scaled, a.fresh, a.steps = 0, 1, w.k/stepDepth
	a.nextW, a.ldw, a.stepW = tileSide*run*w.ld, run*w.ld, pairLanes
	a.ahead, a.soonRows, a.ldAhead = 0, 0, 0
	b := tileBlock{m: c.M0, end: c.M1, rows: blockW, sums: ts.sums}
	most := min(shortBlocks, shortBytes/(blockW*w.ld))
	for i := 0; i < run; i += most {
		blocks := min(most, run-i)
		a.w = at(w.b, i*w.ld)
		a.soon = uintptr(a.w)
		a.groupW = w.ld
		ts.blocksTimes(c, b, blocks)
		ts.foldRuns(c, i, run, blocks)
	}
	a.groupW = 0
	return run * blockW
}

// blocksTimes multiplies one tile of columns by several blocks.
func (ts *tileScratch) blocksTimes(c *Cut, b tileBlock, blocks int) {
	a, x := &ts.tiles, c.X
	ts.columnsAt(x)
	a.groupX = 0
	ts.shape(b.rows, a.ldx)
	a.x = at(x.mem[:cap(x.mem)], b.m/x.rows*x.groupBytes())
	a.groups, a.offsetX, a.offsetW, a.sums = blocks, 0, 0, at(b.sums, 0)
	runKernel(tileKernels[1][x.tiles()-1], a)
	a.offsetW = 0
}

// foldRuns writes the sums of blocks, which start at row i of every run, to y.
func (ts *tileScratch) foldRuns(c *Cut, i, run, blocks int) {
	each := c.X.tiles() * blockW / tileSide * tileBytes // bytes of a block
	if c.X.rows == 1 {
		for r := range blockW {
			foldOne(c.Y[r*run+i:][:blocks], ts.sums[r*pairLanes:], each, c.Add)
		}
		return
	}
	a := &ts.fold
	a.ldy, a.add, a.mask = 4*c.Ldy, flag(c.Add), 1<<blocks-1
	a.rows, a.tiles, a.line = c.M1-c.M0, tileSide, each
	a.nextSums, a.nextY = pairLanes, 4*run
	for w := range blockW / tileSide {
		a.sums, a.y = at(ts.sums, w*c.X.tiles()*tileBytes), at(c.Y, w*tileSide*run+i)
		runKernel(c.X.folds().strided, a)
	}
}
