package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// matrix holds the operands of one product, with weights in all three formats and their widened values.
type matrix struct {
	m, n, k       int
	ldx, ldw, ldy int
	x             []float32
	w             [formatsTested][]float32 // widened values of each format
	bf16, fp8     []byte
	scale         []float32
	ldScale, row0 int
}

const (
	testF32 = iota
	testBF16
	testFP8
	formatsTested
)

var formatNames = [formatsTested]string{"f32", "bf16", "fp8"}

// newMatrix generates the operands of a random product whose rows are followed by pad elements of NaN, and whose scales
// are not powers of two.
func newMatrix(r *rand.Rand, m, n, k, pad, row0 int) *matrix {
	a := &matrix{m: m, n: n, k: k, ldx: k + pad, ldw: k + pad + 1, ldy: n + pad, row0: row0}
	a.x = normals(r, m*a.ldx)
	a.w[testF32] = normals(r, n*a.ldw)
	fillBetween(a.x, k, a.ldx)
	fillBetween(a.w[testF32], k, a.ldw)
	a.bf16 = narrow(a.w[testF32])
	a.w[testBF16] = make([]float32, n*a.ldw)
	widenBF16Go(a.w[testBF16], a.bf16)
	a.fp8 = numbersE4M3(r, n*a.ldw)
	for i := range a.fp8 {
		if i%a.ldw >= k {
			a.fp8[i] = 0x7F
		}
	}
	a.ldScale = (a.ldw-1)/scaleBlock + 2
	a.scale = make([]float32, ((row0+n-1)/scaleBlock+1)*a.ldScale)
	for i := range a.scale {
		a.scale[i] = r.Float32()/64 + 1e-4
	}
	a.w[testFP8] = make([]float32, n*a.ldw)
	a.widen()
	return a
}

// fillBetween writes NaN into the gaps between rows of n elements.
func fillBetween(x []float32, n, ld int) {
	for i := range x {
		if i%ld >= n {
			x[i] = float32(math.NaN())
		}
	}
}

// widen computes the values of the e4m3 weights with their scales.
func (a *matrix) widen() {
	for j := range a.n {
		for c := range a.k {
			scale := a.scale[(a.row0+j)/scaleBlock*a.ldScale+c/scaleBlock]
			a.w[testFP8][j*a.ldw+c] = e4m3[a.fp8[j*a.ldw+c]] * scale
		}
	}
}

// withPowerScales rounds every scale to a power of two, as in checkpoints.
func (a *matrix) withPowerScales() *matrix {
	for i, s := range a.scale {
		a.scale[i] = float32(math.Exp2(math.Round(math.Log2(float64(s)))))
	}
	a.widen()
	return a
}

// run multiplies rows [i, i+m) by weights [j, j+n) and returns the result in a new slice [m, n].
func (a *matrix) run(t *Tier, format, i, m, j, n int) []float32 {
	y := make([]float32, m*n)
	x := a.x[i*a.ldx:]
	switch format {
	case testF32:
		t.MatMulF32(y, n, x, a.ldx, m, a.w[testF32][j*a.ldw:], a.ldw, n, a.k)
	case testBF16:
		t.MatMulBF16(y, n, x, a.ldx, m, a.bf16[2*j*a.ldw:], a.ldw, n, a.k)
	case testFP8:
		t.MatMulFP8(y, n, x, a.ldx, m, a.fp8[j*a.ldw:], a.ldw, n, a.k, a.scale, a.ldScale, a.row0+j)
	}
	return y
}

