package cpu

import (
	"math"
	"slices"

	"sparrow/internal/device/host"
	"sparrow/kernel"
)

// findCandidates reduces each row in two passes. The first keeps the best n values in a sorted list, which few values
// of a long row enter. The second sums the exponentials of all values relative to the best one.
func findCandidates(d *Device, a kernel.CandidateArgs) error {
	return each(d, a.Logits.Rows, a, func(_ *Device, a *kernel.CandidateArgs, _, r int) {
		row, values, ids := host.RowF32(a.Logits, r), host.RowF32(a.Values, r), host.RowI32(a.IDs, r)
		bestOf(values, ids, row)
		sum, top := 0.0, float64(values[0])
		for _, v := range row {
			sum += math.Exp(float64(v) - top)
		}
		if math.IsInf(top, 0) {
			sum = 1 // the logarithm of the sum is top; subtracting an infinite top would give NaN
			if slices.ContainsFunc(row, func(v float32) bool { return v != v }) {
				sum = math.NaN()
			}
		}
		host.RowF32(a.LogSum, r)[0] = float32(top + math.Log(sum))
	})
}

// sample samples the rows one after the other.
func sample(d *Device, a kernel.SampleArgs) error { return d.sampler.Sample(a) }

// Accept compares drafts with the target's choices.
func (*Device) Accept(a kernel.AcceptArgs) error { return host.Accept(a) }

// bestOf fills values and ids with the largest values of row in descending order, the lower id first on a tie.
func bestOf(values []float32, ids []int32, row []float32) {
	n := 0
	lowest := float32(math.Inf(-1))
	for i, v := range row {
		if v != v {
			v = lowest
		}
		if n == len(values) && v <= values[n-1] {
			continue
		}
		at := min(n, len(values)-1)
		for at > 0 && values[at-1] < v {
			values[at], ids[at] = values[at-1], ids[at-1]
			at--
		}
		values[at], ids[at] = v, int32(i)
		n = min(n+1, len(values))
	}
}
