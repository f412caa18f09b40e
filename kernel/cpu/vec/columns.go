package vec

import "fmt"

// Columns is a left factor x [m, k] packed once for products with many bands of
// weights. Only tiers that are [Tier.Tiled] use it. The zero value is empty;
// its memory grows to the largest size asked of it.
//
// A float32 is kept as the sum of two bfloat16: within 2^-17 of it, relatively,
// or 2^-8 for what lies within a rounding of the largest float32.
type Columns struct {
	mem  []byte
	m, k int
	rows int // of x in a tile: 1, splitRows or, for bfloat16, tileSide
}

// Rows of x that a group holds. A single row is packed by itself, so that it
// takes no more memory than it has to.
const (
	splitRows = 8
	plainRows = 16
)

// Reset makes room for m rows of k float32. What was packed is gone.
func (c *Columns) Reset(m, k int) {
	rows := splitRows
	if m == 1 {
		rows = 1
	}
	c.reset(m, k, rows)
}

// ResetGroups makes room for groups of [GroupRows] rows of k float32.
func (c *Columns) ResetGroups(groups, k int) { c.reset(groups*splitRows, k, splitRows) }

// GroupRows is the float32 rows of a group where there is more than one row.
const GroupRows = splitRows

// ResetBF16 makes room for m rows of k bfloat16.
func (c *Columns) ResetBF16(m, k int) { c.reset(m, k, plainRows) }

func (c *Columns) reset(m, k, rows int) {
	if m < 0 || k < 0 {
		panic(fmt.Sprintf("vec: Columns: negative shape [%d, %d]", m, k))
	}
	c.m, c.k, c.rows = m, k, rows
	if n := c.Groups() * c.groupBytes(); cap(c.mem) < n {
		c.mem = alignedBytes(n + n/4)
	}
}

// Groups is the number of parts that can be packed independently.
func (c *Columns) Groups() int {
	if c.m == 0 {
		return 0
	}
	return (c.m + c.rows - 1) / c.rows
}

// steps is the steps of 32 elements along k, the last one filled with zeros.
func (c *Columns) steps() int { return (c.k + 31) / 32 }

// lineBytes is a line of a tile: two elements along k of every column.
func (c *Columns) lineBytes() int {
	if c.rows == 1 {
		return 8
	}
	return 64
}

func (c *Columns) groupBytes() int { return c.steps() * 16 * c.lineBytes() }

// Tiled reports whether this tier computes products of narrow weights from
// packed columns.
func (t *Tier) Tiled() bool { return t.ops.tiled != nil }

// PackGroup packs the rows of group g out of x [m, k], rows ldx apart.
func (t *Tier) PackGroup(c *Columns, g int, x []float32, ldx int) {
	needMatrix("PackGroup", "x", len(x), c.m, c.k, ldx)
	t.needGroup("PackGroup", c, g, c.rows != plainRows)
	if c.k > 0 {
		t.ops.tiled.pack(c, g, x, ldx)
	}
}

// PackGathered packs group g out of rows of x [rows, k]: row i of the group is
// row index[i] of x. Rows below zero, and those past the end of index, are
// packed as something that must not be used.
func (t *Tier) PackGathered(c *Columns, g int, x []float32, ldx, rows int, index []int32) {
	needMatrix("PackGathered", "x", len(x), rows, c.k, ldx)
	t.needGroup("PackGathered", c, g, c.rows != plainRows)
	for _, i := range index[:min(c.rows, len(index))] {
		if int(i) >= rows {
			panic(fmt.Sprintf("vec: PackGathered: row %d of %d", i, rows))
		}
	}
	if c.k > 0 && rows > 0 {
		t.ops.tiled.gather(c, g, x, ldx, index)
	}
}

// PackGroupBF16 packs the rows of group g out of bfloat16 x [m, k].
func (t *Tier) PackGroupBF16(c *Columns, g int, x []byte, ldx int) {
	needMatrix("PackGroupBF16", "x", len(x)/2, c.m, c.k, ldx)
	t.needGroup("PackGroupBF16", c, g, c.rows == plainRows)
	if c.k > 0 {
		t.ops.tiled.packBF16(c, g, x, ldx)
	}
}

