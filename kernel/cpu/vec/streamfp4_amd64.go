//go:build !purego

package vec

import "unsafe"

// Products with e2m1 weights add integers: rows of x are integers times a power of two
// (see Columns), and a weight is twice its value, an integer, times a power of two. The
// scales of a row of weights within a factor of eight of the largest are its window:
// weights of these groups, all times the same power of two, are integers below 128, and
// others are zero. A row with scales below its window is multiplied again under a
// window of those, and so on; results are added in this order.
//
// So a sum is exact, whatever the order and the number of rows computed at once, and is
// rounded when it is written.

const (
	blockFP4    = 128 // e2m1 weights of a row that are decoded together
	windowFP4   = 4   // powers of two in a window
	mostRowsFP4 = 512 // of weights in a call
	// exponentFP4 is the exponent of a row less its largest scale: that of scales, of halves, and of the window.
	exponentFP4 = -(127 + 1 + windowFP4 - 1)
	noLimit     = 256 // above all scales
)

// exponentsFP4 is the exponents of rows by their largest scale.
var exponentsFP4 = func() (t [256]float32) {
	for scale := range t {
		t[scale] = float32(scale + exponentFP4)
	}
	t[255] = nan32
	return t
}()

// nibbleTiles is the memory for the windows of rows of weights and for results that are not complete.
type nibbleTiles struct {
	args      windowArgs
	windows   []byte      // [rows, groups]
	exponents []float32   // [rows]
	below     []byte      // [rows]: whether there are scales below the window
	copies    []byte      // [unit, whole blocks]: rows that are not multiplied in place
	picked    []pickedRow // those rows, first to last
	part      []float32   // [rows of a group of x, unit]: their results under one window
	y         []float32   // [rows of x, rows of weights]: results under the windows so far
}

// pickedRow is a row of a call's weights to be multiplied under the window of scales below a limit.
type pickedRow struct{ row, limit int }

// nibbleWeights is a matrix of e2m1 weights.
type nibbleWeights struct {
	b       []byte
	ld, k   int
	scales  []byte
	ldScale int
}

func (w *nibbleWeights) groups() int { return (w.k + GroupFP4 - 1) / GroupFP4 }
func (w *nibbleWeights) blocks() int { return (w.k + blockFP4 - 1) / blockFP4 }

// tiledFP4 multiplies units of rows of weights by all groups of rows of x.
func tiledFP4(c Cut, b []byte, ldw int, scale []byte, ldScale int) {
	w := &nibbleWeights{b: b, ld: ldw, k: c.X.k, scales: scale, ldScale: ldScale}
	ts := tileScratches.get()
	defer releaseTiles(ts)
	ts.ready()
	u := streamUnits{each: streamRows, depth: w.k}
	if c.X.tiles() > 1 {
		u.each = blockW
	}
	most := max(u.each, min(mostRowsFP4, streamBlocks*streamRows*blockFP4/w.k))
	for ; u.row < c.N; u.row += u.rows {
		if u.rows = min(most, c.N-u.row) / u.each * u.each; u.rows > 0 && w.k%blockFP4 == 0 {
			ts.unitsFP4(&c, w, u)
			continue
		}
		u.rows = min(u.each, c.N-u.row)
		ts.copiesFP4(&c, w, u)
	}
}

// unitsFP4 multiplies units whose rows are whole blocks in place, and copies of rows with scales below their window
// again.
func (ts *tileScratch) unitsFP4(c *Cut, w *nibbleWeights, u streamUnits) {
	n := &ts.nibbles
	n.reserve(u.rows, w.groups())
	a := &n.args
	a.scale, a.ldScale, a.rows, a.count = at(w.scales, u.row*w.ldScale), w.ldScale, u.rows, w.groups()
	a.ahead = u.rows * w.ldScale
	a.table, a.windows = unsafe.Pointer(&exponentsFP4), at(n.windows, 0)
	a.exponents, a.below = at(n.exponents, 0), at(n.below, 0)
	runKernel(windowsFP4, a)
	n.picked = n.picked[:0]
	for r, below := range n.below {
		if e := n.exponents[r]; below != 0 && e == e {
			n.picked = append(n.picked, pickedRow{r, int(e) - exponentFP4 - windowFP4 + 1})
		}
	}
	whole := len(n.picked) == 0
	if !whole {
		sized(&n.y, (c.M1-c.M0)*u.rows)
	}
	for m := c.M0; m < c.M1; m += c.X.rows {
		ts.aheadOfRows(uintptr(at(w.b, u.row*w.ld)), w.ld, u, w.k/2, u.row+u.rows < c.N)
		ts.timesFP4(c, m, at(w.b, u.row*w.ld), w.ld, u)
		if whole {
			ts.foldFP4(c, m, c.Y[(m-c.M0)*c.Ldy+u.row:], c.Ldy, u.rows, c.Add)
		} else {
			ts.foldFP4(c, m, n.y[(m-c.M0)*u.rows:], u.rows, u.rows, false)
		}
	}
	if !whole {
		ts.windowsBelow(c, w, u)
	}
}