// check compares y [m, n] with float64 sums. The error bound is that of a sum of at most k/8 rounded terms, relative to
// the sum of magnitudes. If tiles multiply narrow weights, the bound includes the rounding of x.
func (a *matrix) check(t *testing.T, tier *Tier, format int, y []float32) {
	t.Helper()
	rounding := float64(a.k/4+8) * 0x1p-24
	if tier.Tiled() && format != testF32 {
		rounding += 0x1p-17
	}
	for i := range a.m {
		for j := range a.n {
			var sum, size float64
			for c := range a.k {
				v := float64(a.x[i*a.ldx+c]) * float64(a.w[format][j*a.ldw+c])
				sum += v
				size += math.Abs(v)
			}
			bound := size * rounding
			if got := float64(y[i*a.n+j]); !(math.Abs(got-sum) <= bound) {
				t.Fatalf("%s [%d,%d,%d]: y[%d][%d] = %v, want %v within %v",
					formatNames[format], a.m, a.n, a.k, i, j, got, sum, bound)
			}
		}
	}
}

func eachFormat(f func(format int)) {
	for format := range formatsTested {
		f(format)
	}
}

func TestMatMulMatchesFloat64Sums(t *testing.T) {
	shapes := [][3]int{
		{1, 1, 1}, {1, 4, 16}, {1, 5, 31}, {2, 7, 33}, {3, 6, 127}, {4, 9, 128}, {5, 13, 129},
		{7, 11, 200}, {8, 130, 260}, {13, 6, 1024}, {12, 10, 1025}, {6, 7, 2100}, {12, 61, 2100}, {17, 50, 1100},
		{1, 9, 3000}, {259, 7, 40},
	}
	eachTier(t, func(t *testing.T, tier *Tier) {
		r := newRand(1)
		for _, s := range shapes {
			a := newMatrix(r, s[0], s[1], s[2], 3, 125)
			eachFormat(func(format int) { a.check(t, tier, format, a.run(tier, format, 0, a.m, 0, a.n)) })
			a.withPowerScales().check(t, tier, testFP8, a.run(tier, testFP8, 0, a.m, 0, a.n))
		}
	})
}

// Matrix products with float16 weights are bitwise equal to products with the widened weights, for all weights: random
// codes include subnormal numbers, infinities and NaN.
func TestHalfPrecisionWeightsAreWidened(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		r := newRand(6)
		for k := 1; k <= 70; k++ {
			m, n := 1+k%6, 1+k%11
			x, w := normals(r, m*k), make([]byte, 2*n*k)
			for i := range w {
				w[i] = byte(r.Uint32())
			}
			wide := make([]float32, n*k)
			widenF16Go(wide, w)
			got, want := make([]float32, m*n), make([]float32, m*n)
			tier.MatMulF16(got, n, x, k, m, w, k, n, k)
			tier.MatMulF32(want, n, x, k, m, wide, k, n, k)
			wantSame(t, fmt.Sprintf("[%d,%d,%d]", m, n, k), got, want)
		}
	})
}

// A row and a column are bitwise equal alone, in every tile shape and at every position in the tile. Products with
// narrow weights are bitwise equal to products with widened weights, unless tile instructions multiply them.
func TestMatMulRowsAndColumnsAreIndependent(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		const rows, cols = 11, 13
		step := 1
		if raceEnabled {
			step = 13
		}
		for k := 1; k <= 200; k += step {
			a := newMatrix(newRand(uint64(k)), rows, cols, k, k%3, 120)
			if k%4 != 0 {
				a.withPowerScales()
			}
			eachFormat(func(format int) {
				whole := a.run(tier, format, 0, rows, 0, cols)
				wide := make([]float32, rows*cols)
				tier.MatMulF32(wide, cols, a.x, a.ldx, rows, a.w[format], a.ldw, cols, k)
				if !tier.Tiled() {
					wantSame(t, fmt.Sprintf("%s k=%d against widened weights", formatNames[format], k), whole, wide)
				}
				for i := range rows {
					for j := range cols {
						alone := a.run(tier, format, i, 1, j, 1)
						if !same(alone[0], whole[i*cols+j]) {
							t.Fatalf("%s k=%d: y[%d][%d] = %v alone, %v in [%d,%d]",
								formatNames[format], k, i, j, alone[0], whole[i*cols+j], rows, cols)
						}
					}
				}
			})
		}
	})
}

