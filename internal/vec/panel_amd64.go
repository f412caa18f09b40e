//go:build !purego

package vec

import "unsafe"

// matMulPanels takes a few weight rows at a time, widened into a panel or in place, which stay in the L1 cache, and
// multiplies blockRows rows of x by them. If k is longer than a panel, it processes k in blocks and keeps the sums in
// memory in between. A block of x is multiplied by groupPanels panels in turn while it is in the L2 cache. There are at
// least panelMR rows.
func (s *isa) matMulPanels(sc *scratch, p *product, w *weights) {
	group := groupPanels * s.panels[0].cols
	for i := 0; i < p.m; i += blockRows {
		rows := min(blockRows, p.m-i)
		for j := 0; j < p.n; j += group {
			for k := 0; k < p.k; k += panelK {
				s.panelGroup(sc, p, w, i, rows, j, min(j+group, p.n), k)
			}
		}
	}
}

// panelGroup adds the products of columns [k, k+panelK) of x and of the weights to the sums of rows [i, i+rows) and
// weight rows [j, end).
func (s *isa) panelGroup(sc *scratch, p *product, w *weights, i, rows, j, end, k int) {
	depth := min(panelK, p.k-k)
	a, first := &sc.panel, j
	a.ldAhead = w.ld * w.size()
	for slot := 0; j < end; slot++ {
		kernel := s.panelFor(end - j)
		cols := min(kernel.cols, end-j)
		a.w, a.ldw = w.at(j, k), a.ldAhead
		if w.format != formatF32 || cols < kernel.cols {
			s.packPanel(sc, w, kernel.cols, j, cols, k, depth)
			a.w, a.ldw = at(sc.pack[:], 0), 4*panelLine
		}
		// Without this prefetch, the next panel waits for memory.
		row, col := j+cols, k
		if row == end && k+depth < p.k {
			row, col = first, k+depth
		} else if row == end {
			col = 0
		}
		// The address may be out of range; prefetch ignores that.
		a.ahead = uintptr(w.at(0, 0)) + uintptr(row*a.ldAhead+col*w.size())
		each := 64 * max(rows/s.panelMR, 1) // bytes of a row covered by prefetching one line per tile
		a.lines = (min(panelK, p.k-col)*w.size() + each - 1) / each
		s.panelBlock(sc, p, kernel, slot, i, rows, j, cols, k, depth)
		j += cols
	}
}

// panelFor returns the kernel of the narrowest panel with space for the remaining columns, or of the widest panel.
func (s *isa) panelFor(cols int) panelKernel {
	best := s.panels[0]
	for _, k := range s.panels[1:] {
		if k.cols >= cols {
			best = k
		}
	}
	return best
}

// packPanel widens rows [j, j+cols) and columns [k, k+depth) of the weights. The unused parts of the last register and
// of the panel's rows are zero.
func (s *isa) packPanel(sc *scratch, w *weights, lines, j, cols, k, depth int) {
	whole := (depth + s.vec.lanes - 1) / s.vec.lanes * s.vec.lanes
	for r := range lines {
		line := sc.pack[r*panelLine:][:whole]
		if r >= cols {
			clear(line)
			continue
		}
		w.widen(s, sc, line[:depth], j+r, k)
		clear(line[depth:])
	}
}

// panelBlock multiplies rows [i, i+rows) of x by the panel; slot is the index of the panel in its group. If the last
// rows do not fill a tile, they are computed in a tile that ends with them and overlaps the tile before.
func (s *isa) panelBlock(sc *scratch, p *product, kernel panelKernel, slot, i, rows, j, cols, k, depth int) {
	a := &sc.panel
	a.ldx = 4 * p.ldx
	a.steps = depth / s.vec.lanes
	a.mask = 1<<(depth%s.vec.lanes) - 1
	a.maskVec = tailMask(depth % s.vec.lanes)
	a.first, a.last = flag(k == 0), flag(k+depth == p.k)
	tiles := rows / s.panelMR
	tileSums := s.panelMR * kernel.cols * s.vec.lanes
	sums := sc.sums[slot*panelSums:][:panelSums]
	if tiles > 0 {
		s.panelTiles(sc, p, kernel, i, tiles, sums, j, cols, k)
	}
	if rows%s.panelMR > 0 {
		s.panelTiles(sc, p, kernel, i+rows-s.panelMR, 1, sums[tiles*tileSums:], j, cols, k)
	}
}

// panelTiles runs tiles, starting at row i, and stores their sums in sums between blocks of k.
func (s *isa) panelTiles(sc *scratch, p *product, kernel panelKernel, i, tiles int, sums []float32, j, cols, k int) {
	a := &sc.panel
	a.tiles = tiles
	a.x = at(p.x, i*p.ldx+k)
	a.sums = at(sums, 0)
	if cols == kernel.cols {
		a.y, a.ldy = at(p.y, i*p.ldy+j), 4*p.ldy
		runKernel(kernel.run, a)
		return
	}
	a.y, a.ldy = at(sc.edge[:], 0), 4*kernel.cols
	runKernel(kernel.run, a)
	if a.last == 0 {
		return
	}
	for r := range tiles * s.panelMR {
		copy(p.y[(i+r)*p.ldy+j:][:cols], sc.edge[r*kernel.cols:])
	}
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// maskWindow holds vector masks: a mask of n lanes starts at index 8-n.
var maskWindow = [16]int32{-1, -1, -1, -1, -1, -1, -1, -1}

// tailMask returns a vector mask of the first n < 8 lanes. Kernels with 16 lanes use a bit mask instead.
func tailMask(n int) unsafe.Pointer {
	return at(maskWindow[:], max(0, 8-n))
}
