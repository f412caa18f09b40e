package vec

import (
	"math"
	"testing"
)

var inf = float32(math.Inf(1))

func TestAxpyAndScaleMul(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		for n := range 70 {
			r := newRand(uint64(n))
			x, y, w := normals(r, n), normals(r, n), normals(r, n)
			got := clone(y)
			tier.Axpy(got, 1.7, x)
			a := float64(float32(1.7))
			for i := range got {
				if u := math.Abs(float64(got[i]) - (float64(y[i]) + a*float64(x[i]))); u > 1e-6 {
					t.Fatalf("axpy n=%d: element %d off by %v", n, i, u)
				}
			}
			tier.ScaleMul(got, x, w, 0.3)
			for i := range got {
				if want := x[i] * 0.3 * w[i]; !same(got[i], want) {
					t.Fatalf("scale n=%d: element %d is %v, want %v", n, i, got[i], want)
				}
			}
		}
	})
}

func TestMax(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		if got := tier.Max(nil); got != -inf {
			t.Fatalf("max of nothing is %v", got)
		}
		for n := 1; n < 70; n++ {
			for at := range n {
				x := make([]float32, n)
				for i := range x {
					x[i] = -float32(i) - 10
				}
				x[at] = -3
				if got := tier.Max(x); got != -3 {
					t.Fatalf("n=%d: max is %v, want -3 at %d", n, got, at)
				}
				x[at] = float32(math.NaN())
				if got := tier.Max(x); got == got {
					t.Fatalf("n=%d: max is %v with NaN at %d", n, got, at)
				}
			}
		}
		if got := tier.Max([]float32{-inf, -inf, -inf}); got != -inf {
			t.Fatalf("max of -Inf is %v", got)
		}
	})
}

func TestExpIsAccurateOverItsRange(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		var x []float32
		for v := float32(-110); v < 90; v += 0.0037 {
			x = append(x, v)
		}
		for v := float32(1e-30); v < 1; v *= 1.1 {
			x = append(x, v, -v)
		}
		x = append(x, 0, -87.33655, -103.97, -104.01, 88.72283, 88.72284, -1e30, 1e30)
		got := make([]float32, len(x))
		tier.ExpSum(got, x, 0)
		worst, at := 0.0, 0
		for i := range x {
			if u := ulps(got[i], math.Exp(float64(x[i]))); u > worst {
				worst, at = u, i
			}
		}
		t.Logf("worst error %.3f units at exp(%v)", worst, x[at])
		if worst > 2 {
			t.Fatalf("exp(%v) = %v, %v units off", x[at], got[at], worst)
		}
	})
}

func TestExpSumMasksAndPropagates(t *testing.T) {
	nan := float32(math.NaN())
	eachTier(t, func(t *testing.T, tier *Tier) {
		for n := 1; n < 40; n++ {
			x := make([]float32, n)
			for i := range x {
				x[i] = -inf
			}
			dst := make([]float32, n)
			x[n-1] = 5
			if sum := tier.ExpSum(dst, x, 5); sum != 1 || dst[n-1] != 1 || n > 1 && dst[0] != 0 {
				t.Fatalf("n=%d: sum %v of %v", n, sum, dst)
			}
			x[n-1] = nan
			if sum := tier.ExpSum(dst, x, 5); sum == sum || dst[n-1] == dst[n-1] {
				t.Fatalf("n=%d: sum %v of %v with a NaN", n, sum, dst)
			}
			x[n-1] = -inf
			if sum := tier.ExpSum(dst, x, tier.Max(x)); sum != 0 {
				t.Fatalf("n=%d: all masked sums to %v", n, sum)
			}
			for _, v := range dst {
				if v != 0 {
					t.Fatalf("n=%d: all masked gives %v", n, dst)
				}
			}
		}
	})
}

// The sum depends only on the values. It does not depend on the alignment of the slice or on whether it is computed in
// place.
func TestExpSumIgnoresAlignment(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		const n = 1003
		values := normals(newRand(9), n)
		dst := make([]float32, n)
		want := tier.ExpSum(dst, values, 2)
		var exact float64
		for _, v := range values {
			exact += math.Exp(float64(v) - 2)
		}
		if math.Abs(float64(want)-exact) > 1e-4*exact {
			t.Fatalf("sum %v, want %v", want, exact)
		}
		for shift := range 16 {
			x := append(make([]float32, shift), values...)[shift:]
			if got := tier.ExpSum(x, x, 2); !same(got, want) {
				t.Fatalf("shifted by %d: sum %v, want %v", shift, got, want)
			}
			wantSame(t, "in place", x, dst)
		}
	})
}

func TestSiluMul(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		var gate, up []float32
		for v := float32(-95); v < 95; v += 0.0113 {
			gate = append(gate, v)
			up = append(up, 1.5)
		}
		gate = append(gate, 0, inf, 3e38, -3e38)
		up = append(up, 7, 1, 0.5, 1)
		dst := make([]float32, len(gate))
		tier.SiluMul(dst, gate, up)
		for i, g := range gate {
			exact := float64(g) / (1 + math.Exp(-float64(g))) * float64(up[i])
			if u := ulps(dst[i], exact); u > 4 && math.Abs(float64(dst[i])-exact) > math.Ldexp(1, -118) {
				t.Fatalf("silu(%v)*%v = %v, want %v", g, up[i], dst[i], exact)
			}
		}
		nan := []float32{float32(math.NaN())}
		if tier.SiluMul(dst[:1], nan, up[:1]); dst[0] == dst[0] {
			t.Fatalf("silu(NaN) = %v", dst[0])
		}
		// Each element is bitwise equal at every position.
		for n := 1; n < 40; n++ {
			part := make([]float32, n)
			tier.SiluMul(part, gate[500:500+n], up[500:500+n])
			wantSame(t, "prefix", part[:1], func() []float32 {
				one := make([]float32, 1)
				tier.SiluMul(one, gate[500:501], up[500:501])
				return one
			}())
		}
	})
}

func TestSoftmax(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		r := newRand(17)
		inf := float32(math.Inf(-1))
		for _, n := range []int{16, 32, 64, 272} {
			for _, c := range []struct {
				name  string
				top   float32
				masks int
			}{{"first block", inf, 0}, {"larger before", 9, 0}, {"smaller before", -9, 3}, {"masked end", inf, n - 1},
				{"all masked", inf, n}} {
				p := normals(r, n)
				for i := n - c.masks; i < n; i++ {
					p[i] = inf
				}
				const scale = 0.7
				top := float64(c.top)
				for _, v := range p {
					top = max(top, float64(v*scale))
				}
				want, wantSum := make([]float64, n), 0.0
				for i, v := range p {
					if !math.IsInf(top, -1) {
						want[i] = math.Exp(float64(v*scale) - top)
					}
					wantSum += want[i]
				}
				newTop, sum := tier.Softmax(p, scale, c.top)
				if float64(newTop) != top || math.Abs(float64(sum)-wantSum) > 1e-6*float64(n) {
					t.Fatalf("%d scores, %s: largest %v, sum %v, want %v, %v", n, c.name, newTop, sum, top, wantSum)
				}
				for i := range p {
					if math.Abs(float64(p[i])-want[i]) > 1e-6*want[i] {
						t.Fatalf("%d scores, %s: weight %d is %v, want %v", n, c.name, i, p[i], want[i])
					}
				}
			}
		}
		p := make([]float32, 32)
		p[20] = float32(math.NaN())
		if _, sum := tier.Softmax(p, 1, inf); !math.IsNaN(float64(sum)) {
			t.Errorf("NaN among the scores: the sum is %v", sum)
		}
	})
}