// Every number of rows is combined with every number of columns, so that each kernel and each partial end is used.
func TestMatMulTilesAgree(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		const rows, cols = 14, 15
		for _, k := range []int{1, 7, 16, 40, 129, 1030} {
			a := newMatrix(newRand(uint64(k)), rows, cols, k, 2, 127)
			if k > 16 {
				a.withPowerScales()
			}
			eachFormat(func(format int) {
				whole := a.run(tier, format, 0, rows, 0, cols)
				for m := 1; m <= rows; m++ {
					for n := 1; n <= cols; n++ {
						i, j := rows-m, cols-n
						part := a.run(tier, format, i, m, j, n)
						for r := range m {
							wantSame(t, fmt.Sprintf("%s k=%d tile [%d,%d] row %d", formatNames[format], k, m, n, r),
								part[r*n:][:n], whole[(i+r)*cols+j:][:n])
						}
					}
				}
			})
		}
	})
}

// Products with more rows than one block of x agree with the reference, with blocks that end at different positions.
func TestMatMulBlocksAgree(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		const rows, cols, k = 515, 9, 70
		a := newMatrix(newRand(3), rows, cols, k, 0, 0)
		eachFormat(func(format int) {
			whole := a.run(tier, format, 0, rows, 0, cols)
			for _, m := range []int{1, 5, 256, 257, 511} {
				part := a.run(tier, format, 0, m, 0, cols)
				wantSame(t, fmt.Sprintf("%s %d rows", formatNames[format], m), part, whole[:m*cols])
			}
		})
	})
}

// Scales that are powers of two may be applied to x only if that is exact; values at the ends of the float32 range must
// not change.
func TestMatMulPowerScalesAtTheEndsOfTheRange(t *testing.T) {
	values := []float32{0x1p-149, 0x1.8p-140, 0x1p-126, 0x1.fffffep-120, 0x1p-100, 1, 0x1p100, 0x1.fffffep127, inf,
		-inf}
	eachTier(t, func(t *testing.T, tier *Tier) {
		if tier.Tiled() {
			t.Skip("tiles take subnormal numbers for zero")
		}
		const n, k = 5, 256
		for _, power := range []int{-149, -130, -101, -100, -20, -8, 0, 10, 100, 101} {
			a := newMatrix(newRand(6), 1, n, k, 0, 0)
			for i := range a.scale {
				a.scale[i] = float32(math.Ldexp(1, power))
			}
			a.widen()
			for _, v := range values {
				for i := range a.x {
					a.x[i] *= 0x1p-30
				}
				a.x[77] = v
				wide := make([]float32, n)
				tier.MatMulF32(wide, n, a.x, k, 1, a.w[testFP8], a.ldw, n, k)
				wantSame(t, fmt.Sprintf("scale 2^%d, x = %v", power, v), a.run(tier, testFP8, 0, 1, 0, n), wide)
			}
		}
	})
}

func TestDotHasTheBitsOfMatMul(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		for k := 1; k <= 300; k++ {
			r := newRand(uint64(k))
			a, b := normals(r, k), normals(r, k)
			var y [1]float32
			tier.MatMulF32(y[:], 1, a, k, 1, b, k, 1, k)
			wantSame(t, "dot", []float32{tier.Dot(a, b)}, y[:])
		}
		if got := tier.Dot(nil, nil); got != 0 {
			t.Fatalf("dot of nothing is %v", got)
		}
	})
}

func TestMatMulWritesOnlyItsColumns(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		for _, m := range []int{1, 3, 13} {
			const n, k, ldy = 7, 37, 11
			a := newMatrix(newRand(4), m, n, k, 0, 0)
			y := make([]float32, m*ldy)
			for i := range y {
				y[i] = 12345
			}
			tier.MatMulBF16(y, ldy, a.x, a.ldx, m, a.bf16, a.ldw, n, k)
			for i, v := range y {
				if inside := i%ldy < n; inside == (v == 12345) {
					t.Fatalf("m=%d: y[%d] = %v", m, i, v)
				}
			}
		}
	})
}

