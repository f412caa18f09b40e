package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/block"
)

// blockFormatsWithProducts returns the block formats that have matrix products.
func blockFormatsWithProducts() (list []block.Format) {
	for _, f := range block.Formats() {
		if BlockGroup(f) > 0 {
			list = append(list, f)
		}
	}
	return list
}

// randomBlocks returns n rows of k random values in the format f.
func randomBlocks(r *rand.Rand, f block.Format, n, k int) []byte {
	w := make([]byte, n*k/f.Values()*f.Bytes())
	f.Random(w, r)
	return w
}

// blockProduct quantises x and multiplies its rows m0 to m1.
func blockProduct(tier *Tier, f block.Format, x []float32, m, k, m0, m1 int, w []byte, n int, add bool) []float32 {
	var rows BlockRows
	tier.ResetBlocks(&rows, m, k, BlockGroup(f), false)
	for i := range rows.Units() {
		tier.QuantUnit(&rows, i, x, k)
	}
	y := make([]float32, (m1-m0)*n)
	if add {
		for i := range y {
			y[i] = float32(i)
		}
	}
	tier.MulBlocks(BlockCut{Y: y, Ldy: n, X: &rows, M0: m0, M1: m1, N: n, Add: add}, f, w, k/f.Values()*f.Bytes())
	return y
}

// Block products of every tier are bitwise equal to those of plain Go, for every shape. Those of plain Go are computed
// once, because they take most of the time.
func TestBlockProductsAreThoseOfPlainGo(t *testing.T) {
	tiers := slices.DeleteFunc(slices.Clone(Tiers()), func(tier *Tier) bool {
		return tier == portable || !tier.Blocks()
	})
	if len(tiers) == 0 {
		t.Skip("no tier other than plain Go has products with block formats")
	}
	r := newRand(31)
	for _, f := range blockFormatsWithProducts() {
		for _, units := range []int{1, 2, 3, 5, 33} {
			k := units * f.Values()
			if k > 2048 {
				continue
			}
			for _, n := range []int{1, 15, 17, 32, 179} {
				if n == 179 && units != 3 {
					continue // many rows are slow in plain Go
				}
				w := randomBlocks(r, f, n, k)
				if f == block.MXFP4 {
					for i := range 4 { // scales that are subnormal, small, or infinite
						w[i*len(w)/4/17*17] = []byte{0, 1, 2, 150}[i]
					}
				}
				for _, m := range []int{1, 2, 16, 35} {
					x := normals(r, m*k)
					x[r.IntN(len(x))] *= 100
					for _, add := range []bool{false, true} {
						want := blockProduct(portable, f, x, m, k, 0, m, w, n, add)
						for _, tier := range tiers {
							got := blockProduct(tier, f, x, m, k, 0, m, w, n, add)
							wantSame(t, fmt.Sprintf("%s: %v [%d, %d] by %d", tier.Name, f, m, k, n), got, want)
						}
					}
				}
			}
		}
	}
}

// A row is bitwise equal alone and in a batch.
func TestBlockRowsAreTheSameInAnyBatch(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		if !tier.Blocks() {
			t.Skip("this tier has no products with block formats")
		}
		const m, n, k = 37, 17, 1280
		r := newRand(32)
		for _, f := range blockFormatsWithProducts() {
			x, w := normals(r, m*k), randomBlocks(r, f, n, k)
			all := blockProduct(tier, f, x, m, k, 0, m, w, n, false)
			for row := range m {
				alone := blockProduct(tier, f, x[row*k:], 1, k, 0, 1, w, n, false)
				wantSame(t, fmt.Sprintf("%v row %d", f, row), alone, all[row*n:][:n])
			}
			wantSame(t, "rows from 32 on", blockProduct(tier, f, x, m, k, 32, m, w, n, false), all[32*n:])
		}
	})
}

// Products with block formats are close to products with the decoded weights: rounding x to eight bits changes it by at
// most 1/254 of the largest value of a group.
func TestBlockProductsAreNearExactOnes(t *testing.T) {
	const m, n, k = 18, 17, 512
	r := newRand(33)
	for _, f := range blockFormatsWithProducts() {
		x, w := normals(r, m*k), randomBlocks(r, f, n, k)
		wide := make([]float32, n*k)
		f.Decode(wide, w)
		eachTier(t, func(t *testing.T, tier *Tier) {
			if !tier.Blocks() {
				t.Skip("this tier has no products with block formats")
			}
			got := blockProduct(tier, f, x, m, k, 0, m, w, n, false)
			var wrong, norm float64
			for i := range m {
				for j := range n {
					exact := 0.0
					for l := range k {
						exact += float64(x[i*k+l]) * float64(wide[j*k+l])
					}
					wrong += (float64(got[i*n+j]) - exact) * (float64(got[i*n+j]) - exact)
					norm += exact * exact
				}
			}
			if e := math.Sqrt(wrong / norm); !(e < 0.01) {
				t.Errorf("%v: relative error %.4f", f, e)
			}
		})
	}
}

