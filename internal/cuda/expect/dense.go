package expect

import "math"

// AttendDense computes attention of one head over expanded keys and values: out is the sum of p_s * values[s], where p
// is the softmax of scale * q.keys[s]. It also returns the natural logarithm of the sum. Without keys the logarithm is
// +inf and out is nil.
func AttendDense(q []float32, keys, values [][]float32, scale float64) (out []float64, lse float64) {
	if len(keys) == 0 {
		return nil, math.Inf(1)
	}
	out = make([]float64, len(values[0]))
	scores := make([]float64, len(keys))
	largest := math.Inf(-1)
	for s, k := range keys {
		for c, v := range q {
			scores[s] += float64(v) * float64(k[c])
		}
		scores[s] *= scale
		largest = max(largest, scores[s])
	}
	var sum float64
	for s := range scores {
		scores[s] = math.Exp(scores[s] - largest)
		sum += scores[s]
	}
	for s, v := range values {
		p := scores[s] / sum
		for c := range out {
			out[c] += p * float64(v[c])
		}
	}
	return out, largest + math.Log(sum)
}
