package sample

import "math"

// expBits is the resolution of expTable: steps of 2^(1/256).
const expBits = 8

// expTable[i] = 2^(i/256).
var expTable = func() (t [1 << expBits]float64) {
	for i := range t {
		t[i] = math.Exp2(float64(i) / (1 << expBits))
	}
	return t
}()

// expUnit is the step of expTable as a natural logarithm.
const expUnit = math.Ln2 / (1 << expBits)

// expNeg is exp(-d) for 0 <= d < 512, with a relative error below 5e-10, a hundredth of a float32's own. A softmax over a large vocabulary is mostly this function:
// it takes half the time of math.Exp.
func expNeg(d float64) float64 { return expSteps(d, stepsOf(d)) }

// stepsOf is d in units of expUnit, rounded. It is monotone in d.
func stepsOf(d float64) int { return int(d*(1/expUnit) + 0.5) }

// expSteps is expNeg for a caller that has stepsOf(d) already.
//
// exp(-d) = 2^k * 2^(i/256) * exp(r), where k*256+i is -n and |r| <= ln2/512 is the rest; r^3/6 is left out.
func expSteps(d float64, n int) float64 {
	r := float64(n)*expUnit - d
	e := 1 + r + r*r*0.5
	scale := math.Float64frombits(uint64(1023+(-n)>>expBits) << 52)
	return scale * expTable[-n&(1<<expBits-1)] * e
}
