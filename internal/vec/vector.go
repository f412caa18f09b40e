package vec

import (
	"fmt"
	"math"
)

// Dot returns Σ a[i]·b[i], bitwise equal to [Tier.MatMulF32] for one row and one column. The slices have equal length.
func (t *Tier) Dot(a, b []float32) float32 {
	needLen("Dot", "b", len(b), len(a))
	if len(a) == 0 {
		return 0
	}
	return t.ops.dot(a, b)
}

// Axpy adds a·x to y element by element, each with one rounding in the
// assembly tiers. The slices have equal length and may be the same.
func (t *Tier) Axpy(y []float32, a float32, x []float32) {
	needLen("Axpy", "x", len(x), len(y))
	if len(y) > 0 {
		t.ops.axpy(y, a, x)
	}
}

// Max returns the largest element of x. It is NaN if any element is NaN, and -Inf for no elements.
func (t *Tier) Max(x []float32) float32 {
	if len(x) == 0 {
		return float32(math.Inf(-1))
	}
	return t.ops.max(x)
}

// ExpSum writes exp(x[i]-max) to dst and returns the sum of the results, added in a fixed order. Elements are within 2
// units in the last place; -Inf gives 0, NaN gives NaN. A max of -Inf means that every element is masked: dst and the
// sum are zero. dst and x have equal length and may be the same slice.
func (t *Tier) ExpSum(dst, x []float32, max float32) float32 {
	needLen("ExpSum", "x", len(x), len(dst))
	if math.IsInf(float64(max), -1) {
		clear(dst)
		return 0
	}
	if len(dst) == 0 {
		return 0
	}
	return t.ops.expSum(dst, x, max)
}

// SoftmaxLanes must divide the length of the argument of Softmax.
const SoftmaxLanes = 16

// Softmax multiplies p by scale and replaces every element by exp(p[i]-newTop), where newTop is the maximum of top and
// all elements; sum is the sum of the results. Elements are as exact as those of ExpSum, -Inf gives 0, and NaN makes
// the sum NaN. The length is a multiple of SoftmaxLanes: callers with fewer elements pad with -Inf, which a positive
// scale does not change.
func (t *Tier) Softmax(p []float32, scale, top float32) (newTop, sum float32) {
	if len(p)%SoftmaxLanes != 0 {
		panic(fmt.Sprintf("vec: Softmax: %d elements, want a multiple of %d", len(p), SoftmaxLanes))
	}
	if len(p) == 0 {
		return top, 0
	}
	return t.ops.softmax(p, scale, top)
}

// SiluMul writes gate/(1+exp(-gate))·up to dst element by element, within 4 units in the last place or, if exp
// overflows float32, 2^-118. The slices have equal length and dst may be either input.
func (t *Tier) SiluMul(dst, gate, up []float32) {
	needLen("SiluMul", "gate", len(gate), len(dst))
	needLen("SiluMul", "up", len(up), len(dst))
	if len(dst) > 0 {
		t.ops.siluMul(dst, gate, up)
	}
}

// ScaleMul writes (x·s)·w to y element by element, which is the second half of RMSNorm. The slices have equal length
// and y may be x or w.
func (t *Tier) ScaleMul(y, x, w []float32, s float32) {
	needLen("ScaleMul", "x", len(x), len(y))
	needLen("ScaleMul", "w", len(w), len(y))
	if len(y) > 0 {
		t.ops.scaleMul(y, x, w, s)
	}
}
