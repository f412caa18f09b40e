//go:build !purego

package vec

import (
	"math"
	"slices"
)

func (s *isa) matMulF32(p *product, w []float32) {
	s.matMul(p, weights{format: formatF32, f32: w, ld: p.ldw})
}

func (s *isa) matMulBF16(p *product, w []byte) {
	s.matMul(p, weights{format: formatBF16, b: w, ld: p.ldw})
}

func (s *isa) matMulFP8(p *product, w []byte, scale blockScale) {
	s.matMul(p, weights{format: formatFP8, b: w, ld: p.ldw, scale: scale})
}

func (s *isa) dot(a, b []float32) float32 {
	var y [1]float32
	p := product{y: y[:], x: a, m: 1, n: 1, k: len(a)}
	s.matMul(&p, weights{format: formatF32, f32: b})
	return y[0]
}

// matMul multiplies few rows by weights as they are and many rows by packed
// ones. Both keep one register of sums per element and take k in ascending
// registers, so which one ran cannot be told from the result.
func (s *isa) matMul(p *product, w weights) {
	sc := borrow()
	defer giveBack(sc)
	if p.m <= s.rowsUpTo[w.format] {
		s.matMulRows(sc, p, &w)
		return
	}
	s.matMulPanels(sc, p, &w)
}

// rowsChunk is the bytes of weights one call of a row kernel reads: about 10
// microseconds from memory, and small enough to be cached for more rows of x.
const rowsChunk = 128 << 10

func (s *isa) matMulRows(sc *scratch, p *product, w *weights) {
	chunk := max(4, rowsChunk/(p.k*w.size())&^3)
	for j := 0; j < p.n; {
		cols := w.band(j, min(chunk, p.n-j))
		for i := 0; i < p.m; i += s.rowsMR {
			s.rowsBlock(sc, p, w, i, min(s.rowsMR, p.m-i), j, cols)
		}
		j += cols
	}
}

// rowsBlock computes y[i:i+rows, j:j+cols], where the weights' rows share
// their scales.
func (s *isa) rowsBlock(sc *scratch, p *product, w *weights, i, rows, j, cols int) {
	a := &sc.rows
	a.ldy, a.ldx, a.ldw = 4*p.ldy, 4*p.ldx, w.size()*w.ld
	a.x = at(p.x, i*p.ldx)
	a.steps = p.k / s.lanes
	a.xTail, a.wTail = nil, nil
	if w.format == formatFP8 {
		a.scale, a.bias = at(w.scale.row(j), 0), 256
	}
	tail := p.k % s.lanes
	if tail > 0 {
		for r := range rows {
			s.padded(sc.xTail[:], r, p.x[(i+r)*p.ldx+p.k-tail:][:tail])
		}
		a.xTail, a.wTail = at(sc.xTail[:], 0), at(sc.wTail[:], 0)
	}
	kernels := &s.rows[w.format][rows-1]
	end := j + cols
	for j < end {
		kernel, width, groups := kernels[0], 4, (end-j)/4
		switch {
		case groups == 0 && cols >= 4:
			// The last few columns again, together with some before them.
			j, groups = end-4, 1
		case groups == 0:
			kernel, width, groups = kernels[1], 1, end-j
		}
		if tail > 0 {
			groups = 1
			for r := range width {
				lane := s.padded(sc.wTail[:], r, nil)
				w.widen(s, sc, lane[:tail], j+r, p.k-tail)
			}
		}
		a.y, a.w, a.groups = at(p.y, i*p.ldy+j), w.at(j, 0), groups
		runRows(kernel, a)
		if w.format == formatFP8 && sawNaN(&a.codes) {
			p.markNaN(w, i, rows, j, width*groups)
		}
		j += width * groups
	}
}

// padded clears the register of the given row in a tail buffer, copies values
// to its start and returns it.
func (s *isa) padded(buffer []float32, row int, values []float32) []float32 {
	lane := buffer[row*s.lanes:][:s.lanes]
	clear(lane)
	copy(lane, values)
	return lane
}

// markNaN sets the sums whose weights contain a NaN code, which the row
// kernels read as a number. It is the rare end of a rare case: checkpoints
// hold no NaN.
func (p *product) markNaN(w *weights, i, rows, j, cols int) {
	nan := float32(math.NaN())
	for c := j; c < j+cols; c++ {
		if !slices.ContainsFunc(w.b[c*w.ld:][:p.k], isNaN) {
			continue
		}
		for r := i; r < i+rows; r++ {
			p.y[r*p.ldy+c] = nan
		}
	}
}
