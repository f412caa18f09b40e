//go:build !purego

package vec

import (
	"slices"
	"unsafe"

	"sparrow/internal/block"
)

// gridProduct multiplies one row of x by sixteen weight rows directly from packed blocks, for formats that are unpacked
// for several rows; see _asm/blockgrid.go and blockrow.go.
type gridProduct struct {
	dot    func(*blockArgs)
	unpack func(*blockArgs) // unpacks into plain blocks with planes; nil if the unpacking of all tiers is used
	most   int              // maximum rows of x for which this is faster than unpacking the weights
	points []uint16         // grid as words with the levels of its values; x is then in planes
	quads  bool             // points have four values
	octets []uint64         // grid as non-negative values
}

var grids = map[block.Format]*gridProduct{
	block.IQ2_XXS: {gridDotIQ2XXS, gridUnpackIQ2XXS, 3, octetWords(block.IQ2_XXS), false, nil},
	block.IQ2_XS:  {gridDotIQ2XS, gridUnpackIQ2XS, 3, octetWords(block.IQ2_XS), false, nil},
	block.IQ3_XXS: {gridDotIQ3XXS, gridUnpackIQ3XXS, 3, quadWords(block.IQ3_XXS), true, nil},
	block.IQ3_S:   {gridDotIQ3S, gridUnpackIQ3S, 3, quadWords(block.IQ3_S), true, nil},
	block.Q2_K:    {rowDotQ2K, nil, 2, nil, false, nil},
	block.Q3_K:    {rowDotQ3K, nil, 2, nil, false, nil},
	block.IQ2_S:   {rowDotIQ2S, nil, 2, nil, false, block.IQ2_S.Octets()},
	block.IQ1_S:   {rowDotIQ1S, nil, 2, nil, false, raisedOctets(block.IQ1_S)},
	block.IQ1_M:   {rowDotIQ1M, nil, 2, nil, false, raisedOctets(block.IQ1_M)},
	block.TQ2_0:   {rowDotTQ20, nil, 6, nil, false, nil},
}

// raisedOctets returns the points of a grid with the values -8, 0 and 8, increased by 8.
func raisedOctets(f block.Format) []uint64 {
	points := slices.Clone(f.Octets())
	for i, p := range points {
		raised := uint64(0)
		for j := range 8 {
			raised |= uint64(byte(p>>(8*j))+8) << (8 * j)
		}
		points[i] = raised
	}
	return points
}

// order returns the order of the codes in planes.
func (g *gridProduct) order() int {
	if g.quads {
		return orderQuads
	}
	return orderOctets
}

// octetWords returns grid points of eight values as words with two bits for the level of each value: of each four
// values, value 2 has the lowest bits, then come values 0, 3 and 1.
func octetWords(f block.Format) []uint16 {
	points := f.Octets()
	levels := levelsOf(points, 8)
	words := make([]uint16, len(points))
	for i, p := range points {
		for j := range 8 {
			level, _ := slices.BinarySearch(levels, byte(p>>(8*j)))
			words[i] |= uint16(level) << ([4]int{2, 6, 0, 4}[j%4] + j/4*8)
		}
	}
	return words
}

// quadWords returns grid points of four values as words with four bits for the level of each value.
func quadWords(f block.Format) []uint16 {
	points := f.Quads()
	levels := levelsOf(points, 4)
	words := make([]uint16, len(points))
	for i, p := range points {
		for j := range 4 {
			level, _ := slices.BinarySearch(levels, byte(p>>(8*j)))
			words[i] |= uint16(level) << (4 * j)
		}
	}
	return words
}

// levelsOf returns the distinct values of points of n bytes, in ascending order.
func levelsOf[T uint32 | uint64](points []T, n int) (levels []byte) {
	for _, p := range points {
		for j := range n {
			if i, ok := slices.BinarySearch(levels, byte(p>>(8*j))); !ok {
				levels = slices.Insert(levels, i, byte(p>>(8*j)))
			}
		}
	}
	return levels
}

// planes512 computes the array planes of a quantised row with AVX-512.
func planes512(q quantRow) {
	s := blockScratches.get()
	defer releaseBlocks(s)
	if blocks := len(q.codes) / 256; blocks > 0 {
		s.turn = blockTurnArgs{from: at(q.codes, 0), to: at(q.planes, 0), lines: blocks}
		runKernel(blockPlanesavx512, &s.turn)
	}
}

// mulGrids multiplies one row of x at a time.
func mulGrids(c BlockCut, f block.Format, w []byte, ldw int, g *gridProduct) {
	s := blockScratches.get()
	defer releaseBlocks(s)
	s.ready(&c)
	a := &s.rows
	a.trees, a.grid = s.tiles.sums, unsafe.Pointer(unsafe.SliceData(g.points))
	if g.octets != nil {
		a.grid = unsafe.Pointer(&g.octets[0])
	}
	for j := 0; j < c.N; j += tileSide {
		a.take(&c, f, w, ldw, j, 0, tileSide)
		a.ahead = tileSide * ldw
		for m := c.M0; m < c.M1; m++ {
			x := c.X.row(c.X.unit(m))
			a.x, a.scales, a.sums = at(x.planes, 0), at(x.scales, 0), at(x.sums, 0)
			if g.points == nil {
				a.x = at(x.codes, 0)
			}
			a.y = at(c.Y, (m-c.M0)*c.Ldy+j)
			a.steps = c.X.k / 256
			runKernel(g.dot, a)
			a.ahead = 0
		}
	}
}
