package vec

import (
	"fmt"
	"slices"
)

// Columns is a left factor x [m, k] packed once for products with many bands of weights. Only tiers that are
// [Tier.Tiled] use it. The zero value is empty; its memory grows to the largest size used.
//
// A float32 that is multiplied by bfloat16 or e4m3 weights is stored as two bfloat16: the rounded number, and the
// rounding error, rounded again. Their sum is within 2^-17 of the float32. A number that would round to infinity is
// truncated instead, with an error of 2^-8; numbers below 2^-110 lose some of their lower bits. The two parts of a row
// are separate columns, whose sums are added in the end. So up to eight rows fit in one tile, and each tile of weights
// is multiplied once.
//
// Rows that are multiplied by e2m1 weights are stored as integers times a power of two that belongs to the row, in two
// planes of eight bits: the largest magnitude of a row has 14 or 15 bits, and there is a sign. A row with NaN or
// infinity makes all of its products NaN.
type Columns struct {
	mem       []byte
	m, k      int
	rows      int // rows of x in a group: GroupRows, halfRows, fewRows or 1
	parts     int // parts of every element: 2, or 1 for bfloat16
	order     Order
	exponents []float32 // planes: exponent of every row, or NaN
	rest      []bool    // for groups of sixteen float32 rows: whether each piece has second parts other than zero
	idle      int       // tiles of each step that are not multiplied
}

// Order is the order in which columns hold the elements of a row: the order in which kernels widen weights of a format.
type Order int

const (
	// InOrder is for bfloat16 weights.
	InOrder Order = iota
	// Nibbles is for e2m1 weights, in planes: the even elements of every 128 elements come first.
	Nibbles
	// Halves is for e4m3 weights: in every 64 elements, the first eight of every sixteen come first.
	Halves
)

// GroupRows is the number of rows of x that are packed together. A group of at most halfRows or fewRows rows, or of one
// row, needs less memory. Products read the group again for every few rows of weights, so they are faster with a small
// group.
const GroupRows = 16

const (
	halfRows = 8
	fewRows  = 4
)

// chunkSteps is the number of steps along k that are packed in one call, which takes some microseconds.
const chunkSteps = 64

// GroupFor returns the smallest group size with space for the given number of rows, at most GroupRows.
func GroupFor(rows int) int {
	for _, n := range [...]int{1, fewRows, halfRows} {
		if rows <= n {
			return n
		}
	}
	return GroupRows
}

// Reset allocates memory for m rows of k float32 and discards packed columns.
func (c *Columns) Reset(m, k int, o Order) { c.ResetGroups(m, k, o, GroupFor(m)) }

// ResetGroups is Reset with groups of a size that [GroupFor] returns.
func (c *Columns) ResetGroups(m, k int, o Order, group int) {
	if group != GroupFor(group) {
		panic(fmt.Sprintf("vec: Columns: groups of %d rows are not supported, want 1, 4, 8 or 16", group))
	}
	c.reset(m, k, group, partsF32, o)
}

// partsF32 is the number of parts of a float32.
const partsF32 = 2

// ResetBF16 allocates memory for m rows of k bfloat16, in any order but Nibbles.
func (c *Columns) ResetBF16(m, k int, o Order) {
	if o == Nibbles {
		panic("vec: Columns: bfloat16 rows have no order for e2m1 weights")
	}
	c.reset(m, k, GroupRows, 1, o)
}

func (c *Columns) reset(m, k, rows, parts int, o Order) {
	if m < 0 || k < 0 {
		panic(fmt.Sprintf("vec: Columns: negative shape [%d, %d]", m, k))
	}
	c.m, c.k, c.rows, c.parts, c.order = m, k, rows, parts, o
	c.rest = sized(&c.rest, c.Chunks())
	if n := c.groups() * c.groupBytes(); cap(c.mem) < n {
		c.mem = alignedBytes(n + n/4)
	}
	if n := c.groups() * c.rows; o == Nibbles {
		c.exponents = sized(&c.exponents, n)
	}
}

// Chunks returns the number of pieces that can be packed independently.
func (c *Columns) Chunks() int { return c.groups() * c.chunks() }

// chunks returns the number of pieces of one group.
func (c *Columns) chunks() int { return (c.steps() + chunkSteps - 1) / chunkSteps }

func (c *Columns) groups() int { return (c.m + c.rows - 1) / max(c.rows, 1) }

// steps returns the number of steps along k; the last steps are filled with zeros. Steps that hold the same elements
// are adjacent (turn).
func (c *Columns) steps() int { return c.order.steps(c.k) }

func (o Order) steps(k int) int {
	depth := o.turn() * o.depth()
	return (k + depth - 1) / depth * o.turn()
}

