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
	s := blockScale{s: scale, ld: ldScale, row0: row0}
	if p.ready("MatMulFP8", len(w), n, k) {
		needScales("MatMulFP8", s, n, k)
		t.ops.matMulFP8(p, w, s)
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
