//go:build !purego

package vec

import (
	"math"
	"slices"
)

func (s *isa) matMulF32(p product, w []float32) {
	s.matMul(&p, weights{format: formatF32, f32: w, ld: p.ldw})
}

func (s *isa) matMulBF16(p product, w []byte) {
	s.matMul(&p, weights{format: formatBF16, b: w, ld: p.ldw})
}

func (s *isa) matMulFP8(p product, w []byte, scale FP8Blocks) {
	s.matMul(&p, weights{format: formatFP8, b: w, ld: p.ldw, scale: scale})
}

// matMulF16 widens bands of the weights, without special kernels: GGUF files have few float16 matrices.
func (s *isa) matMulF16(p product, w []byte) {
	const band = 96 // rows: whole panels
	buf := wideRows.get()
	defer wideRows.put(buf)
	wide := sized(buf, min(band, p.n)*p.k)
	for j := 0; j < p.n; j += band {
		cut := p
		cut.y, cut.n, cut.ldw = p.y[j:], min(band, p.n-j), p.k
		for r := range cut.n {
			widenF16Go(wide[r*p.k:][:p.k], w[2*(j+r)*p.ldw:])
		}
		s.matMulF32(cut, wide)
	}
}

func (s *isa) dot(a, b []float32) float32 {
	sc := takeScratch()
	defer releaseScratch(sc)
	p := product{y: sc.one[:], x: a, m: 1, n: 1, k: len(a)}
	s.matMulRows(sc, &p, &weights{format: formatF32, f32: b})
	return sc.one[0]
}

// matMul multiplies few rows by weights in place and many rows by packed weights. Both keep one register of sums per
// element and process k in ascending registers, so their results are bitwise equal.
func (s *isa) matMul(p *product, w weights) {
	sc := takeScratch()
	defer releaseScratch(sc)
	if p.m <= s.rowsUpTo[w.format] {
		s.matMulRows(sc, p, &w)
		return
	}
	s.matMulPanels(sc, p, &w)
}

// rowsChunk is the number of bytes of weights that one call of a row kernel reads: about 10 microseconds from memory,
// and small enough to stay in the cache for further rows of x.
const rowsChunk = 128 << 10

// matMulRows processes the weights in bands that share their scales. Four rows of a band are multiplied at a time, one
// of each of four runs of rows, so that memory is read as four long streams.
func (s *isa) matMulRows(sc *scratch, p *product, w *weights) {
	chunk := max(1, rowsChunk/(4*p.k*w.size()))
	for j := 0; j < p.n; {
		first, end := j, j+w.band(j, p.n-j)
		f := s.factor(sc, p, w, j)
		for j < end {
			c := rowsCut{j: j, rows: 4, apart: (end - j) / 4, groups: (end - j) / 4}
			switch {
			case c.groups == 0 && end-first >= 4:
				// The last rows that are fewer than four, together with some of the rows before them.
				c = rowsCut{j: end - 4, rows: 4, apart: 1, groups: 1}
			case c.groups == 0:
				c = rowsCut{j: j, rows: 1, apart: 1, groups: end - j}
			}
			j = c.j + c.rows*c.groups
			for left := c.groups; left > 0; left -= c.groups {
				c.groups = min(chunk, left)
				for i := 0; i < p.m; i += s.rowsMR {
					s.rowsBlock(sc, p, w, &f, i, min(s.rowsMR, p.m-i), c)
				}
				c.j += c.groups
			}
		}
	}
}

// rowsCut is a list of groups of four weight rows, or of one. The first row of group g is j+g, the others of the group
// are apart rows from each other.
type rowsCut struct{ j, rows, apart, groups int }

// factor is the left factor for a band of weights and the kernels that multiply it.
type factor struct {
	x       []float32 // [m, k], rows ldx apart
	ldx     int
	kernels *[4][2]func(*rowsArgs)
}

// factor chooses how the scales of e4m3 weights are applied. If the band's scales are powers of two, as in most
// checkpoints, scaling x instead is exact and saves two of ten instructions per 32 weights; the products and the sums
// are the same numbers. For every x it checks whether this is exact.
func (s *isa) factor(sc *scratch, p *product, w *weights, j int) factor {
	plain := factor{x: p.x, ldx: p.ldx, kernels: &s.rows[w.format]}
	whole := p.k / s.vec.lanes * s.vec.lanes
	if w.format != formatFP8 || whole == 0 {
		return plain
	}
	scales := w.scale.row(j)[:(whole-1)/w.scale.Cols+1]
	if slices.ContainsFunc(scales, notPowerOfTwo) {
		return plain
	}
	if cap(sc.xScaled) < p.m*whole {
		sc.xScaled = make([]float32, p.m*whole)
	}
	scaled := factor{x: sc.xScaled[:p.m*whole], ldx: whole, kernels: &s.rowsCode}
	for i := range p.m {
		if !s.vec.scaleExact(sc, scaled.x[i*whole:][:whole], p.x[i*p.ldx:][:whole], blocks{scales, w.scale.Cols}) {
			return plain
		}
	}
	return scaled
}

// notPowerOfTwo reports whether a scale is not a power of two, or would make some e4m3 value a subnormal or infinite
// float32.
func notPowerOfTwo(scale float32) bool {
	bits := math.Float32bits(scale)
	return bits&(1<<23-1) != 0 || bits < (127-100)<<23 || bits > (127+100)<<23
}

// rowsBlock computes the products of rows i to i+rows of x and weight rows that share their scales.
func (s *isa) rowsBlock(sc *scratch, p *product, w *weights, f *factor, i, rows int, c rowsCut) {
	a := &sc.rows
	a.ldy, a.ldx, a.ldw, a.apart, a.next = 4*p.ldy, 4*f.ldx, w.size()*w.ld*c.apart, 4*c.apart, w.size()*w.ld
	a.x = at(f.x, i*f.ldx)
	a.steps = p.k / s.vec.lanes
	a.xTail, a.wTail = nil, nil
	if w.format == formatFP8 {
		a.scale, a.bias, a.each = at(w.scale.row(c.j), 0), 256, w.scale.Cols/s.vec.lanes
	}
	kernel := f.kernels[rows-1][0]
	if c.rows == 1 {
		kernel = f.kernels[rows-1][1]
	}
	tail, each := p.k%s.vec.lanes, c.groups
	if tail > 0 {
		for r := range rows {
			s.vec.padded(sc.xTail[:], r, p.x[(i+r)*p.ldx+p.k-tail:][:tail])
		}
		a.xTail, a.wTail, each = at(sc.xTail[:], 0), at(sc.wTail[:], 0), 1
	}
	for j := c.j; j < c.j+c.groups; j += each {
		if tail > 0 {
			for r := range c.rows {
				lane := s.vec.padded(sc.wTail[:], r, nil)
				w.widen(s, sc, lane[:tail], j+r*c.apart, p.k-tail)
			}
		}
		a.y, a.w, a.groups = at(p.y, i*p.ldy+j), w.at(j, 0), each
		runKernel(kernel, a)
		if w.format == formatFP8 && sawNaN(&a.codes) {
			for r := range c.rows {
				p.markNaN(w, i, rows, j+r*c.apart, each)
			}
		}
	}
}

// padded clears one register of a tail buffer, copies values to its start and returns it.
func (s *vectors) padded(buffer []float32, row int, values []float32) []float32 {
	lane := buffer[row*s.lanes:][:s.lanes]
	clear(lane)
	copy(lane, values)
	return lane
}

// markNaN sets the results whose weights contain a NaN code, which the row kernels read as a number. It is slow, but
// checkpoints have no NaN.
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
