package vec

import (
	"math"
	"math/rand/v2"
	"testing"
)

// eachTier runs a test for every tier of this machine.
func eachTier(t *testing.T, test func(t *testing.T, tier *Tier)) {
	t.Helper()
	for _, tier := range Tiers() {
		t.Run(tier.Name, func(t *testing.T) { test(t, tier) })
	}
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// normals returns n normally distributed numbers with mean zero.
func normals(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// numbersE4M3 returns n e4m3 codes that are not NaN.
func numbersE4M3(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		for b[i] = 0x7F; b[i]&0x7F == 0x7F; {
			b[i] = byte(r.Uint32())
		}
	}
	return b
}

// narrow returns x as bfloat16 bytes.
func narrow(x []float32) []byte {
	b := make([]byte, 2*len(x))
	narrowBF16Go(b, x)
	return b
}

// same reports whether two results are bitwise equal. Any NaN equals any other NaN.
func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// wantSame fails the test at the first element of got that differs from want.
func wantSame(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i := range got {
		if !same(got[i], want[i]) {
			t.Fatalf("%s: element %d is %v (%#x), want %v (%#x)", what, i,
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

// ulps returns the distance between got and the exact value in units of the last place of a float32 near it.
func ulps(got float32, exact float64) float64 {
	if math.IsInf(exact, 0) || math.Abs(exact) > math.MaxFloat32 {
		if math.IsInf(float64(got), int(math.Copysign(1, exact))) {
			return 0
		}
		return math.Inf(1)
	}
	exp := math.Ilogb(exact)
	if exact == 0 {
		exp = -126
	}
	return math.Abs(float64(got)-exact) / math.Ldexp(1, max(exp, -126)-23)
}
