package vec

import (
	"fmt"
	"math"
	"testing"
)

// Every tier multiplies e2m1 weights correctly. The cases have every number of rows that a kernel supports, row lengths
// that are not a multiple of a block or group, more weights than a chunk, and the smallest and largest scales.
func TestMatMulFP4(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		r := newRand(41)
		for _, s := range [][3]int{
			{1, 1, 2}, {1, 5, 32}, {2, 3, 66}, {3, 7, 128}, {4, 9, 130}, {5, 33, 256}, {9, 6, 1090}, {1, 40, 8192},
			{7, 300, 1024},
		} {
			m, n, k := s[0], s[1], s[2]
			f := newFourBit(r, n, k, 16)
			groups := (k + GroupFP4 - 1) / GroupFP4
			x := normals(r, m*k)
			y := make([]float32, m*n)
			tier.MatMulFP4(y, n, x, k, m, f.codes, k/2, n, k, f.scales, groups)
			taken := x
			if tier.Tiled() {
				taken = inPlanes(x, k, m, k)
			}
			wantSums(t, "fp4", y, taken, k, m, f.wide, k, n, k, float64(k/8+8)*0x1p-24)
			// Each row is bitwise equal alone.
			for i := range m {
				alone := make([]float32, n)
				tier.MatMulFP4(alone, n, x[i*k:], k, 1, f.codes, k/2, n, k, f.scales, groups)
				wantSame(t, fmt.Sprintf("row %d of %v", i, s), alone, y[i*n:][:n])
			}
		}
	})
}

// Products that float32 represents exactly are correct for all scales: the smallest scale is a subnormal number, and
// the last one is NaN.
func TestMatMulFP4Scales(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		tier = tier.Precise()
		const k = 512 // one group per lane: the kernel widens the scales
		for e := range 256 {
			codes, scales := make([]byte, k/2), make([]byte, k/GroupFP4)
			for i := range scales {
				scales[i] = 127
			}
			codes[3*16+5], scales[3] = 0x95, byte(e) // codes of 3 and -0.5
			x := make([]float32, k)
			x[3*GroupFP4+10], x[3*GroupFP4+11] = 0x1p3, 0x1p4
			y := make([]float32, 1)
			tier.MatMulFP4(y, 1, x, k, 1, codes, k/2, 1, k, scales, k/GroupFP4)
			want := float32(math.Ldexp(16, e-127))
			if e == 255 {
				want = float32(math.NaN())
			}
			if !same(y[0], want) {
				t.Errorf("scale %d: %v, want %v", e, y[0], want)
			}
		}
	})
}

func TestMatMulFP4ChecksItsArguments(t *testing.T) {
	y, x, w, s := make([]float32, 4), make([]float32, 128), make([]byte, 128), make([]byte, 8)
	for name, call := range map[string]func(){
		"odd":    func() { portable.MatMulFP4(y, 2, x, 63, 2, w, 32, 2, 63, s, 2) },
		"scales": func() { portable.MatMulFP4(y, 2, x, 64, 2, w, 32, 2, 64, s[:3], 2) },
		"codes":  func() { portable.MatMulFP4(y, 2, x, 64, 2, w[:63], 32, 2, 64, s, 2) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
}
