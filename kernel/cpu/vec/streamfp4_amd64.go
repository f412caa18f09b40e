//go:build !purego

package vec

// e2m1 weights of few rows of x are streamed as e4m3 weights are (see stream_amd64.go),
// in blocks of 128 columns, which are 64 bytes. Every row has its own scales, which the
// kernel subtracts from exponents; weights whose scales leave the range of normal numbers
// take the way of the panels.

// unitRowsFP4 is the rows of a unit of e2m1 weights, for groups of so many rows of x.
func unitRowsFP4(rows int) int {
	if rows > halfRows {
		return blockW
	}
	return streamRows
}

// streamFP4 multiplies few groups of columns by e2m1 weights that are read once from
// memory.
func (ts *tileScratch) streamFP4(c *Cut, w *panelWeights) {
	for j := 0; j < c.N; {
		u := w.unitsFP4(c, j)
		rows := u.rows
		for m := c.M0; m < c.M1; m += c.X.rows {
			group := *c
			group.M0, group.M1, group.Y = m, min(m+c.X.rows, c.M1), c.Y[(m-c.M0)*c.Ldy:]
			if u.rows == 0 || !ts.unitsTimes(&group, w, u) {
				rows = ts.streamRest(&group, w, j, 0, max(u.rows, min(blockW, c.N-j)))
				continue
			}
			if u.depth == w.k {
				ts.foldUnits(&group, u)
				continue
			}
			ts.spreadSums(c.X, u.rows)
			ts.streamRest(&group, w, j, u.depth, u.rows)
		}
		j += rows
	}
}

// unitsFP4 finds as many rows from row j on as a kernel takes at once, which may be none.
func (w *panelWeights) unitsFP4(c *Cut, j int) streamUnits {
	each := unitRowsFP4(c.X.rows)
	u := streamUnits{row: j, each: each, depth: w.k / blockFP4 * blockFP4, folded: true}
	most := min(streamBlocks*blockFP4/u.depth, sumsBytes/(each*c.X.tiles()*c.X.lineBytes()))
	if u.depth < w.k || u.depth > unitBlocks*blockFP4 || c.M1-c.M0 > c.X.rows {
		most = 1
	}
	u.rows = min(most, (c.N-j)/each) * each
	return u
}

// unitsTimes multiplies the units, a call after the other where one is too long, or
// reports that their scales do not allow it.
func (ts *tileScratch) unitsTimes(c *Cut, w *panelWeights, u streamUnits) bool {
	clear(ts.sums[:u.rows*c.X.tiles()*c.X.lineBytes()])
	for from := 0; from < u.depth; from += unitBlocks * blockFP4 {
		depth := min(u.depth-from, unitBlocks*blockFP4)
		if !ts.normalUnits(w, u, from, depth) {
			return false
		}
		ts.aheadOfUnits(c, w, u, from/2, depth/2)
		a, x := &ts.flow, c.X
		ts.flowShapes(x)
		a.w, a.ldw, a.lower = at(w.b, u.row*w.ld+from/2), w.ld, blockW*w.ld
		a.nextW = u.each*w.ld - depth/2
		a.x = at(x.mem[:cap(x.mem)], c.M0/x.rows*x.groupBytes()+from/stepDepth*x.stepBytes())
		a.panel, a.sums, a.scales = at(ts.panel, 0), at(ts.sums, 0), at(w.scales, u.row*w.ldScale+from/GroupFP4)
		a.ldScale, a.lowerScales, a.nextScales = w.ldScale, blockW*w.ldScale, u.each*w.ldScale-depth/GroupFP4
		a.units, a.blocks = u.rows/u.each, depth/blockFP4
		a.left = a.blocks
		runKernel(streamKernelsFP4[x.rows], a)
	}
	return true
}

// normalUnits reports whether the kernel can take the scales of units for the columns
// [from, from+depth), and prefetches those of the rows after them.
func (ts *tileScratch) normalUnits(w *panelWeights, u streamUnits, from, depth int) bool {
	a := &ts.check
	a.scale = at(w.scales, u.row*w.ldScale+from/GroupFP4)
	a.ldScale, a.rows, a.count, a.ahead = w.ldScale, u.rows, depth/GroupFP4, u.rows*w.ldScale
	runKernel(scalesFP4, a)
	return a.nan == 0
}

// streamKernelsFP4 is by rows of a group of x.
var streamKernelsFP4 = map[int]func(*streamArgs){
	1:         streamFP4x1,
	fewRows:   streamFP4x4,
	halfRows:  streamFP4x8,
	GroupRows: streamFP4x16,
}
