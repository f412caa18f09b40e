//go:build !purego

package vec

import (
	"bytes"
	"math"
	"unsafe"
)

// Products with e2m1 weights add integers: rows of x are integers times a power of two (see Columns), and a weight is
// twice its value, an integer, times a power of two. The window of a weight row is the scales within a factor of eight
// of its largest scale. The weights of groups inside the window, relative to one power of two, are integers below 128;
// the other weights are set to zero. If a row has scales below its window, it is multiplied again with a window of
// those scales, and so on; the results are added in this order.
//
// So a sum is exact, whatever the order and the number of rows computed together, and is rounded when it is written.

const (
	blockFP4    = 128 // e2m1 weights of a row that are decoded together
	windowFP4   = 4   // powers of two in a window
	mostRowsFP4 = 512 // weight rows of a call
	// exponentFP4 is the exponent of a row minus its largest scale: the sum of the biases of e8m0, of the factor 2 of
	// weights, and of the window.
	exponentFP4 = -(127 + 1 + windowFP4 - 1)
)

// exponentsFP4 is indexed by the largest scale of a row and has the exponent of the row.
var exponentsFP4 = func() (t [256]float32) {
	for scale := range t {
		t[scale] = float32(scale + exponentFP4)
	}
	t[255] = nan32
	return t
}()

// nibbleTiles is the memory for the windows of weight rows and for results that are not complete.
type nibbleTiles struct {
	args      windowArgs
	windows   []byte      // [rows, groups of whole blocks]
	exponents []float32   // [rows]
	largest   []byte      // [rows]: the largest scale that may be in the window
	below     []byte      // [rows]: 1 if there are scales below the window
	codes     []byte      // [unit, whole blocks]: copied weight rows
	scales    []byte      // [unit, groups]: scales of the copied rows
	picked    []pickedRow // rows that are copied, in order
	part      []float32   // [rows of a group of x, unit]: results of the copied rows for one window
	y         []float32   // [rows of x, weight rows]: sums of the results for the windows so far
}

// pickedRow is a weight row of a call that is multiplied with the window below a largest scale.
type pickedRow struct {
	row     int
	largest int
	add     bool // add to the result for the window above
}

// nibbleWeights is a matrix of e2m1 weights.
type nibbleWeights struct {
	b       []byte
	ld, k   int
	scales  []byte
	ldScale int
}

func (w *nibbleWeights) groups() int { return (w.k + GroupFP4 - 1) / GroupFP4 }
func (w *nibbleWeights) blocks() int { return (w.k + blockFP4 - 1) / blockFP4 }

// tiledFP4 multiplies units of weight rows by all groups of rows of x.
func tiledFP4(c Cut, b []byte, ldw int, scale []byte, ldScale int) {
	w := &nibbleWeights{b: b, ld: ldw, k: c.X.k, scales: scale, ldScale: ldScale}
	ts := tileScratches.get()
	defer releaseTiles(ts)
	ts.ready()
	u := streamUnits{each: blockW, depth: w.k}
	if c.X.rows == 1 {
		u.each = tileSide
	}
	most := max(u.each, min(mostRowsFP4, streamBlocks*blockW*blockFP4/w.k))
	for ; u.row < c.N; u.row += u.rows {
		if u.rows = min(most, c.N-u.row) / u.each * u.each; u.rows > 0 && w.k%blockFP4 == 0 {
			ts.unitsFP4(&c, w, u)
			continue
		}
		u.rows = min(u.each, c.N-u.row)
		ts.copiesFP4(&c, w, u)
	}
}