func TestMatMulPropagatesNaNAndInf(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		for _, m := range []int{1, 2, 3, 4, 5, 13} {
			for _, k := range []int{1, 15, 16, 64, 70, 130, 1100} {
				for _, at := range []int{0, k / 2, k - 1} {
					const n = 9
					a := newMatrix(newRand(5), m, n, k, 0, 0)
					a.w[testF32][3*a.ldw+at] = float32(math.NaN())
					a.bf16[2*(3*a.ldw+at)] = 0xC1
					a.bf16[2*(3*a.ldw+at)+1] = 0x7F
					a.fp8[3*a.ldw+at] = 0xFF
					if m%2 == 0 {
						a.withPowerScales()
					}
					eachFormat(func(format int) {
						y := a.run(tier, format, 0, m, 0, n)
						for i, v := range y {
							if (v != v) != (i%n == 3) {
								t.Fatalf("%s m=%d k=%d NaN at %d: y[%d] = %v", formatNames[format], m, k, at, i, v)
							}
						}
					})
					inf := float32(math.Inf(1))
					a.x[at] = inf
					for j, v := range a.run(tier, testBF16, 0, m, 0, n)[:n] {
						want := inf
						if a.w[testBF16][j*a.ldw+at] < 0 {
							want = -inf
						}
						if j != 3 && v != want {
							t.Fatalf("m=%d k=%d Inf at %d: y[0][%d] = %v, want %v", m, k, at, j, v, want)
						}
					}
				}
			}
		}
	})
}

// MatMul does not leak scratch memory between calls: NaN and infinities of one call do not reach the padding of the
// next.
func TestMatMulLeavesNothingBehind(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		for _, m := range []int{1, 3, 13} {
			a := newMatrix(newRand(16), m, 7, 64, 0, 0)
			b := newMatrix(newRand(17), m, 7, 37, 0, 0)
			for i := range a.w[testF32] {
				a.w[testF32][i] = inf
			}
			for i := range a.bf16 {
				a.bf16[i], a.fp8[i/2] = 0xFF, 0xFF
			}
			eachFormat(func(format int) {
				want := b.run(tier, format, 0, m, 0, b.n)
				a.run(tier, format, 0, m, 0, a.n)
				wantSame(t, formatNames[format], b.run(tier, format, 0, m, 0, b.n), want)
				b.check(t, tier, format, want)
			})
		}
	})
}

func TestMatMulOfNothing(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		y := []float32{1, 2, 3, 4, 5, 6}
		tier.MatMulF32(y, 3, nil, 0, 2, nil, 0, 2, 0)
		wantSame(t, "empty sums", y, []float32{0, 0, 3, 0, 0, 6})
		tier.MatMulBF16(nil, 0, nil, 0, 0, make([]byte, 64), 8, 4, 8)
		tier.MatMulFP8(nil, 0, nil, 0, 0, nil, 0, 0, 8, nil, 0, 0)
	})
}

