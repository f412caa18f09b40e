//go:build !purego

package vec

import (
	"math/bits"
	"unsafe"

	"sparrow/internal/block"
)

// plainProduct is the product of a format without its own kernels: unpack converts a few blocks of some rows to plain
// blocks, dot multiplies the plain blocks by one row of x, and dot4 by up to four rows; see _asm/blockplain.go.
type plainProduct struct {
	unpack, dot, dot4 func(*blockArgs)
	rows              int // weight rows at a time
	bytes             int // bytes of a plain block
}

const (
	plainDepth   = 512 // values of a row at a time, so that the plain blocks of sixteen rows stay in the L1 cache
	plainBytes   = 384 // bytes of a plain block of 256
	plainBytes32 = 36
)

// mulUnpacked multiplies rows of x, one or up to four at a time, by weights that are unpacked once for all rows.
func mulUnpacked(c BlockCut, f block.Format, w []byte, ldw int, p plainProduct) {
	s := blockScratches.get()
	defer releaseBlocks(s)
	s.ready(&c)
	// One line of results for each row of x. Kernels of four rows may read and write lines after the last row.
	if n := (c.M1 - c.M0 + blockRowsOnce) * lineBytes; len(s.results) < n {
		s.results = alignedBytes(n + n/4)
	}
	a, block, pitch := &s.rows, f.Bytes(), plainDepth/f.Values()*p.bytes
	shift := bits.TrailingZeros(uint(c.X.group)) // the values of a block share a scale of x
	x := plainRows{mem: c.X.mem, first: c.M0 * c.X.unitBytes(), bytes: c.X.unitBytes(), rows: c.M1 - c.M0, shift: shift,
		scales: c.X.codesBytes(), sums: c.X.sumsAt()}
	s.readyPlain(&c, &p, pitch)
	a.panel, a.grid = at(s.panel, 0), gridOf(f)
	for j := 0; j < c.N; j += p.rows {
		clear(s.results[:(c.M1-c.M0)*lineBytes])
		a.take(&c, f, w, ldw, j, 0, p.rows)
		a.ahead, a.last = p.rows*ldw, 0
		for k := 0; k < c.X.k; k += plainDepth {
			blocks := plainDepth >> shift
			if c.X.k-k < plainDepth {
				blocks = (c.X.k - k) >> shift
			}
			a.steps, a.count, a.second = blocks, p.rows, pitch-blocks*p.bytes
			runKernel(p.unpack, a)
			s.dotPlain(&x, &p, k>>shift, blocks)
			a.last += blocks * block
		}
		for m := range c.M1 - c.M0 {
			to := c.Y[m*c.Ldy+j:][:min(p.rows, c.N-j)]
			for r, v := range unsafe.Slice((*float32)(at(s.results, m*lineBytes)), len(to)) {
				if c.Add {
					v += to[r]
				}
				to[r] = v
			}
		}
	}
}

// readyPlain sets the arguments that the products of a call share. Plain blocks of a row are pitch bytes apart.
func (s *blockScratch) readyPlain(c *BlockCut, p *plainProduct, pitch int) {
	a := &s.plain
	for r := range p.rows {
		a.rows[r], a.offsets[r] = at(s.panel, r*pitch), int32(r*pitch)
	}
	for r := range a.lanes {
		a.lanes[r] = -1
	}
	a.strideX, a.ldy, a.trees = c.X.unitBytes(), lineBytes, s.tiles.sums
	a.mask, a.add = 1<<tileSide-1, 0
}

// plainRows describes the rows of x of a call: their address, and the byte offsets of their scales and sums.
type plainRows struct {
	mem          []byte
	first, bytes int
	scales, sums int
	rows         int
	shift        int // log2 of the values of a block
}

