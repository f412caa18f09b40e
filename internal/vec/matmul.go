package vec

import "fmt"

// MatMulF32 computes y = x·wᵀ: y[m][n] = Σ_k x[m][k]·w[n][k], overwriting y.
//
//	y [m, n] rows ldy apart, x [m, k] rows ldx apart, w [n, k] rows ldw apart
//
// Each element is a vector of partial sums over ascending k, whose lanes are added in one fixed order, for any m and n.
// Sums of no elements are 0.
func (t *Tier) MatMulF32(y []float32, ldy int, x []float32, ldx, m int, w []float32, ldw, n, k int) {
	p := product{y: y, ldy: ldy, x: x, ldx: ldx, m: m, ldw: ldw, n: n, k: k}
	if p.ready("MatMulF32", len(w), n, k) {
		t.ops.matMulF32(p, w)
	}
}

// MatMulBF16 is [Tier.MatMulF32] with bfloat16 weights, two little-endian bytes each. The result is bitwise equal to
// that with the widened weights, unless the tier is [Tier.Tiled].
func (t *Tier) MatMulBF16(y []float32, ldy int, x []float32, ldx, m int, w []byte, ldw, n, k int) {
	p := product{y: y, ldy: ldy, x: x, ldx: ldx, m: m, ldw: ldw, n: n, k: k}
	if p.ready("MatMulBF16", len(w)/2, n, k) {
		t.ops.matMulBF16(p, w)
	}
}

// MatMulF16 is [Tier.MatMulF32] with IEEE half-precision weights, two little-endian bytes each. The result is bitwise
// equal to that with the widened weights.
func (t *Tier) MatMulF16(y []float32, ldy int, x []float32, ldx, m int, w []byte, ldw, n, k int) {
	p := product{y: y, ldy: ldy, x: x, ldx: ldx, m: m, ldw: ldw, n: n, k: k}
	if p.ready("MatMulF16", len(w)/2, n, k) {
		t.ops.matMulF16(p, w)
	}
}

// MatMulFP8 is [Tier.MatMulF32] with e4m3 weights, one byte each, in blocks of 128 x 128 that share a scale:
//
//	value[n][k] = e4m3(w[n][k]) · scale[(row0+n)/128*ldScale + k/128]
//
// row0 is the index of w's first row in the full matrix, so w may be any band of that matrix. The result is bitwise
// equal to that with the widened weights, unless the tier is [Tier.Tiled].
func (t *Tier) MatMulFP8(y []float32, ldy int, x []float32, ldx, m int, w []byte, ldw, n, k int, scale []float32,
	ldScale, row0 int) {
	p := product{y: y, ldy: ldy, x: x, ldx: ldx, m: m, ldw: ldw, n: n, k: k}
	s := inBlocks128(scale, ldScale, row0)
	if p.ready("MatMulFP8", len(w), n, k) {
		needScales("MatMulFP8", s, n, k)
		t.ops.matMulFP8(p, w, s)
	}
}

// FP8Blocks are the scales of e4m3 weights in blocks of Rows x Cols. The weights may be a cut of a larger matrix:
//
//	value[n][k] = e4m3(w[n][k]) · Scale[(Row0+n)/Rows*Ld + k/Cols]
type FP8Blocks struct {
	Scale      []float32
	Ld         int
	Row0       int // index of the first row of the weights in the full matrix
	Rows, Cols int
}

// Whole reports whether blocks have as many columns as [Tier.MatMulFP8Blocks] needs: whole registers, and a divisor of
// the columns that are packed at a time.
func (b FP8Blocks) Whole() bool { return b.Cols%16 == 0 && 1024%b.Cols == 0 }

// row returns the scales of row n: element i is the scale of the columns from Cols*i on.
func (b FP8Blocks) row(n int) []float32 {
	return b.Scale[(b.Row0+n)/b.Rows*b.Ld:]
}

// inBlocks128 returns the scales of weights in blocks of 128 x 128.
func inBlocks128(scale []float32, ld, row0 int) FP8Blocks {
	return FP8Blocks{Scale: scale, Ld: ld, Row0: row0, Rows: scaleBlock, Cols: scaleBlock}
}

// MatMulFP8Blocks is [Tier.MatMulFP8] with weights in blocks of another size. The result is bitwise equal to that with
// the widened weights in every tier.
func (t *Tier) MatMulFP8Blocks(y []float32, ldy int, x []float32, ldx, m int, w []byte, ldw, n, k int, b FP8Blocks) {
	const method = "MatMulFP8Blocks"
	if b.Rows < 1 || !b.Whole() {
		panic(fmt.Sprintf("vec: %s: blocks of %d x %d, want columns that are a multiple of 16 and divide 1024", method,
			b.Rows, b.Cols))
	}
	p := product{y: y, ldy: ldy, x: x, ldx: ldx, m: m, ldw: ldw, n: n, k: k}
	if p.ready(method, len(w), n, k) {
		needScales(method, b, n, k)
		t.ops.matMulFP8(p, w, b)
	}
}

// MatMulFP4 is a product with e2m1 weights in the format of [Tier.TiledFP4], ldw bytes between rows. The sum of the
// products of each group of 32 is scaled, unless the tier is [Tier.Tiled].
func (t *Tier) MatMulFP4(y []float32, ldy int, x []float32, ldx, m int, w []byte, ldw, n, k int, scale []byte,
	ldScale int) {
	if k%2 != 0 {
		panic(fmt.Sprintf("vec: MatMulFP4: %d weights in a row are not whole bytes; want an even number", k))
	}
	p := product{y: y, ldy: ldy, x: x, ldx: ldx, m: m, ldw: ldw, n: n, k: k}
	if p.ready("MatMulFP4", len(w), n, k/2) {
		needMatrix("MatMulFP4", "scale", len(scale), n, (k+GroupFP4-1)/GroupFP4, ldScale)
		t.ops.matMulFP4(p, w, scale, ldScale)
	}
}

// ready checks the shapes of a product; w has lenW elements and is [rows, cols]. It reports whether anything is left to
// compute: for sums of no elements it has already written zeros.
func (p *product) ready(method string, lenW, rows, cols int) bool {
	needMatrix(method, "y", len(p.y), p.m, p.n, p.ldy)
	needMatrix(method, "x", len(p.x), p.m, p.k, p.ldx)
	needMatrix(method, "w", lenW, rows, cols, p.ldw)
	if p.m == 0 || p.n == 0 {
		return false
	}
	if p.k == 0 {
		for i := range p.m {
			clear(p.y[i*p.ldy:][:p.n])
		}
		return false
	}
	return true
}
