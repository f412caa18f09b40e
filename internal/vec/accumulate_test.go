package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// transposed holds the operands of one accumulation, with weights in all three formats.
type transposed struct {
	m, d, c       int
	ldx, ldw, ldy int
	x, y          []float32
	w             [formatsTested][]float32
	bf16, fp8     []byte
	scale         []float32
	ldScale, row0 int
}

func newTransposed(r *rand.Rand, m, d, c, pad, row0 int) *transposed {
	// The weights and scales are those of a matrix product with d rows of c columns.
	a := newMatrix(r, 1, d, c, pad, row0)
	return &transposed{
		m: m, d: d, c: c, ldx: d + pad, ldw: a.ldw, ldy: c + pad,
		x: normals(r, m*(d+pad)), y: normals(r, m*(c+pad)),
		w: a.w, bf16: a.bf16, fp8: a.fp8, scale: a.scale, ldScale: a.ldScale, row0: row0,
	}
}

// run accumulates rows [i, i+m) over weight rows [from, to) and columns from
// col on into y.
func (a *transposed) run(t *Tier, format int, y []float32, i, m, from, to, col int) {
	y = y[i*a.ldy+col:]
	x := a.x[i*a.ldx+from:]
	d, c, at := to-from, a.c-col, from*a.ldw+col
	switch format {
	case testF32:
		t.AccumulateF32(y, a.ldy, x, a.ldx, m, a.w[testF32][at:], a.ldw, d, c)
	case testBF16:
		t.AccumulateBF16(y, a.ldy, x, a.ldx, m, a.bf16[2*at:], a.ldw, d, c)
	case testFP8:
		t.AccumulateFP8(y, a.ldy, x, a.ldx, m, a.fp8[at:], a.ldw, d, c, a.scale[col/scaleBlock:], a.ldScale,
			a.row0+from)
	}
}

func clone(x []float32) []float32 { return append([]float32(nil), x...) }

func TestAccumulateMatchesFloat64Sums(t *testing.T) {
	shapes := [][3]int{{1, 1, 1}, {1, 5, 130}, {2, 7, 63}, {3, 130, 64}, {6, 9, 65}, {7, 300, 17}, {13, 4, 260},
		{1, 300, 512}}
	eachTier(t, func(t *testing.T, tier *Tier) {
		for _, s := range shapes {
			a := newTransposed(newRand(7), s[0], s[1], s[2], 2, 100)
			eachFormat(func(format int) {
				y := clone(a.y)
				a.run(tier, format, y, 0, a.m, 0, a.d, 0)
				for i := range a.m {
					for j := range a.ldy {
						if at := i*a.ldy + j; j >= a.c {
							wantSame(t, "between rows", y[at:at+1], a.y[at:at+1])
							continue
						}
						sum := float64(a.y[i*a.ldy+j])
						size := math.Abs(sum)
						for d := range a.d {
							v := float64(a.x[i*a.ldx+d]) * float64(a.w[format][d*a.ldw+j])
							sum += v
							size += math.Abs(v)
						}
						bound := size * float64(a.d+2) * math.Ldexp(1, -24)
						if got := float64(y[i*a.ldy+j]); !(math.Abs(got-sum) <= bound) {
							t.Fatalf("%s %v: y[%d][%d] = %v, want %v", formatNames[format], s, i, j, got, sum)
						}
					}
				}
			})
		}
	})
}

// Every element is one running sum: it has the same bits alone and in a batch, with d or c whole or divided, and with
// narrow or widened weights.
func TestAccumulateIsOneRunningSum(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		for _, c := range []int{1, 7, 16, 31, 64, 100, 128, 257} {
			for _, m := range []int{1, 2, 5, 6, 7, 12, 14} {
				const d = 140
				a := newTransposed(newRand(uint64(c*m)), m, d, c, m%3, 60)
				eachFormat(func(format int) {
					name := fmt.Sprintf("%s m=%d c=%d", formatNames[format], m, c)
					whole := clone(a.y)
					a.run(tier, format, whole, 0, m, 0, d, 0)

					rows := clone(a.y)
					for i := range m {
						a.run(tier, format, rows, i, 1, 0, d, 0)
					}
					wantSame(t, name+" row by row", rows, whole)

					cut := clone(a.y)
					for from := 0; from < d; from += 33 {
						a.run(tier, format, cut, 0, m, from, min(d, from+33), 0)
					}
					wantSame(t, name+" cut in d", cut, whole)

					wide := clone(a.y)
					tier.AccumulateF32(wide, a.ldy, a.x, a.ldx, m, a.w[format], a.ldw, d, c)
					wantSame(t, name+" widened", wide, whole)

					if c > scaleBlock {
						right := clone(a.y)
						a.run(tier, format, right, 0, m, 0, d, scaleBlock)
						for i := range m {
							wantSame(t, name+" right part", right[i*a.ldy+scaleBlock:i*a.ldy+c],
								whole[i*a.ldy+scaleBlock:i*a.ldy+c])
						}
					}
				})
			}
		}
	})
}

func TestAccumulatePropagatesNaN(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		for _, m := range []int{1, 7} {
			for _, at := range []int{0, 63, 130, 259} {
				const d, c = 5, 260
				a := newTransposed(newRand(8), m, d, c, 0, 0)
				a.fp8[2*a.ldw+at] = 0x7F
				a.w[testF32][2*a.ldw+at] = float32(math.NaN())
				for _, format := range []int{testF32, testFP8} {
					y := clone(a.y)
					a.run(tier, format, y, 0, m, 0, d, 0)
					for i, v := range y {
						if (v != v) != (i%a.ldy == at) {
							t.Fatalf("%s m=%d NaN in column %d: y[%d] = %v", formatNames[format], m, at, i, v)
						}
					}
					// The other columns have the same values as without the NaN.
					b := *a
					b.fp8 = append([]byte(nil), a.fp8...)
					b.fp8[2*a.ldw+at] = 0
					clean := clone(a.y)
					b.run(tier, format, clean, 0, m, 0, d, 0)
					for i := range y {
						if i%a.ldy != at && !same(y[i], clean[i]) {
							t.Fatalf("%s m=%d: a NaN in column %d changed y[%d]", formatNames[format], m, at, i)
						}
					}
				}
			}
		}
	})
}
