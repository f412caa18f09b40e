package num

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
)

func TestHadamardIsTheSylvesterMatrix(t *testing.T) {
	for _, n := range []int{1, 2, 4, 64, 128, 256} {
		r := rand.New(rand.NewPCG(1, uint64(n)))
		v, want := make([]float32, n), make([]float32, n)
		for i := range v {
			v[i] = float32(r.IntN(2001) - 1000) // sums of integers are exact in float32 here
		}
		for i := range want {
			for j, x := range v {
				if bits.OnesCount(uint(i&j))%2 == 1 {
					x = -x
				}
				want[i] += x
			}
		}
		orig := append([]float32(nil), v...)
		Hadamard(v)
		for i := range v {
			if v[i] != want[i] {
				t.Fatalf("n %d: element %d is %g, want %g", n, i, v[i], want[i])
			}
		}
		Hadamard(v) // H*H = n*I
		for i := range v {
			if v[i] != orig[i]*float32(n) {
				t.Fatalf("n %d: twice rotated element %d is %g, want %g", n, i, v[i], orig[i]*float32(n))
			}
		}
	}
}

func TestHadamard128OfUnitVectors(t *testing.T) {
	// 128^-1/2 is .0883883. The step of bf16 is 2^-11 there, so it is 181.02 steps, rounded to 181*2^-11 =
	// .08837890625.
	const entry = 181.0 / 2048
	for k := range 128 {
		v := make([]float32, 128)
		v[k] = 1
		Hadamard128(v)
		for i, got := range v {
			want := float32(entry)
			if bits.OnesCount(uint(i&k))%2 == 1 {
				want = -want
			}
			if got != want {
				t.Fatalf("unit vector %d, element %d: got %g, want %g", k, i, got, want)
			}
		}
	}
}

func TestHadamard128RoundsItsInputToBF16(t *testing.T) {
	a, b := make([]float32, 128), make([]float32, 128)
	for i := range a {
		a[i] = 1 + float32(i)/4096 // this value needs more than 8 bits
		b[i] = RoundBF16(a[i])
	}
	Hadamard128(a)
	Hadamard128(b)
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("element %d: %g from the unrounded input, %g from the rounded", i, a[i], b[i])
		}
		if a[i] != RoundBF16(a[i]) {
			t.Fatalf("element %d: %g is not a bf16 value", i, a[i])
		}
	}
}

func TestHadamard128KeepsVectorsAndDotProducts(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		q, k := make([]float32, 128), make([]float32, 128)
		var dot, qq, kk float64
		for i := range q {
			q[i], k[i] = RoundBF16(float32(r.NormFloat64())), RoundBF16(float32(r.NormFloat64()))
		}
		q[r.IntN(128)] = 40 // an outlier, which the rotation spreads
		for i := range q {
			dot += float64(q[i]) * float64(k[i])
			qq += float64(q[i]) * float64(q[i])
			kk += float64(k[i]) * float64(k[i])
		}
		orig := append([]float32(nil), q...)
		Hadamard128(q)
		Hadamard128(k)
		var rotated float64
		for i := range q {
			rotated += float64(q[i]) * float64(k[i])
		}
		// Each rotated element has a relative error of at most 2^-8 (half a bf16 step). Both vectors have that error,
		// and the bound follows by the Cauchy-Schwarz inequality.
		bound := math.Sqrt(qq*kk) * 2 * 0x1p-8
		if math.Abs(rotated-dot) > bound {
			t.Fatalf("dot product %g became %g, bound %g", dot, rotated, bound)
		}
		Hadamard128(q)
		for i := range q {
			// The second rotation spreads the rounding errors of the first one (2^-9 of each element) over all
			// elements.
			if d := math.Abs(float64(q[i]) - float64(orig[i])); d > math.Sqrt(qq)*2*0x1p-9 {
				t.Fatalf("twice rotated element %d: %g became %g", i, orig[i], q[i])
			}
		}
	}
}

func TestHadamardRefusesOtherLengths(t *testing.T) {
	mustPanic := func(name string, f func()) {
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", name)
			}
		}()
		f()
	}
	for _, n := range []int{0, 3, 127} {
		mustPanic(fmt.Sprint("Hadamard of ", n), func() { Hadamard(make([]float32, n)) })
	}
	for _, n := range []int{0, 64, 127, 256} {
		mustPanic(fmt.Sprint("Hadamard128 of ", n), func() { Hadamard128(make([]float32, n)) })
	}
}