// dotPlain adds the products of rows of x, starting at a block, and some plain blocks of each weight row to the
// results.
func (s *blockScratch) dotPlain(x *plainRows, p *plainProduct, block, blocks int) {
	a, once, sums := &s.plain, 1, 32*block
	if p.dot4 != nil {
		once = blockRowsOnce
	}
	if x.shift == 5 {
		sums = 4 * block
	}
	for m := 0; m < x.rows; m += once {
		row := x.mem[x.first+m*x.bytes:][:x.bytes]
		a.x, a.scales, a.sums = at(row, block<<x.shift), at(row, x.scales+4*block), at(row, x.sums+sums)
		a.y, a.steps = at(s.results, m*lineBytes), blocks
		if a.count = min(once, x.rows-m); a.count == 1 {
			runKernel(p.dot, a)
		} else {
			runKernel(p.dot4, a)
		}
	}
}

// gridOf returns the address of the lookup table of a format, or nil.
func gridOf(f block.Format) unsafe.Pointer {
	if g := f.Octets(); g != nil {
		return unsafe.Pointer(&g[0])
	}
	if g := f.Quads(); g != nil {
		return unsafe.Pointer(&g[0])
	}
	return nil
}

// The kernels of each format: the functions that unpack it with AVX-512 and with AVX2, and the kind of the resulting
// plain blocks. With AVX-512, some formats are multiplied without unpacking.
var unpackers = map[block.Format]struct {
	wide, narrow func(*blockArgs)
	kind         *plainKind
}{
	block.Q2_K:    {nil, unpackQ2Kavx2, plainMins},
	block.Q3_K:    {nil, unpackQ3Kavx2, plainRaised},
	block.Q5_K:    {nil, unpackQ5Kavx2, plainMins},
	block.IQ4_XS:  {nil, unpackIQ4XSavx2, plainSigned},
	block.IQ1_S:   {unpackIQ1Savx512, unpackIQ1Savx2, plainRaised},
	block.IQ1_M:   {unpackIQ1Mavx512, unpackIQ1Mavx2, plainRaised},
	block.IQ2_XXS: {unpackIQ2XXSavx512, unpackIQ2XXSavx2, plainRaised},
	block.IQ2_XS:  {unpackIQ2XSavx512, unpackIQ2XSavx2, plainRaised},
	block.IQ2_S:   {unpackIQ2Savx512, unpackIQ2Savx2, plainRaised},
	block.IQ3_XXS: {unpackIQ3XXSavx512, unpackIQ3XXSavx2, plainRaised},
	block.IQ3_S:   {unpackIQ3Savx512, unpackIQ3Savx2, plainRaised},
	block.TQ1_0:   {unpackTQ10avx512, unpackTQ10avx2, plainRaised},
	block.TQ2_0:   {unpackTQ20avx512, unpackTQ20avx2, plainRaised},
	block.Q4_1:    {nil, unpackQ41avx2, plain32},
	block.Q5_0:    {nil, unpackQ50avx2, plain32},
	block.Q5_1:    {nil, unpackQ51avx2, plain32},
	block.IQ4_NL:  {nil, unpackIQ4NLavx2, plain32},
}

// plainKind is a kind of plain blocks and its product kernels.
type plainKind struct {
	dot, dot4, dot8 func(*blockArgs)
	bytes           int
}

var (
	plainRaised = &plainKind{blockDotPlainRaised, blockDot4PlainRaised, blockDot2PlainRaised, plainBytes}
	plainMins   = &plainKind{nil, nil, blockDot2PlainMins, plainBytes}
	plainSigned = &plainKind{nil, nil, blockDot2PlainSigned, plainBytes}
	plain32     = &plainKind{nil, nil, blockDot2Plain32, plainBytes32}
)

func plainOf512(f block.Format) plainProduct {
	u := unpackers[f]
	return plainProduct{unpack: u.wide, dot: u.kind.dot, dot4: u.kind.dot4, rows: tileSide, bytes: u.kind.bytes}
}

func plainOf2(f block.Format) plainProduct {
	u := unpackers[f]
	return plainProduct{unpack: u.narrow, dot: u.kind.dot8, rows: tileSide / 2, bytes: u.kind.bytes}
}
