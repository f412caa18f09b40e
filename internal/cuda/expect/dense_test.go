package expect

import (
	"math"
	"math/rand/v2"
	"testing"
)

// AttendDense, with the first 512 columns of the rows as values, gives the same result as attention over the rows.
func TestAttendDenseAgreesWithAttendOverRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	vector := func() []float32 {
		v := make([]float32, 576)
		for i := range v {
			v[i] = float32(rng.NormFloat64())
		}
		return v
	}
	q := vector()
	var keys, values [][]float32
	for range 9 {
		k := vector()
		keys, values = append(keys, k), append(values, k[:512])
	}
	want, wantLSE, _ := Attend(q, keys, 0.05, math.Inf(-1))
	out, lse := AttendDense(q, keys, values, 0.05)
	for i := range want {
		if math.Abs(out[i]-want[i]) > 1e-12 {
			t.Fatalf("value %d is %g, want %g", i, out[i], want[i])
		}
	}
	if lse != wantLSE {
		t.Errorf("lse %g, want %g", lse, wantLSE)
	}
	if out, lse := AttendDense(q, nil, nil, 1); out != nil || !math.IsInf(lse, 1) {
		t.Errorf("no keys: %v, lse %g", out, lse)
	}
}
