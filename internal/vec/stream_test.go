package vec

import (
	"fmt"
	"math"
	"testing"
)

// Products by streaming kernels, which read weights in units, are bitwise equal to products with weights in panels: for
// units of one block and of several, for more units than one call processes, for scales of which some are powers of
// two, and with other rows before and after.
func TestTiledUnits(t *testing.T) {
	tier := tiledTier(t)
	const rows = 33
	for _, s := range [][3]int{{128, 2500, 0}, {256, 640, 64}, {384, 1100, 17}, {1024, 1400, 0}, {1152, 200, 96}} {
		k, cols, row0 := s[0], s[1], s[2]
		a := newMatrix(newRand(33), rows, cols, k, 0, row0)
		for i, scale := range a.scale {
			if i/a.ldScale%4 > 1 {
				a.scale[i] = float32(math.Exp2(math.Round(math.Log2(float64(scale)))))
			}
		}
		whole := make([]float32, rows*cols)
		tier.TiledFP8(Cut{Y: whole, Ldy: cols, X: packed(tier, Halves, a.x, a.ldx, rows, k), M1: rows, N: cols}, a.fp8,
			a.ldw, a.scale, a.ldScale, row0)
		for _, m := range []int{1, 2, 4, 7, 8, 9, 16, 20, 32} {
			x := packed(tier, Halves, a.x, a.ldx, m, k)
			for _, add := range []bool{false, true} {
				part, want := make([]float32, m*cols+1), make([]float32, m*cols)
				for i := range want {
					want[i] = whole[i]
					if add {
						part[i] = float32(i)
						want[i] += float32(i)
					}
				}
				// Prefetching does not change results.
				tier.TiledFP8(Cut{Y: part, Ldy: cols, X: x, M1: m, N: cols, Add: add, Next: a.fp8[:m]}, a.fp8, a.ldw,
					a.scale, a.ldScale, row0)
				wantSame(t, fmt.Sprintf("%d rows by %d of %d, add %v", m, cols, k, add), part[:m*cols], want)
				if part[m*cols] != 0 {
					t.Errorf("%d rows by %d of %d: wrote past the end", m, cols, k)
				}
			}
		}
	}
}

// Rare codes (zeros, subnormal numbers and NaN) keep their values in any number and at any position: streaming kernels
// are bitwise equal to panels, which widen every code by tables, and panels equal the sums of the reference.
func TestTiledRareCodes(t *testing.T) {
	tier := tiledTier(t)
	const rows, cols, k = 40, 128, 2048 + 128
	r := newRand(31)
	for _, c := range []struct {
		name string
		rare func(j, i int) bool // reports whether weight i of row j is rare
	}{
		{"none", func(int, int) bool { return false }},
		{"one in ten thousand", func(int, int) bool { return r.IntN(10000) == 0 }},
		{"one in a hundred", func(int, int) bool { return r.IntN(100) == 0 }},
		{"half", func(int, int) bool { return r.IntN(2) == 0 }},
		{"all", func(int, int) bool { return true }},
		{"whole rows", func(j, _ int) bool { return j%5 == 0 }},
		{"many, then none, then many", func(_, i int) bool { return i/512%2 == 0 }},
		{"a single one", func(j, i int) bool { return j == 71 && i == 1217 }},
	} {
		for _, nan := range []bool{false, true} {
			a := newMatrix(r, rows, cols, k, 0, 0)
			for j := range cols {
				row := a.fp8[j*a.ldw:][:k]
				for i := range row {
					row[i] = byte(8+r.IntN(0x7F-8)) | byte(r.IntN(2))<<7
					if c.rare(j, i) {
						row[i] = byte(r.IntN(8)) | byte(r.IntN(2))<<7
						if nan && r.IntN(4) == 0 {
							row[i] |= 0x7F
						}
					}
				}
			}
			a.widen()
			for _, powers := range []bool{false, true} {
				if powers {
					a.withPowerScales()
				}
				whole := make([]float32, rows*cols)
				cut := Cut{Y: whole, Ldy: cols, X: packed(tier, Halves, a.x, a.ldx, rows, k), M1: rows, N: cols}
				tier.TiledFP8(cut, a.fp8, a.ldw, a.scale, a.ldScale, 0)
				if !nan {
					wantSums(t, c.name, whole, a.x, a.ldx, rows, a.w[testFP8], a.ldw, cols, k,
						float64(k/8+8)*0x1p-24+0x1p-17)
				}
				for _, m := range []int{1, 3, 8, 16, 32} {
					part := make([]float32, m*cols)
					tier.TiledFP8(Cut{Y: part, Ldy: cols, X: packed(tier, Halves, a.x, a.ldx, m, k), M1: m, N: cols},
						a.fp8, a.ldw, a.scale, a.ldScale, 0)
					wantSame(t, fmt.Sprintf("%s, NaN %v, powers %v, %d rows", c.name, nan, powers, m), part,
						whole[:m*cols])
				}
			}
		}
	}
}

// Products with e2m1 weights are bitwise equal for any number of rows of x: units of one block and of several, more
// units than a call processes, rows that do not end with a whole block, rows before and after. Scales are in one
// window, in several windows, and at the ends of their range.
func TestTiledUnitsFP4(t *testing.T) {
	tier := tiledTier(t)
	const rows = 33
	for _, s := range []struct{ k, cols int }{
		{128, 1200}, {256, 640}, {384, 205}, {1024, 600}, {1152, 97}, {1090, 130}, {8192 + 384 + 6, 70}, {4096, 64},
		{2048, 96}, {4096, 200}, {4096 + 1024, 136},
	} {
		for _, powers := range []int{4, 16, 0} {
			extreme := powers == 0
			k, cols := s.k, s.cols
			r := newRand(34)
			f := newFourBit(r, cols, k, max(powers, 2))
			groups := (k + GroupFP4 - 1) / GroupFP4
			if extreme {
				for range 1 + cols/100 {
					f.scales[r.IntN(len(f.scales))] = []byte{0, 1, 253, 255}[r.IntN(4)]
				}
			}
			x := normals(r, rows*k)
			whole := make([]float32, rows*cols)
			tier.TiledFP4(Cut{Y: whole, Ldy: cols, X: packed(tier, Nibbles, x, k, rows, k), M1: rows, N: cols},
				f.codes, k/2, f.scales, groups)
			if !extreme {
				wantSums(t, "fp4", whole[:4*cols], inPlanes(x, k, 4, k), k, 4, f.wide, k, cols, k,
					float64(k/8+8)*0x1p-24)
			}
			for _, m := range []int{1, 2, 4, 7, 8, 9, 16, 20, 32} {
				cut := Cut{Ldy: cols, X: packed(tier, Nibbles, x, k, m, k), M1: m, N: cols}
				for _, add := range []bool{false, true} {
					part, want := make([]float32, m*cols+1), make([]float32, m*cols)
					for i := range want {
						want[i] = whole[i]
						if add {
							part[i] = float32(i)
							want[i] += float32(i)
						}
					}
					cut.Y, cut.Add = part, add
					tier.TiledFP4(cut, f.codes, k/2, f.scales, groups)
					wantSame(t, fmt.Sprintf("%d rows by %d of %d, add %v, %d powers", m, cols, k, add, powers),
						part[:m*cols], want)
					if part[m*cols] != 0 {
						t.Errorf("%d rows by %d of %d: wrote past the end", m, cols, k)
					}
				}
			}
		}
	}
}