func TestShortSlicesPanicBeforeAnyWork(t *testing.T) {
	f := func(n int) []float32 { return make([]float32, n) }
	huge := math.MaxInt/2 + 1
	cases := map[string]func(*Tier){
		"y too short":        func(v *Tier) { v.MatMulF32(f(5), 3, f(8), 4, 2, f(12), 4, 3, 4) },
		"x too short":        func(v *Tier) { v.MatMulF32(f(6), 3, f(7), 4, 2, f(12), 4, 3, 4) },
		"w too short":        func(v *Tier) { v.MatMulF32(f(6), 3, f(8), 4, 2, f(11), 4, 3, 4) },
		"rows overlap":       func(v *Tier) { v.MatMulF32(f(6), 3, f(8), 3, 2, f(12), 4, 3, 4) },
		"negative":           func(v *Tier) { v.MatMulF32(f(6), 3, f(8), 4, -1, f(12), 4, 3, 4) },
		"wrapping size":      func(v *Tier) { v.MatMulF32(f(6), 3, f(8), huge, 3, f(12), 4, 3, 4) },
		"bf16 half a weight": func(v *Tier) { v.MatMulBF16(f(6), 3, f(8), 4, 2, make([]byte, 23), 4, 3, 4) },
		"scale rows": func(v *Tier) {
			v.MatMulFP8(f(6), 3, f(8), 4, 2, make([]byte, 12), 4, 3, 4, f(1), 1, 126)
		},
		"scale columns": func(v *Tier) {
			v.MatMulFP8(f(1), 1, f(129), 129, 1, make([]byte, 129), 129, 1, 129, f(1), 1, 0)
		},
		"negative row": func(v *Tier) {
			v.MatMulFP8(f(6), 3, f(8), 4, 2, make([]byte, 12), 4, 3, 4, f(1), 1, -1)
		},
		"accumulate w": func(v *Tier) { v.AccumulateF32(f(6), 3, f(8), 4, 2, f(11), 3, 4, 3) },
		"dot":          func(v *Tier) { v.Dot(f(3), f(4)) },
		"axpy":         func(v *Tier) { v.Axpy(f(3), 1, f(2)) },
		"exp":          func(v *Tier) { v.ExpSum(f(3), f(2), 0) },
		"widen":        func(v *Tier) { v.WidenBF16(f(3), make([]byte, 5)) },
		"index keys": func(v *Tier) {
			v.IndexScoresFP8(f(2), make([]byte, 128), f(1), make([]byte, 255), make([]byte, 8), 1, 2)
		},
	}
	for name, call := range cases {
		eachTier(t, func(t *testing.T, tier *Tier) {
			defer func() {
				if recover() == nil {
					t.Fatalf("%s: no panic", name)
				}
			}()
			call(tier)
		})
	}
}

// Products with weights in blocks of any size are bitwise those with the widened weights, for scales that are powers of
// two and for others, and for values of x that a scale would make subnormal.
func TestMatMulFP8Blocks(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		r := newRand(52)
		for _, b := range []FP8Blocks{{Rows: 32, Cols: 32, Row0: 7}, {Rows: 5, Cols: 16}, {Rows: 1, Cols: 256},
			{Rows: 128, Cols: 128, Row0: 1}} {
			for _, s := range [][3]int{{1, 1, 5}, {1, 70, 160}, {2, 9, 1100}, {13, 45, 64}, {4, 33, 100}} {
				m, n, k := s[0], s[1], s[2]
				b.Ld = (k-1)/b.Cols + 1
				for _, power := range []bool{true, false} {
					x, w := normals(r, m*k), numbersE4M3(r, n*k)
					b.Scale = make([]float32, ((b.Row0+n-1)/b.Rows+1)*b.Ld)
					for i := range b.Scale {
						if b.Scale[i] = r.Float32() + 1; power {
							b.Scale[i] = float32(math.Ldexp(1, r.IntN(12)-8))
						}
					}
					if m == 4 {
						x[k+3], b.Scale[0] = 0x1.23p-120, 0x1p-20
					}
					wide, y, want := make([]float32, n*k), make([]float32, m*n), make([]float32, m*n)
					for i, code := range w {
						wide[i] = e4m3[code] * b.Scale[(b.Row0+i/k)/b.Rows*b.Ld+i%k/b.Cols]
					}
					tier.MatMulFP8Blocks(y, n, x, k, m, w, k, n, k, b)
					tier.MatMulF32(want, n, x, k, m, wide, k, n, k)
					wantSame(t, fmt.Sprintf("blocks of %d x %d, shape %v", b.Rows, b.Cols, s), y, want)
				}
			}
		}
	})
}
