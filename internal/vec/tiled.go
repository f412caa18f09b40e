package vec

import "fmt"

// Cut is a part of a product with packed columns: rows [M0, M1) of x are multiplied by n weight rows, and the results
// go to Y [M1-M0, n], whose rows are Ldy apart. M0 is the start of a group.
type Cut struct {
	Y      []float32
	Ldy    int
	X      *Columns
	M0, M1 int
	N      int
	Add    bool // add to the values of Y
	// Next is the memory that is read after these weights, or nil: the kernels for few rows prefetch its beginning
	// while they multiply the last rows. The result does not depend on it.
	Next []byte
}

// TiledBF16 multiplies packed columns by bfloat16 weights [n, k], rows ldw apart. Every sum adds k in steps of 32, in
// ascending order, for any M0, M1 and N.
func (t *Tier) TiledBF16(c Cut, w []byte, ldw int) {
	if readyCut(t, "TiledBF16", &c, InOrder, len(w)/2, c.X.k, ldw) {
		t.ops.tiled.bf16(c, w, ldw)
	}
}

// TiledFP8 multiplies packed columns by e4m3 weights; see [Tier.MatMulFP8] for
// the scales.
func (t *Tier) TiledFP8(c Cut, w []byte, ldw int, scale []float32, ldScale, row0 int) {
	s := inBlocks128(scale, ldScale, row0)
	if readyCut(t, "TiledFP8", &c, Halves, len(w), c.X.k, ldw) {
		needScales("TiledFP8", s, c.N, c.X.k)
		t.ops.tiled.fp8(c, w, ldw, s)
	}
}

// GroupFP4 is the number of e2m1 weights of a row that share a scale.
const GroupFP4 = 32

// MostFP4 is the maximum number of e2m1 weights of a row in [Tier.TiledFP4]: the sums must fit in 31 bits and a sign.
const MostFP4 = 1 << 17

// TiledFP4 multiplies packed columns by e2m1 weights. A byte has two weights, the first in its low nibble, and rows are
// ldw bytes apart. There is an e8m0 scale for each 32 weights, and rows of scales are ldScale bytes apart. A row takes
// more time if its largest scale is more than eight times its smallest.
func (t *Tier) TiledFP4(c Cut, w []byte, ldw int, scale []byte, ldScale int) {
	if c.X.k%2 != 0 || c.X.k > MostFP4 {
		panic(fmt.Sprintf("vec: TiledFP4: %d weights in a row, want an even number of at most %d", c.X.k, MostFP4))
	}
	if readyCut(t, "TiledFP4", &c, Nibbles, len(w), c.X.k/2, ldw) {
		needMatrix("TiledFP4", "scale", len(scale), c.N, (c.X.k+GroupFP4-1)/GroupFP4, ldScale)
		t.ops.tiled.fp4(c, w, ldw, scale, ldScale)
	}
}

// readyCut checks a part of a product and reports whether anything is left to compute: for sums of no elements it has
// already written zeros.
func readyCut(t *Tier, method string, c *Cut, o Order, lenW, cols, ldw int) bool {
	if !t.Tiled() {
		panic(fmt.Sprintf("vec: %s: tier %s has no products of packed columns", method, t.Name))
	}
	if c.M0 < 0 || c.M1 < c.M0 || c.M1 > c.X.m || c.M0%c.X.rows != 0 || c.X.rows == 1 && c.M1 > c.M0+1 {
		panic(fmt.Sprintf("vec: %s: rows %d to %d are outside %d rows or not in units of "+
			"%d", method, c.M0, c.M1, c.X.m, c.X.rows))
	}
	if c.X.order != o {
		panic(fmt.Sprintf("vec: %s: columns were packed in the order of other weights", method))
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
