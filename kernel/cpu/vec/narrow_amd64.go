//go:build !purego

package vec

import "unsafe"

// narrowArgs: one group of columns by a block of narrow weights.
type narrowArgs struct {
	shapes tileShapes // first, because LDTILECFG reads it there
	w, x   unsafe.Pointer
	sums   unsafe.Pointer // [2 tiles of rows, tiles of columns, 16, 16]
	panel  unsafe.Pointer // [2, 4, 2, 16, 64] bytes
	counts unsafe.Pointer // [units]
	odd    unsafe.Pointer // of all units
	units  int
	runs   int // bytes between two runs
	base   byte
}

//go:noescape
func narrow1(a *narrowArgs)

//go:noescape
func narrow4(a *narrowArgs)

//go:noescape
func narrow8(a *narrowArgs)

//go:noescape
func narrow16(a *narrowArgs)

//go:noinline
func runNarrow(f func(*narrowArgs), a *narrowArgs) { f(a) }

// narrowKernels is by rows of a group.
var narrowKernels = [GroupRows + 1]func(*narrowArgs){1: narrow1, fewRows: narrow4, halfRows: narrow8, GroupRows: narrow16}

// tiledNarrow multiplies one group of columns after the other by narrow weights, block by block, in the order of sums of other weights.
func tiledNarrow(c Cut, w *Narrow, n0 int) {
	ts := tileScratches.get()
	defer giveBackTiles(ts)
	ts.ready()
	a, x := &ts.narrow, c.X
	for t := range 8 {
		a.shapes.set(t, tileSide, x.lineBytes())
	}
	a.shapes.set(tileW, tileSide, pairLanes)
	a.shapes.set(tileW+1, tileSide, pairLanes)
	a.panel, a.sums, a.units = at(ts.panel, 0), at(ts.sums, 0), w.units()
	for j := 0; j < c.N; j += narrowRows {
		n := (n0 + j) / narrowRows
		b := &w.blocks[n]
		a.w, a.base, a.runs = at(w.mem, w.at(n, 0, 0)), b.base, w.run()
		a.counts, a.odd = at(b.counts, 0), unsafe.Pointer(unsafe.SliceData(b.odd))
		for m := c.M0; m < c.M1; m += x.rows {
			a.x = at(x.mem[:cap(x.mem)], m/x.rows*x.groupBytes())
			runNarrow(narrowKernels[x.rows], a)
			group := c
			group.M0, group.M1, group.Y = m, min(m+x.rows, c.M1), c.Y[(m-c.M0)*c.Ldy:]
			ts.foldBlock(&group, tileBlock{m: m, end: group.M1, row: j, rows: min(narrowRows, c.N-j), sums: ts.sums})
		}
	}
	a.w, a.x, a.counts, a.odd = nil, nil, nil, nil
}
