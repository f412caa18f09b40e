package sample

import "math"

// Weights of tokens are integers, whose sums do not depend on the order of addition: a GPU that adds them in parallel
// samples the same token as this package (kernel/cuda/src/smxx/sample).
const (
	// weightBits: the most likely token has the weight 1 << weightBits. The sum of MaxVocabulary such weights fits in
	// 63 bits.
	weightBits    = 44
	MaxVocabulary = 1 << 19
	// Reach is the maximum distance below the largest logit, in units of temperature, of tokens that can be sampled. At
	// this distance the weight of a token is 2.
	Reach = 30
	// grain is the number of buckets per unit of temperature.
	grain   = 64
	buckets = Reach*grain + 1
)

// roots holds exp(-2^j / grain) at index j.
var roots = [...]float64{
	0x1.f80feabfeefa5p-1, 0x1.f03f56a88b5d8p-1, 0x1.e0fabfbc702a4p-1, 0x1.c3d6a24ed8222p-1,
	0x1.8ebef9eac820bp-1, 0x1.368b2fc6f960ap-1, 0x1.78b56362cef38p-2, 0x1.152aaa3bf81ccp-3,
	0x1.2c155b8213cf4p-6, 0x1.5fc21041027adp-12, 0x1.e355bbaee85cbp-24,
}

// scales holds 2^weightBits * exp(-b / grain) at index b, computed from roots in a fixed order.
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

// middles holds b / grain at index b. A table avoids a conversion from integer to float, which has a false dependency
// on the previous conversion.
var middles = func() (t [buckets]float64) {
	for b := range t {
		t[b] = float64(b) / grain
	}
	return t
}()

// Weigh returns the bucket of a token at distance d below the maximum, 0 <= d < Reach, and its weight, exp(-d) <<
// weightBits. In a bucket |b/grain - d| <= 1/128, so three terms of the series suffice for an error of 8e-8, about the
// rounding error of a logit. The conversions to float64 prevent fused multiply-adds, so that results are the same
// everywhere.
func Weigh(d float64) (b uint, weight uint64) {
	b = bucketOf(d)
	r := middles[b] - d
	series := float64(1+r) + float64(float64(r*r)*0.5)
	return b, uint64(int64(float64(scales[b]*series) + 0.5))
}

// bucketOf returns the bucket for a distance. It is monotone, so buckets are in order of preference. The conversion to
// int is one instruction; a direct conversion to uint needs a branch.
func bucketOf(d float64) uint { return uint(int(float64(d*grain) + 0.5)) }

// least returns the minimum weight that min_p keeps.
func least(minP float64) uint64 { return uint64(int64(math.Ceil(float64(minP * (1 << weightBits))))) }

// share returns p times a total weight, 0 < p < 1, rounded up.
func share(p float64, total uint64) uint64 {
	return min(uint64(int64(math.Ceil(float64(p*float64(int64(total)))))), total)
}