// copiesFP4 multiplies copies of rows that are no unit or no whole blocks.
func (ts *tileScratch) copiesFP4(c *Cut, w *nibbleWeights, u streamUnits) {
	n := &ts.nibbles
	n.picked = n.picked[:0]
	for r := range u.rows {
		n.picked = append(n.picked, pickedRow{r, noLimit})
	}
	sized(&n.y, (c.M1-c.M0)*u.rows)
	ts.windowsBelow(c, w, u)
}

// windowsBelow multiplies copies of the picked rows under one window after the other, and writes the results of all
// rows to y.
func (ts *tileScratch) windowsBelow(c *Cut, w *nibbleWeights, u streamUnits) {
	n := &ts.nibbles
	y := n.y[:(c.M1-c.M0)*u.rows]
	stride, groups := w.blocks()*blockFP4/2, w.blocks()*blockFP4/GroupFP4
	n.reserve(u.each, groups)
	codes := sizedBytes(&n.copies, u.each*stride)
	sized(&n.part, c.X.rows*u.each)
	for from := 0; from < len(n.picked); {
		end := from
		for ; end < len(n.picked) && end-from < u.each; end++ {
			p, i := n.picked[end], end-from
			copy(codes[i*stride:], w.b[(u.row+p.row)*w.ld:][:w.k/2])
			to := n.windows[i*groups:][:groups]
			top, below := scalesWindow(to, w.scales[(u.row+p.row)*w.ldScale:][:w.groups()], p.limit)
			n.exponents[i] = exponentsFP4[top]
			if below && top < 255 {
				n.picked = append(n.picked, pickedRow{p.row, top - windowFP4 + 1})
			}
		}
		unit := streamUnits{rows: u.each, each: u.each, depth: u.depth}
		for m := c.M0; m < c.M1; m += c.X.rows {
			ts.aheadOfRows(uintptr(at(codes, 0)), stride, unit, stride, false)
			ts.timesFP4(c, m, at(codes, 0), stride, unit)
			ts.foldFP4(c, m, n.part, u.each, u.each, false)
			for i, p := range n.picked[from:end] {
				for r := range min(c.X.rows, c.M1-m) {
					v := n.part[r*u.each+i]
					if to := &y[(m-c.M0+r)*u.rows+p.row]; p.limit == noLimit {
						*to = v
					} else {
						*to += v
					}
				}
			}
		}
		from = end
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

// scalesWindow writes the window of scales below a limit and returns the largest of them, and whether there are some
// below the window.
func scalesWindow(to, scales []byte, limit int) (top int, below bool) {
	for _, s := range scales {
		if int(s) < limit {
			top = max(top, int(s))
		}
	}
	clear(to)
	for i, s := range scales {
		switch down := top - int(s); {
		case down >= windowFP4:
			below = true
		case down >= 0:
			to[i] = byte((windowFP4-1-down)<<4 | 15)
		}
	}
	return top, below
}

// reserve allocates memory for the windows of rows.
func (n *nibbleTiles) reserve(rows, groups int) {
	n.windows = sizedBytes(&n.windows, rows*groups)
	n.below = sizedBytes(&n.below, rows)
	n.exponents = sized(&n.exponents, rows)
}

// timesFP4 multiplies the group of x from row m on by units of rows at w, ld bytes apart, whose windows are known.
func (ts *tileScratch) timesFP4(c *Cut, m int, w unsafe.Pointer, ld int, u streamUnits) {
	a, x := &ts.flow, c.X
	ts.flowShapes(x)
	a.blocks = (u.depth + blockFP4 - 1) / blockFP4
	groups := a.blocks * blockFP4 / GroupFP4
	a.w, a.ldw, a.lower, a.nextW = w, ld, blockW*ld, u.each*ld-a.blocks*blockFP4/2
	a.x = at(x.mem[:cap(x.mem)], m/x.rows*x.groupBytes())
	a.panel, a.sums, a.scales = at(ts.panel, 0), at(ts.sums, 0), at(ts.nibbles.windows, 0)
	a.ldScale, a.lowerScales, a.nextScales = groups, blockW*groups, (u.each-1)*groups
	a.units, a.left = u.rows/u.each, a.blocks
	runKernel(streamKernelsFP4[x.rows], a)
}

// foldFP4 writes the sums of rows of weights, whole tiles, by the group of x from row m on.
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

// streamKernelsFP4 and foldKernelsFP4 are by rows of a group of x.
var (
	streamKernelsFP4 = map[int]func(*streamArgs){1: streamFP4x1, fewRows: streamFP4x4, GroupRows: streamFP4x16}
	foldKernelsFP4   = map[int]func(*foldArgs){
		1: foldPlanesOne, fewRows: foldPlanesFour, GroupRows: foldPlanesSixteen,
	}
)
