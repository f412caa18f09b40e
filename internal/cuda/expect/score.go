package expect

import (
	"math"
	"slices"

	"sparrow/internal/num"
)

// IndexDim is the number of values of an indexer vector.
const IndexDim = 128

// IndexError is the maximum error of an index score, relative to the sum of the magnitudes of its terms: the tensor
// cores align FP8 products to about 14 bits before adding them.
const IndexError = 1e-3

// IndexScore returns the score of one key for one query row in float64, and the sum of the magnitudes of its terms. q
// is [len(w), 128].
func IndexScore(q, key []byte, w []float32, scale float32) (score, size float64) {
	for h := range w {
		var dot, abs float64
		for i := range IndexDim {
			p := float64(num.FromE4M3(q[h*IndexDim+i])) * float64(num.FromE4M3(key[i]))
			dot += p
			abs += math.Abs(p)
		}
		score += float64(w[h]) * max(dot, 0)
		size += math.Abs(float64(w[h])) * abs
	}
	return score * float64(scale), size * float64(scale)
}

// TopK returns the selection of one row: the k largest scores, the lowest position on a tie, in ascending order of
// position. NaN and -inf are never selected. If a row has at most k scores, every position is selected, regardless of
// the scores.
func TopK(scores []float32, k int) []int32 {
	order := make([]int32, 0, len(scores))
	for i, s := range scores {
		if len(scores) <= k || (s == s && !math.IsInf(float64(s), -1)) {
			order = append(order, int32(i))
		}
	}
	if len(scores) <= k {
		return order
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		switch {
		case scores[a] > scores[b]:
			return -1
		case scores[a] < scores[b]:
			return 1
		}
		return 0
	})
	order = order[:min(k, len(order))]
	slices.Sort(order)
	return order
}