// unitsFP4 multiplies units whose rows are whole blocks in place, and then copies of rows that have scales below their
// window.
func (ts *tileScratch) unitsFP4(c *Cut, w *nibbleWeights, u streamUnits) {
	n := &ts.nibbles
	n.reserve(u.rows, w)
	found, soon := u.rows, u.rows
	if c.X.rows > 1 { // the kernel also finds windows, and needs scales earlier
		found, soon = u.each, 3*u.each
	}
	n.window(w.scales[u.row*w.ldScale:], w.ldScale, w.groups(), found, true)
	ts.findRest(w, u, found)
	codes := codesFP4{first: at(w.b, u.row*w.ld), ld: w.ld,
		soon: uintptr(at(w.scales, u.row*w.ldScale)) + uintptr(soon*w.ldScale)}
	whole := true
	for m := c.M0; m < c.M1; m += c.X.rows {
		ts.timesFP4(c, m, codes, u)
		if m == c.M0 {
			if whole = !n.pickMarked(); !whole {
				sized(&n.y, (c.M1-c.M0)*u.rows)
			}
		}
		if whole {
			ts.foldFP4(c, m, c.Y[(m-c.M0)*c.Ldy+u.row:], c.Ldy, u.rows, c.Add)
		} else {
			ts.foldFP4(c, m, n.y[:cap(n.y)][(m-c.M0)*u.rows:], u.rows, u.rows, false)
		}
	}
	if !whole {
		ts.windowsBelow(c, w, u)
	}
}

// findRest makes the kernel find the windows of the rows that follow the given first rows.
func (ts *tileScratch) findRest(w *nibbleWeights, u streamUnits, first int) {
	a, n := &ts.flow, &ts.nibbles
	if a.findLeft = u.rows - first; a.findLeft == 0 {
		return
	}
	groups := w.groups()
	a.findScales, a.findLd = uintptr(at(w.scales, (u.row+first)*w.ldScale)), w.ldScale
	a.findWindows = uintptr(at(n.windows, first*w.blocks()*blockFP4/GroupFP4))
	a.findExponents, a.findBelow = uintptr(at(n.exponents, first)), uintptr(at(n.below, first))
	a.findTable = unsafe.Pointer(&exponentsFP4)
	a.findRegisters = (groups - 1) / 64
	a.findMask = math.MaxUint64 >> (64 - (groups - 64*a.findRegisters))
}

// copiesFP4 multiplies copies of rows, if the rows are not a whole unit or not whole blocks.
func (ts *tileScratch) copiesFP4(c *Cut, w *nibbleWeights, u streamUnits) {
	n := &ts.nibbles
	n.picked = n.picked[:0]
	for r := range u.rows {
		n.picked = append(n.picked, pickedRow{row: r, largest: math.MaxUint8})
	}
	sized(&n.y, (c.M1-c.M0)*u.rows)
	ts.windowsBelow(c, w, u)
}

// windowsBelow multiplies copies of the picked rows with one window after the other, and writes the results of all rows
// to y.
func (ts *tileScratch) windowsBelow(c *Cut, w *nibbleWeights, u streamUnits) {
	n := &ts.nibbles
	y := n.y[:cap(n.y)]
	stride, groups := w.blocks()*blockFP4/2, w.groups()
	n.reserve(u.each, w)
	clear(n.windows)
	n.codes = sizedBytes(&n.codes, u.each*stride)
	n.scales = sizedBytes(&n.scales, u.each*groups)
	n.part = sized(&n.part, c.X.rows*u.each)
	unit, alone := streamUnits{rows: u.each, each: u.each, depth: u.depth}, Cut{X: c.X, N: u.each}
	for from := 0; from < len(n.picked); {
		batch := n.picked[from:min(from+u.each, len(n.picked))]
		from += len(batch)
		for i, p := range batch {
			row := u.row + p.row
			copy(n.codes[i*stride:], w.b[row*w.ld:][:w.k/2])
			copy(n.scales[i*groups:], w.scales[row*w.ldScale:][:groups])
			n.largest[i] = byte(p.largest)
		}
		n.window(n.scales, groups, groups, len(batch), false)
		for i, p := range batch {
			n.pickBelow(i, p.row)
		}
		for m := c.M0; m < c.M1; m += c.X.rows {
			ts.timesFP4(&alone, m, codesFP4{first: at(n.codes, 0), ld: stride, soon: uintptr(at(n.scales, 0))}, unit)
			ts.foldFP4(c, m, n.part, u.each, u.each, false)
			for r := range min(c.X.rows, c.M1-m) {
				to, part := y[(m-c.M0+r)*u.rows:][:u.rows], n.part[r*u.each:][:u.each]
				for i, p := range batch {
					if p.add {
						part[i] += to[p.row]
					}
					to[p.row] = part[i]
				}
			}
		}
	}
	for r := range c.M1 - c.M0 {
		to := c.Y[r*c.Ldy+u.row:][:u.rows]
		for i, v := range y[r*u.rows:][:u.rows] {
			if c.Add {
				v += to[i]
			}
			to[i] = v
		}
	}
}

