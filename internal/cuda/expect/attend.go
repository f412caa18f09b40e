package expect

import "math"

// AttendError is the maximum relative L2 error of a head's attention output in bf16: weights and results are rounded to
// bf16, with a relative error of at most 2^-9 each.
const AttendError = 6e-3

// Attend computes attention of one head over rows: out is the sum of p_i times the first 512 values of row i, where p
// is the softmax of scale * q.row_i with exp(sink) added to its divisor. It returns the natural logarithm of the sum
// without the sink, and the largest scaled score. Without rows these are +inf and -inf. A sink of -inf means that there
// is no sink.
func Attend(q []float32, rows [][]float32, scale, sink float64) (out []float64, lse, largest float64) {
	out = make([]float64, 512)
	if len(rows) == 0 {
		return out, math.Inf(1), math.Inf(-1)
	}
	scores := make([]float64, len(rows))
	largest = math.Inf(-1)
	for i, row := range rows {
		for c, v := range q {
			scores[i] += float64(v) * float64(row[c])
		}
		scores[i] *= scale
		largest = max(largest, scores[i])
	}
	var sum float64
	for i := range scores {
		scores[i] = math.Exp(scores[i] - largest)
		sum += scores[i]
	}
	divisor := sum + math.Exp(sink-largest)
	for i, row := range rows {
		p := scores[i] / divisor
		for c := range out {
			out[c] += p * float64(row[c])
		}
	}
	return out, largest + math.Log(sum), largest
}

// Distance returns the L2 norm of got - want divided by that of want, or the norm of got if want is zero.
func Distance(got []float32, want []float64) float64 {
	var d, n float64
	for i, w := range want {
		e := float64(got[i]) - w
		d += e * e
		n += w * w
	}
	if n == 0 {
		return math.Sqrt(d)
	}
	return math.Sqrt(d / n)
}
