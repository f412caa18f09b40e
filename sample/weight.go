package sample

import "math"

// Weights are integers, so their sums do not depend on the order of their terms: a GPU that adds them in parallel
// samples exactly the same token as this package (kernel/cuda/src/smxx/sample).
const (
	// weightBits is the binary logarithm of the weight of the likeliest token. The sum of MaxVocabulary such weights
	// fits in 63 bits.
	weightBits    = 44
	MaxVocabulary = 1 << 19
	// Reach is the maximum distance below the largest logit, in units of temperature, at which a token still counts.
	// Its weight is then 2.
	Reach = 30
	// grain is the number of weight buckets for each unit of temperature.
	grain   = 64
	buckets = Reach*grain + 1
)

// roots has exp(-2^j / grain) at index j.
var roots = [...]float64{
	0x1.f80feabfeefa5p-1, 0x1.f03f56a88b5d8p-1, 0x1.e0fabfbc702a4p-1, 0x1.c3d6a24ed8222p-1,
	0x1.8ebef9eac820bp-1, 0x1.368b2fc6f960ap-1, 0x1.78b56362cef38p-2, 0x1.152aaa3bf81ccp-3,
	0x1.2c155b8213cf4p-6, 0x1.5fc21041027adp-12, 0x1.e355bbaee85cbp-24,
}

// scales has 2^weightBits * exp(-b / grain) at index b, computed from roots in a fixed order.
var scales = func() (t [buckets]float64) {
	for b := range t {
		v := float64(uint64(1) << weightBits)
		for j, root := range roots {
			if b>>j&1 != 0 {
				v = float64(v * root)
			}
		}
		t[b] = v
	}
	return t
}()

// middles has b / grain at index b. A table is used because the conversion of b may compile to an instruction that
// waits for the result of the previous one.
var middles = func() (t [buckets]float64) {
	for b := range t {
		t[b] = float64(b) / grain
	}
	return t
}()

// Weigh returns the bucket of a token at distance d below the maximum, 0 <= d < Reach, and its weight: exp(-d), where
// the most likely token has 1 << weightBits. In a bucket |b/grain - d| <= 1/128, and the error of three terms of the
// series is 8e-8, about the rounding error of a logit. Conversions make the roundings explicit: no multiplication is
// fused with an addition.
func Weigh(d float64) (b uint, weight uint64) {
	b = bucketOf(d)
	r := middles[b] - d
	series := float64(1+r) + float64(float64(r*r)*0.5)
	return b, uint64(int64(float64(scales[b]*series) + 0.5))
}

// bucketOf is monotone in the distance, so buckets are in order of preference. (The detour over int is one
// instruction; straight to uint takes a jump.)
func bucketOf(d float64) uint { return uint(int(float64(d*grain) + 0.5)) }

// least returns the weight below which min_p drops a token.
func least(minP float64) uint64 { return uint64(int64(math.Ceil(float64(minP * (1 << weightBits))))) }

// share returns the minimum weight that is a share p of a total, 0 < p < 1.
func share(p float64, total uint64) uint64 {
	return min(uint64(int64(math.Ceil(float64(p*float64(int64(total)))))), total)
}