// reserve allocates memory for the windows of rows.
func (n *nibbleTiles) reserve(rows int, w *nibbleWeights) {
	n.windows = sizedBytes(&n.windows, rows*w.blocks()*blockFP4/GroupFP4+pairLanes) // kernels load whole registers
	n.largest, n.below = sizedBytes(&n.largest, rows), sizedBytes(&n.below, rows)
	n.exponents = sized(&n.exponents, rows)
}

// anyScale is the largest scale of each row for its first window: no limit.
var anyScale = [mostRowsFP4]byte(bytes.Repeat([]byte{math.MaxUint8}, mostRowsFP4))

// window finds the windows of rows of scales that are ld bytes apart: the first window of each row, or the window up to
// the row's entry in largest.
func (n *nibbleTiles) window(scales []byte, ld, groups, rows int, first bool) {
	a, largest := &n.args, n.largest
	if first {
		largest = anyScale[:]
	}
	a.scale, a.ldScale, a.rows, a.count = at(scales, 0), ld, rows, groups
	a.table = unsafe.Pointer(&exponentsFP4)
	a.ldWindows = (groups*GroupFP4 + blockFP4 - 1) / blockFP4 * blockFP4 / GroupFP4
	a.windows, a.exponents = at(n.windows, 0), at(n.exponents, 0)
	a.largest, a.below = at(largest, 0), at(n.below, 0)
	a.first = flag(first)
	runKernel(windowsFP4, a)
}

// pickMarked picks the rows that have scales below their first window, and reports whether there are any.
func (n *nibbleTiles) pickMarked() bool {
	n.picked = n.picked[:0]
	for r := 0; ; r++ { // few rows have a mark
		next := bytes.IndexByte(n.below[r:], 1)
		if next < 0 {
			return len(n.picked) > 0
		}
		r += next
		n.pickBelow(r, r)
	}
}

// pickBelow picks a row for its next window if it has scales below window i. Rows with NaN are not picked.
func (n *nibbleTiles) pickBelow(i, row int) {
	if e := n.exponents[i]; n.below[i] != 0 && e == e {
		n.picked = append(n.picked, pickedRow{row, int(e) - exponentFP4 - windowFP4, true})
	}
}

// codesFP4 describes rows of codes that are ld bytes apart, and the scales that the kernel prefetches.
type codesFP4 struct {
	first unsafe.Pointer
	ld    int
	soon  uintptr // address of scales to prefetch; may be out of range
}

// timesFP4 multiplies the group of x that starts at row m by units of rows. The windows of the first of these rows are
// known.
func (ts *tileScratch) timesFP4(c *Cut, m int, w codesFP4, u streamUnits) {
	if c.X.rows == 1 {
		ts.rowFP4(c, m, w, u)
		return
	}
	a, x := &ts.flow, c.X
	ts.aheadOf(c, u, aheadRows{first: uintptr(w.first), ld: w.ld, size: u.depth / 2, all: u.depth / 2})
	ts.flowShapes(x)
	a.aheadScales = w.soon
	a.blocks = (u.depth + blockFP4 - 1) / blockFP4
	a.findEach = (blockW + a.blocks - 1) / a.blocks
	groups := a.blocks * blockFP4 / GroupFP4
	a.w, a.ldw, a.nextW = w.first, w.ld, u.each*w.ld-a.blocks*blockFP4/2
	a.x = at(x.mem[:cap(x.mem)], m/x.rows*x.groupBytes())
	a.panel, a.sums, a.scales = at(ts.panel, 0), at(ts.sums, 0), at(ts.nibbles.windows, 0)
	a.ldScale, a.nextScales = groups, (u.each-1)*groups
	a.units, a.left = u.rows/u.each, a.blocks
	runKernel(streamKernelsFP4[x.rows], a)
}