func (t *Tier) needGroup(method string, c *Columns, g int, fits bool) {
	switch {
	case !t.Tiled():
		panic(fmt.Sprintf("vec: %s: tier %s packs no columns", method, t.Name))
	case !fits:
		panic(fmt.Sprintf("vec: %s: columns were reset for another type", method))
	case g < 0 || g >= c.Groups():
		panic(fmt.Sprintf("vec: %s: group %d of %d", method, g, c.Groups()))
	}
}

// Cut is a part of a product with packed columns: rows [M0, M1) of x, M0 at the
// start of a group, by n rows of weights into Y [M1-M0, n], rows Ldy apart.
type Cut struct {
	Y      []float32
	Ldy    int
	X      *Columns
	M0, M1 int
	N      int
	Add    bool // to what Y holds
}

// TiledBF16 multiplies packed columns by bfloat16 weights [n, k], rows ldw
// apart. Every sum takes k in steps of 32, in ascending order, whatever M0, M1
// and N are.
func (t *Tier) TiledBF16(c Cut, w []byte, ldw int) {
	if t.readyCut("TiledBF16", &c, len(w)/2, c.X.k, ldw) {
		t.ops.tiled.bf16(&c, w, ldw)
	}
}

// TiledFP8 multiplies packed columns by e4m3 weights; see [Tier.MatMulFP8] for
// the scales.
func (t *Tier) TiledFP8(c Cut, w []byte, ldw int, scale []float32, ldScale, row0 int) {
	s := blockScale{s: scale, ld: ldScale, row0: row0}
	if t.readyCut("TiledFP8", &c, len(w), c.X.k, ldw) {
		needScales("TiledFP8", s, c.N, c.X.k)
		t.ops.tiled.fp8(&c, w, ldw, s)
	}
}

// GroupFP4 is the e2m1 weights of a row that share a scale.
const GroupFP4 = 32

// TiledFP4 multiplies packed columns by e2m1 weights, two to a byte and the
// first in its lower half, ldw bytes between rows, with an e8m0 scale for each
// 32, ldScale bytes between the rows of scales.
func (t *Tier) TiledFP4(c Cut, w []byte, ldw int, scale []byte, ldScale int) {
	if c.X.k%2 != 0 {
		panic(fmt.Sprintf("vec: TiledFP4: %d weights in a row are no whole bytes", c.X.k))
	}
	if t.readyCut("TiledFP4", &c, len(w), c.X.k/2, ldw) {
		needMatrix("TiledFP4", "scale", len(scale), c.N, (c.X.k+GroupFP4-1)/GroupFP4, ldScale)
		t.ops.tiled.fp4(&c, w, ldw, scale, ldScale)
	}
}

// readyCut checks a part of a product and reports whether anything is left to
// compute, having written the zeros of empty sums.
func (t *Tier) readyCut(method string, c *Cut, lenW, cols, ldw int) bool {
	if !t.Tiled() {
		panic(fmt.Sprintf("vec: %s: tier %s has no products of packed columns", method, t.Name))
	}
	if c.M0 < 0 || c.M1 < c.M0 || c.M1 > c.X.m || c.M0%c.X.rows != 0 {
		panic(fmt.Sprintf("vec: %s: rows %d to %d of %d packed by %d", method, c.M0, c.M1, c.X.m, c.X.rows))
	}
	needMatrix(method, "y", len(c.Y), c.M1-c.M0, c.N, c.Ldy)
	needMatrix(method, "w", lenW, c.N, cols, ldw)
	if c.M0 == c.M1 || c.N == 0 {
		return false
	}
	if c.X.k == 0 {
		for i := range c.M1 - c.M0 {
			if !c.Add {
				clear(c.Y[i*c.Ldy:][:c.N])
			}
		}
		return false
	}
	return true
}

// tiledOps is what a tier with tiles implements.
type tiledOps struct {
	pack     func(c *Columns, g int, x []float32, ldx int)
	gather   func(c *Columns, g int, x []float32, ldx int, index []int32)
	packBF16 func(c *Columns, g int, x []byte, ldx int)
	bf16     func(c *Cut, w []byte, ldw int)
	fp8      func(c *Cut, w []byte, ldw int, s blockScale)
	fp4      func(c *Cut, w []byte, ldw int, scale []byte, ldScale int)
}
