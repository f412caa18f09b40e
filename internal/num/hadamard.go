package num

import "fmt"

// hadamardNorm is 128^-1/2, which makes the 128-point rotation orthogonal.
const hadamardNorm = 0.08838834764831845

// Hadamard multiplies v in place by the Sylvester matrix H[i][j] = (-1)^popcount(i&j), without normalisation, in
// float32 butterflies from stride 1 upwards. The order of the sums must not change, because results are compared
// bitwise; two stages are computed together, which does not change it. Hadamard panics if the length of v is not a
// power of two.
func Hadamard(v []float32) {
	n := len(v)
	if n == 0 || n&(n-1) != 0 {
		panic(fmt.Sprintf("num: hadamard needs a power-of-two length, got %d", n))
	}
	h := 1
	if n >= 4 {
		hadamardFirst(v)
		h = 4
	}
	for ; 4*h <= n; h *= 4 {
		for i := 0; i < n; i += 4 * h {
			hadamardFour(v[i:i+h], v[i+h:i+2*h], v[i+2*h:i+3*h], v[i+3*h:i+4*h])
		}
	}
	if h < n { // one stage left: h is half the length
		lo, hi := v[:h], v[h:2*h]
		for j, a := range lo {
			b := hi[j]
			lo[j], hi[j] = a+b, a-b
		}
	}
}

// hadamardFirst runs the stages of stride 1 and 2 in one pass.
func hadamardFirst(v []float32) {
	for ; len(v) >= 4; v = v[4:] {
		a, b := v[0]+v[1], v[0]-v[1]
		c, d := v[2]+v[3], v[2]-v[3]
		v[0], v[1], v[2], v[3] = a+c, b+d, a-c, b-d
	}
}

// hadamardFour runs two consecutive stages over four adjacent parts of v, so that each value is loaded and stored once
// instead of twice.
func hadamardFour(p, q, r, s []float32) {
	q, r, s = q[:len(p)], r[:len(p)], s[:len(p)]
	for j := range p {
		a, b := p[j]+q[j], p[j]-q[j]
		c, d := r[j]+s[j], r[j]-s[j]
		p[j], q[j], r[j], s[j] = a+c, b+d, a-c, b-d
	}
}

// Hadamard128 rotates one indexer vector of 128 values in place: the input is rounded to bf16, transformed with
// Hadamard, multiplied by 128^-1/2 and rounded to bf16. Applied to query and key, it does not change their dot product
// except for bf16 rounding, and distributes outliers over all values before FP8 quantisation. It panics if the length
// of v is not 128.
func Hadamard128(v []float32) {
	if len(v) != 128 {
		panic(fmt.Sprintf("num: hadamard128 needs 128 values, got %d", len(v)))
	}
	for i, x := range v {
		v[i] = RoundBF16(x)
	}
	Hadamard(v)
	for i, x := range v {
		v[i] = RoundBF16(x * hadamardNorm)
	}
}
