//go:build !purego

package vec

func (s *isa) accumulateF32(p product, w []float32) {
	s.accumulate(&p, weights{format: formatF32, f32: w, ld: p.ldw})
}

func (s *isa) accumulateBF16(p product, w []byte) {
	s.accumulate(&p, weights{format: formatBF16, b: w, ld: p.ldw})
}

func (s *isa) accumulateFP8(p product, w []byte, scale FP8Blocks) {
	s.accumulate(&p, weights{format: formatFP8, b: w, ld: p.ldw, scale: scale})
}

// accumulate processes the columns in tiles that fit the registers. Few rows use
// the weights without packing if there is a kernel for it; otherwise, and at the ragged
// end, a block of weights is widened first and shared by all rows.
func (s *isa) accumulate(p *product, w weights) {
	sc := takeScratch()
	defer releaseScratch(sc)
	for j := 0; j < p.n; {
		left := p.n - j
		switch {
		case p.m == 1 && left >= s.wideCols:
			s.accWide(sc, p, &w, j)
			j += s.wideCols
		case p.m <= accMR && left >= s.accCols && w.format == formatF32:
			s.accDirect(sc, p, &w, j)
			j += s.accCols
		default:
			cols := min(left, s.accCols)
			s.accPacked(sc, p, &w, j, cols, 0, p.k)
			j += cols
		}
	}
}

// accCall is the number of rows of weights that one call of a kernel processes without packing: a few microseconds.
const accCall = 1024

// accWide adds the product of one row with wideCols columns from j on.
func (s *isa) accWide(sc *scratch, p *product, w *weights, j int) {
	for d := 0; d < p.k; {
		n := w.band(d, min(accCall, p.k-d))
		a := &sc.acc
		*a = accArgs{y: at(p.y, j), x: at(p.x, d), w: w.at(d, j), ldw: w.size() * w.ld, d: n}
		if w.format == formatFP8 {
			a.scale = 256 * w.scale.row(d)[j/scaleBlock]
		}
		runKernel(s.wide[w.format], a)
		if a.nan != 0 {
			for c := 0; c < s.wideCols; c += s.accCols {
				s.accPacked(sc, p, w, j+c, s.accCols, d, d+n)
			}
		}
		d += n
	}
}

// accDirect adds the products of up to accMR rows with accCols columns of
// float32 weights.
func (s *isa) accDirect(sc *scratch, p *product, w *weights, j int) {
	for d := 0; d < p.k; d += accCall {
		a := &sc.acc
		*a = accArgs{
			y: at(p.y, j), ldy: 4 * p.ldy,
			x: at(p.x, d), ldx: 4 * p.ldx,
			w: w.at(d, j), ldw: 4 * w.ld,
			d: min(accCall, p.k-d),
		}
		runKernel(s.acc[p.m-1], a)
	}
}

// accPacked adds the products with rows [d, end) of the weights and cols
// columns from j on, at most accCols.
func (s *isa) accPacked(sc *scratch, p *product, w *weights, j, cols, d, end int) {
	for d < end {
		n := w.band(d, min(accDepth, end-d))
		s.packBlock(sc, sc.pack[:], w, j, cols, d, n)
		s.accTiles(sc, sc.pack[:], p, j, cols, d, n)
		d += n
	}
}

// packBlock widens rows [d, d+n) and cols columns from j on to [n, accCols], in one call unless
// the block is narrower than its rows or contains a NaN.
func (s *isa) packBlock(sc *scratch, pack []float32, w *weights, j, cols, d, n int) {
	if cols == s.accCols {
		a := &sc.acc
		*a = accArgs{y: at(pack, 0), w: w.at(d, j), ldw: w.size() * w.ld, d: n}
		if w.format == formatFP8 {
			a.scale = 256 * w.scale.row(d)[j/scaleBlock]
		}
		runKernel(s.pack[w.format], a)
		if a.nan == 0 {
			return
		}
	}
	for r := range n {
		line := pack[r*s.accCols:][:s.accCols]
		w.widen(s, sc, line[:cols], d+r, j)
		clear(line[cols:])
	}
}

// accTiles adds the products of all rows with a packed block.
func (s *isa) accTiles(sc *scratch, pack []float32, p *product, j, cols, d, n int) {
	for i := 0; i < p.m; i += accMR {
		s.accTile(sc, pack, p, i, min(accMR, p.m-i), j, cols, d, n)
	}
}

// accTile adds the product of rows [i, i+rows) with the packed block, through
// a full-width copy of y where y is narrower.
func (s *isa) accTile(sc *scratch, pack []float32, p *product, i, rows, j, cols, d, n int) {
	a := &sc.acc
	*a = accArgs{
		y: at(p.y, i*p.ldy+j), ldy: 4 * p.ldy,
		x: at(p.x, i*p.ldx+d), ldx: 4 * p.ldx,
		w: at(pack, 0), ldw: 4 * s.accCols,
		d: n,
	}
	if cols == s.accCols {
		runKernel(s.acc[rows-1], a)
		return
	}
	a.y, a.ldy = at(sc.edgeAcc[:], 0), 4*s.accCols
	for r := range rows {
		copy(sc.edgeAcc[r*s.accCols:], p.y[(i+r)*p.ldy+j:][:cols])
	}
	runKernel(s.acc[rows-1], a)
	for r := range rows {
		copy(p.y[(i+r)*p.ldy+j:][:cols], sc.edgeAcc[r*s.accCols:])
	}
}
