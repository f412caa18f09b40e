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
	bytes  []byte           // grid in two tables of bytes; x is then in planes, and two rows are multiplied at a time
}

// grids has the products of processors with AVX-512 VNNI.
var grids = map[block.Format]*gridProduct{
	block.IQ2_XXS: {dot: gridDotIQ2XXS, unpack: gridUnpackIQ2XXS, most: 3, points: octetWords(block.IQ2_XXS)},
	block.IQ2_XS:  {dot: gridDotIQ2XS, unpack: gridUnpackIQ2XS, most: 3, points: octetWords(block.IQ2_XS)},
	block.IQ3_XXS: {dot: gridDotIQ3XXS, unpack: gridUnpackIQ3XXS, most: 3, points: quadWords(block.IQ3_XXS),
		quads: true},
	block.IQ3_S: {dot: gridDotIQ3S, unpack: gridUnpackIQ3S, most: 3, points: quadWords(block.IQ3_S), quads: true},
	block.Q2_K:  {dot: rowDotQ2K, most: 2},
	block.Q3_K:  {dot: rowDotQ3K, most: 2},
	block.IQ2_S: {dot: rowDotIQ2S, most: 2, octets: block.IQ2_S.Octets()},
	block.IQ1_S: {dot: rowDotIQ1S, most: 2, octets: raisedOctets(block.IQ1_S)},
	block.IQ1_M: {dot: rowDotIQ1M, most: 2, octets: raisedOctets(block.IQ1_M)},
	block.TQ2_0: {dot: rowDotTQ20, most: 6},
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

// The planes of the two kinds of kernels.
var (
	wordPlanes = &planes{fill: func(q quantRow) { fillPlanes(q, blockPlanesavx512) }}
	bytePlanes = &planes{fill: func(q quantRow) { fillPlanes(q, bytePlanesavx512) }}
)

func fillPlanes(q quantRow, kernel func(*blockTurnArgs)) {
	s := blockScratches.get()
	defer releaseBlocks(s)
	if blocks := len(q.codes) / 256; blocks > 0 {
		s.turn = blockTurnArgs{from: at(q.codes, 0), to: at(q.planes, 0), lines: blocks}
		runKernel(kernel, &s.turn)
	}
}

// byteGrids has the products of processors that also have byte permutations; see _asm/gridbytes.go.
var byteGrids = func() map[block.Format]*gridProduct {
	list := map[block.Format]*gridProduct{}
	for f, g := range grids {
		if g.points == nil { // other kernels need planes of words
			list[f] = g
		}
	}
	for f, g := range map[block.Format]gridProduct{
		block.IQ2_XXS: {dot: byteDotIQ2XXS, most: 2},
		block.IQ2_XS:  {dot: byteDotIQ2XS, most: 2},
		block.IQ2_S:   {dot: byteDotIQ2S, most: 1},
		block.IQ3_XXS: {dot: byteDotIQ3XXS, most: 2},
		block.IQ3_S:   {dot: byteDotIQ3S, most: 1},
	} {
		g.bytes = gridBytes(f)
		list[f] = &g
	}
	return list
}()

// gridsFor returns the products for rows of x with their kind of planes.
func gridsFor(x *BlockRows) map[block.Format]*gridProduct {
	if x.planes == bytePlanes {
		return byteGrids
	}
	return grids
}

// gridBytes returns the points of a grid as two bytes each: the first bytes of all points, then the second bytes. A
// byte has the levels of four of eight values in two bits each, or of two of four values in four bits each.
func gridBytes(f block.Format) []byte {
	values, bits, points := 8, 2, f.Octets()
	if points == nil {
		values, bits = 4, 4
		for _, p := range f.Quads() {
			points = append(points, uint64(p))
		}
	}
	levels, table := levelsOf(points, values), alignedBytes(2*len(points))
	for i, p := range points {
		for j := range values {
			level, _ := slices.BinarySearch(levels, byte(p>>(8*j)))
			table[2*j/values*len(points)+i] |= byte(level << (j % (values / 2) * bits))
		}
	}
	return table
}

// pairRows orders sixteen rows as kernels of byteGrids take them, two at a time: rows r and r+4 of each eight.
func (a *blockArgs) pairRows() {
	from := a.rows
	for i := range a.rows {
		a.rows[i] = from[i/8*8+i%2*4+i%8/2]
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
	if g.bytes != nil {
		a.grid = unsafe.Pointer(&g.bytes[0])
	}
	for j := 0; j < c.N; j += tileSide {
		a.take(&c, f, w, ldw, j, 0, tileSide)
		if g.bytes != nil {
			a.pairRows()
		}
		a.ahead = tileSide * ldw
		for m := c.M0; m < c.M1; m++ {
			x := c.X.row(c.X.unit(m))
			a.x, a.scales, a.sums = at(x.planes, 0), at(x.scales, 0), at(x.sums, 0)
			if g.points == nil && g.bytes == nil {
				a.x = at(x.codes, 0)
			}
			a.y = at(c.Y, (m-c.M0)*c.Ldy+j)
			a.steps = c.X.k / 256
			runKernel(g.dot, a)
			a.ahead = 0
		}
	}
}