// turn returns the number of steps that hold the same elements in different order, and depth the number of elements of
// a step.
func (o Order) turn() int { return [...]int{InOrder: 1, Nibbles: 2, Halves: 2}[o] }
func (o Order) depth() int {
	if o == Nibbles {
		return 64
	}
	return 32
}

// tiles returns the number of tiles of a group: one for each part of sixteen rows.
func (c *Columns) tiles() int { return max(1, c.parts*c.rows/GroupRows) }

// lineBytes returns the bytes of a line of a tile: two elements along k of every column, or four elements of a plane.
func (c *Columns) lineBytes() int { return 4 * c.parts * c.rows / c.tiles() }

// tileBytes returns the bytes of a tile, stepBytes those of the tiles of a step, and groupBytes those of all steps of a
// group.
func (c *Columns) tileBytes() int  { return 16 * c.lineBytes() }
func (c *Columns) stepBytes() int  { return (c.tiles() + c.idle) * c.tileBytes() }
func (c *Columns) groupBytes() int { return c.steps() * c.stepBytes() }

// single reports whether rows [m0, m1) are exact in bfloat16. If so, it makes one the columns of only the first parts:
// the second parts are all zero, so leaving out their products changes nothing. Rows of a cache of bfloat16 or e4m3 are
// exact.
func (c *Columns) single(one *Columns, m0, m1 int) bool {
	if c.parts != 2 || c.rows != GroupRows || c.order == Nibbles {
		return false
	}
	if slices.Contains(c.rest[m0/c.rows*c.chunks():(m1+c.rows-1)/c.rows*c.chunks()], true) {
		return false
	}
	*one = *c
	one.parts, one.idle = 1, 1
	return true
}

// Tiled reports whether this tier multiplies narrow weights by packed columns.
func (t *Tier) Tiled() bool { return t.ops.tiled != nil }

// PackChunk packs piece i of x [m, k], whose rows are ldx apart.
func (t *Tier) PackChunk(c *Columns, i int, x []float32, ldx int) {
	needMatrix("PackChunk", "x", len(x), c.m, c.k, ldx)
	needChunk(t, "PackChunk", c, i, partsF32)
	t.ops.tiled.pack(c, i, x, ldx)
}

// PackGathered packs piece i; row r of the columns is row index[r] of x [rows, k]. A negative index packs undefined
// values, and only the last rows of a group may have one.
func (t *Tier) PackGathered(c *Columns, i int, x []float32, ldx, rows int, index []int32) {
	needMatrix("PackGathered", "x", len(x), rows, c.k, ldx)
	needLen("PackGathered", "index", len(index), c.m)
	needChunk(t, "PackGathered", c, i, partsF32)
	for _, r := range c.indexOf(i, index) {
		if int(r) >= rows {
			panic(fmt.Sprintf("vec: PackGathered: row %d is outside the %d rows", r, rows))
		}
	}
	t.ops.tiled.gather(c, i, x, ldx, index)
}

// indexOf returns the part of index for the rows of piece i.
func (c *Columns) indexOf(i int, index []int32) []int32 {
	first := i / c.chunks() * c.rows
	return index[first:min(first+c.rows, c.m)]
}

// PackChunkBF16 packs piece i of bfloat16 x [m, k].
func (t *Tier) PackChunkBF16(c *Columns, i int, x []byte, ldx int) {
	needMatrix("PackChunkBF16", "x", len(x)/2, c.m, c.k, ldx)
	needChunk(t, "PackChunkBF16", c, i, 1)
	t.ops.tiled.packBF16(c, i, x, ldx)
}

func needChunk(t *Tier, method string, c *Columns, i, parts int) {
	switch {
	case !t.Tiled():
		panic(fmt.Sprintf("vec: %s: tier %s has no packed columns", method, t.Name))
	case c.parts != parts:
		panic(fmt.Sprintf("vec: %s: columns were reset for another type", method))
	case i < 0 || i >= c.Chunks():
		panic(fmt.Sprintf("vec: %s: piece %d is outside the %d pieces", method, i, c.Chunks()))
	}
}

// tiledOps has the functions that a tier with tiles implements.
type tiledOps struct {
	pack     func(c *Columns, i int, x []float32, ldx int)
	gather   func(c *Columns, i int, x []float32, ldx int, index []int32)
	packBF16 func(c *Columns, i int, x []byte, ldx int)
	bf16     func(c Cut, w []byte, ldw int)
	fp8      func(c Cut, w []byte, ldw int, s FP8Blocks)
	fp4      func(c Cut, w []byte, ldw int, scale []byte, ldScale int)
	latent   func(p product, w []byte, ahead int)
	dense    func(h *DenseHead)
}