// The quantised rows of every tier are bitwise equal to those of plain Go, including zeros, tiny and huge numbers.
// Results for numbers that are not finite are not finite.
func TestQuantisedRowsAreThoseOfPlainGo(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		if !tier.Blocks() {
			t.Skip("this tier has no products with block formats")
		}
		const k = 2560
		r := newRand(34)
		x := normals(r, k)
		clear(x[256:512])
		for i := 512; i < 768; i++ {
			x[i] *= 1e-37
		}
		for i := 768; i < 1024; i++ {
			x[i] *= 1e37
		}
		for i := 1024; i < 1280; i++ {
			x[i] = float32(r.IntN(255)-127) / 2 // half-integers, which round to even
		}
		for _, group := range []int{32, 256} {
			var got, want BlockRows
			tier.ResetBlocks(&got, 1, k, group, false)
			tier.QuantUnit(&got, 0, x, k)
			portable.ResetBlocks(&want, 1, k, group, false)
			portable.QuantUnit(&want, 0, x, k)
			for i, b := range want.unit(0) {
				if got.unit(0)[i] != b {
					t.Fatalf("groups of %d: byte %d is %d, want %d", group, i, got.unit(0)[i], b)
				}
			}
		}
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			x[700] = bad
			for _, f := range blockFormatsWithProducts() {
				for i, y := range blockProduct(tier, f, x, 1, k, 0, 1, randomBlocks(r, f, 5, k), 5, false) {
					if y == y {
						t.Errorf("%v: %v in x gives element %d as %v", f, bad, i, y)
					}
				}
			}
		}
	})
}

// fma32 rounds its result once.
func TestFma32(t *testing.T) {
	r := newRand(35)
	for range 100000 {
		a, b, c := float32(r.NormFloat64()), float32(r.NormFloat64()), float32(r.NormFloat64())
		if r.IntN(2) == 0 {
			c = -a * b // the result is the rounding error of the product
		}
		exact := math.FMA(float64(a), float64(b), float64(c))
		if got := fma32(a, b, c); math.Abs(float64(got)-exact) > math.Abs(exact)*0x1p-24 {
			t.Fatalf("%v * %v + %v is %v, want %v", a, b, c, got, exact)
		}
	}
	// The product is 2^-24 - 2^-60. With two roundings the sum would be 1 + 2^-22.
	if got, want := fma32(1-0x1p-18, 0x1p-24+0x1p-42, 1+0x1p-23), float32(1+0x1p-23); got != want {
		t.Fatalf("%v, want %v", got, want)
	}
}

// After buffers have grown, quantising rows and multiplying them allocates nothing.
func TestBlockProductsDoNotAllocate(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const n, k = 20, 512
	r := newRand(36)
	for _, tier := range Tiers() {
		if tier == portable {
			continue
		}
		for _, f := range blockFormatsWithProducts() {
			for _, m := range []int{1, 3, 40} {
				x, w, y := normals(r, m*k), randomBlocks(r, f, n, k), make([]float32, m*n)
				var rows BlockRows
				if a := testing.AllocsPerRun(20, func() {
					tier.ResetBlocks(&rows, m, k, BlockGroup(f), false)
					for i := range rows.Units() {
						tier.QuantUnit(&rows, i, x, k)
					}
					tier.MulBlocks(BlockCut{Y: y, Ldy: n, X: &rows, M1: m, N: n}, f, w, k/f.Values()*f.Bytes())
				}); a != 0 {
					t.Errorf("%s: %d rows by %v: %v allocations", tier.Name, m, f, a)
				}
			}
		}
	}
}

// Formats without assembly kernels are reported as slow.
func TestSlowFormatsAreNamed(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		for _, f := range block.Formats() {
			if why := tier.SlowBlocks(f); (BlockGroup(f) == 0 || !tier.Blocks()) != strings.Contains(why, "widened") {
				t.Errorf("%v: %q", f, why)
			}
		}
	})
}
