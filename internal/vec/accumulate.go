package vec

// AccumulateF32 computes y += x·w: y[m][c] += Σ_d x[m][d]·w[d][c], the form in which the weights' rows run along the
// output.
//
//	y [m, c] rows ldy apart, x [m, d] rows ldx apart, w [d, c] rows ldw apart
//
// Each element is one running sum that starts at y and takes d in ascending order, for any m and c. So a sum over d may
// be cut anywhere and continued by another call with the same bits. It is used for absorbed projections (w is a head's
// weights) and attention's probabilities times values (w is the cached rows).
func (t *Tier) AccumulateF32(y []float32, ldy int, x []float32, ldx, m int, w []float32, ldw, d, c int) {
	p := product{y: y, ldy: ldy, x: x, ldx: ldx, m: m, ldw: ldw, n: c, k: d}
	if p.open("AccumulateF32", len(w)) {
		t.ops.accumulateF32(p, w)
	}
}

// AccumulateBF16 is [Tier.AccumulateF32] with bfloat16 weights.
func (t *Tier) AccumulateBF16(y []float32, ldy int, x []float32, ldx, m int, w []byte, ldw, d, c int) {
	p := product{y: y, ldy: ldy, x: x, ldx: ldx, m: m, ldw: ldw, n: c, k: d}
	if p.open("AccumulateBF16", len(w)/2) {
		t.ops.accumulateBF16(p, w)
	}
}

// AccumulateFP8 is [Tier.AccumulateF32] with block-scaled e4m3 weights:
//
//	value[d][c] = e4m3(w[d][c]) · scale[(row0+d)/128*ldScale + c/128]
func (t *Tier) AccumulateFP8(y []float32, ldy int, x []float32, ldx, m int, w []byte, ldw, d, c int, scale []float32,
	ldScale, row0 int) {
	p := product{y: y, ldy: ldy, x: x, ldx: ldx, m: m, ldw: ldw, n: c, k: d}
	s := inBlocks128(scale, ldScale, row0)
	if p.open("AccumulateFP8", len(w)) {
		needScales("AccumulateFP8", s, d, c)
		t.ops.accumulateFP8(p, w, s)
	}
}

// open checks the shapes of an accumulation whose w has lenW elements and
// reports whether there is anything to add.
func (p *product) open(method string, lenW int) bool {
	needMatrix(method, "y", len(p.y), p.m, p.n, p.ldy)
	needMatrix(method, "x", len(p.x), p.m, p.k, p.ldx)
	needMatrix(method, "w", lenW, p.k, p.n, p.ldw)
	return p.m > 0 && p.n > 0 && p.k > 0
}
