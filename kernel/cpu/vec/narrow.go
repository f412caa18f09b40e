package vec

import (
	"encoding/binary"
	"fmt"
)

// Narrow is a matrix of bfloat16 weights [n, k] in twelve bits each, without loss, for products of few rows: these take as long as reading their
// weights. The lower byte of a weight, an exponent bit and the fraction, is kept as it is. The upper one, sign and the other exponent bits, becomes
// four bits, because magnitudes lie close together: the sign, and the distance from the base of a block of 32 rows, which covers sixteen powers of
// two below its largest weight. Weights that are smaller, and zeros, are kept aside.
//
// Memory gives most where several runs are read at once, each from its first byte to its last: so the rows of a block are shared out among eight
// runs, four to each. A run is block by block, unit by unit of 128 columns, of which every row has 192 bytes: 128 lower ones, then in 64 four bits of
// the first 64 weights and of the last 64. Within 64 weights bytes are ordered so that unpacking 16-byte lanes leaves them in order. Rows that the
// last block lacks are zero.
type Narrow struct {
	n, k   int
	mem    []byte
	blocks []narrowBlock
}

// narrowBlock is what belongs to a block beside its weights.
type narrowBlock struct {
	base   byte
	counts []uint16 // odd weights of each unit
	odd    []oddWeight
}

// oddWeight is a weight that four bits cannot say: its place in a panel of one unit, in bytes, and its bits.
type oddWeight struct{ at, bits uint16 }

const (
	narrowRows = 32  // of a block
	narrowRun  = 4   // of those in a run
	narrowUnit = 128 // columns
	unitBytes  = narrowUnit * 3 / 2
	// oddShare is the share of odd weights from which on a matrix is not worth it.
	oddShare = 512
)

// NarrowBytes is the memory that a matrix [n, k] takes, or 0 where it cannot be narrow.
func NarrowBytes(n, k int) int {
	if n <= 0 || k <= 0 || k%narrowUnit != 0 {
		return 0
	}
	return (n + narrowRows - 1) / narrowRows * narrowRows * k / narrowUnit * unitBytes
}

// NewNarrow prepares a matrix in the given memory: NarrowBytes of zeros. Every block is to be packed by [Narrow.Pack].
func NewNarrow(n, k int, mem []byte) *Narrow {
	if size := NarrowBytes(n, k); size == 0 || len(mem) != size {
		panic(fmt.Sprintf("vec: NewNarrow: %d bytes for [%d, %d], want %d", len(mem), n, k, size))
	}
	return &Narrow{n: n, k: k, mem: mem, blocks: make([]narrowBlock, (n+narrowRows-1)/narrowRows)}
}

// Len is the bytes of the weights.
func (w *Narrow) Len() int64 { return int64(len(w.mem)) }

// Blocks is the number of pieces that can be packed independently.
func (w *Narrow) Blocks() int { return len(w.blocks) }

func (w *Narrow) units() int { return w.k / narrowUnit }

// at is where row r of a unit of a block lies.
func (w *Narrow) at(block, unit, r int) int {
	return r/narrowRun*w.run() + ((block*w.units()+unit)*narrowRun+r%narrowRun)*unitBytes
}

// run is the bytes of a run.
func (w *Narrow) run() int { return len(w.mem) / narrowRows * narrowRun }

// Pack packs a block from bfloat16 weights [n, k], rows ldw elements apart.
func (w *Narrow) Pack(block int, from []byte, ldw int) {
	needMatrix("Pack", "w", len(from)/2, w.n, w.k, ldw)
	first, rows := block*narrowRows, min(narrowRows, w.n-block*narrowRows)
	b := &w.blocks[block]
	b.base, b.counts, b.odd = 0, make([]uint16, w.units()), nil
	for r := range rows {
		b.base = max(b.base, narrowBase(from[2*(first+r)*ldw:][:2*w.k]))
	}
	for u := range b.counts {
		for r := range rows {
			part := from[2*((first+r)*ldw+u*narrowUnit):][:2*narrowUnit]
			if packUnit(w.mem[w.at(block, u, r):][:unitBytes], part, b.base) {
				b.counts[u] += b.keepOdd(r, part)
			}
		}
	}
}

// narrowBase is what the upper seven bits of the exponents of a row are counted from.
func narrowBase(row []byte) byte {
	top := byte(0)
	for i := 1; i < len(row); i += 2 {
		top = max(top, row[i]&0x7F)
	}
	return max(top, 7) - 7
}

// packUnit packs 128 weights and reports whether any is odd.
func packUnit(to, from []byte, base byte) bool {
	odd := byte(0)
	low, four := to[:narrowUnit:narrowUnit], to[narrowUnit:unitBytes]
	for i := range four {
		var half [2]byte
		for g := range half {
			at := 2 * (64*g + unpackedAt(i))
			high := from[at+1]
			low[64*g+i] = from[at]
			d := high&0x7F - base
			odd |= d
			half[g] = high>>4&8 | d&7
		}
		four[i] = half[0] | half[1]<<4
	}
	return odd > 7
}

// unpackedAt is the place among 64 weights of the one whose byte lies at i: lanes of 16 bytes unpack to eight weights of the first half and eight of
// the second.
func unpackedAt(i int) int { return i/16*8 + i%8 + i%16/8*32 }

// keepOdd keeps the odd weights among those of row r of a unit and returns how many.
func (b *narrowBlock) keepOdd(r int, from []byte) (n uint16) {
	for k := range narrowUnit {
		if bits := binary.LittleEndian.Uint16(from[2*k:]); byte(bits>>8)&0x7F-b.base > 7 {
			b.odd = append(b.odd, oddWeight{uint16((k/32*narrowRows+r)*64 + k%32*2), bits})
			n++
		}
	}
	return n
}

// Worth reports whether few enough weights are odd that reading the others in fewer bytes pays.
func (w *Narrow) Worth() bool {
	n := 0
	for _, b := range w.blocks {
		n += len(b.odd)
	}
	return n*oddShare <= w.n*w.k
}

// NarrowFew is the most rows of x for which narrow weights are read faster than others.
const NarrowFew = GroupRows

// TiledNarrow is [Tier.TiledBF16] by narrow weights from row n0 on, which begins a block. Sums have the same bits.
func (t *Tier) TiledNarrow(c Cut, w *Narrow, n0 int) {
	if n0%narrowRows != 0 || n0 < 0 || n0+c.N > w.n || c.X.k != w.k {
		panic(fmt.Sprintf("vec: TiledNarrow: rows %d to %d of %d columns, of [%d, %d] in blocks of %d", n0, n0+c.N, c.X.k, w.n, w.k, narrowRows))
	}
	if t.readyCut("TiledNarrow", &c, InOrder, w.n*w.k, w.k, w.k) {
		t.ops.tiled.narrow(c, w, n0)
	}
}

// NarrowRows is what a band of narrow weights begins at a multiple of.
const NarrowRows = narrowRows