// The kernel for one row of x reads weights at eight cursors. Each cursor has a run of adjacent rows and prefetches
// sixteen lines ahead. Longer runs, a multiple of 128 KiB apart, would map to the same set of the L2 cache.
const (
	cursorsFP4 = 8
	runFP4     = 32 << 10
	aheadFP4   = 16
)

// runRows returns the number of rows of a run if the given number of rows is left.
func (w codesFP4) runRows(left int) int { return max(1, min(runFP4/w.ld, left/cursorsFP4)) }

// rowFP4 multiplies row m of x by weight rows whose windows are known.
func (ts *tileScratch) rowFP4(c *Cut, m int, w codesFP4, u streamUnits) {
	a, x := &ts.row, c.X
	a.blocks = (u.depth + blockFP4 - 1) / blockFP4
	groups := a.blocks * blockFP4 / GroupFP4
	a.x, a.nextW, a.aheadScales = at(x.mem[:cap(x.mem)], m*x.groupBytes()), w.ld-a.blocks*blockFP4/2, w.soon
	for row := 0; row < u.rows; {
		run := w.runRows(u.rows - row)
		a.w, a.run, a.rows = unsafe.Add(w.first, row*w.ld), run*w.ld, run
		a.windows, a.runWindows = at(ts.nibbles.windows, row*groups), run*groups
		a.sums = at(ts.sums, row*sumsRowFP4)
		for i := range a.places {
			a.places[i] = i * run * sumsRowFP4
		}
		row += cursorsFP4 * run
		a.next, a.runNext = uintptr(w.first)+uintptr(row*w.ld), a.run
		switch {
		case row < u.rows:
			a.runNext = w.runRows(u.rows-row) * w.ld
		case u.row+u.rows < c.N:
		case len(c.Next) > 0:
			a.next = uintptr(at(c.Next, 0))
		default: // nothing follows: prefetch lines that are already in the cache
			a.next = uintptr(a.w)
		}
		lines := run * a.blocks
		ahead := min(aheadFP4, lines-1)
		a.ahead, a.leftAhead = uintptr(a.w)+uintptr(64*ahead), lines-ahead
		runKernel(rowFP4, a)
	}
}

// sumsRowFP4 is the number of bytes of the sums of a weight row and one row of x: one for each of two planes.
const sumsRowFP4 = 2 * 4

// foldFP4 writes the sums of weight rows, whole tiles, and the group of x that starts at row m to y.
func (ts *tileScratch) foldFP4(c *Cut, m int, y []float32, ldy, rows int, add bool) {
	a, x := &ts.fold, c.X
	a.ldy, a.add, a.mask = 4*ldy, flag(add), 1<<tileSide-1
	a.rows, a.tiles = min(x.rows, c.M1-m), rows/tileSide
	a.nextSums, a.nextY = x.stepBytes(), pairLanes
	a.sums, a.y = at(ts.sums, 0), at(y, 0)
	a.exponentsX, a.exponentsW = at(x.exponents, m), at(ts.nibbles.exponents, 0)
	runKernel(foldKernelsFP4[x.rows], a)
	a.exponentsX, a.exponentsW = nil, nil
}

// streamKernelsFP4 and foldKernelsFP4 are indexed by the number of rows of a group of x.
var (
	streamKernelsFP4 = map[int]func(*streamArgs){
		fewRows: streamFP4x4, halfRows: streamFP4x8, GroupRows: streamFP4x16,
	}
	foldKernelsFP4 = map[int]func(*foldArgs){
		1: foldPlanesOne, fewRows: foldPlanesFour, halfRows: foldPlanesEight, GroupRows: foldPlanesSixteen,
	}
)
