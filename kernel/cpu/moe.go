package cpu

import (
	"math"

	"sparrow/kernel"
	"sparrow/kernel/host"
)

// Route chooses experts. It is a handful of comparisons per token, so it runs on the caller.
func (d *Device) Route(a kernel.RouteArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	experts := a.Logits.Cols
	s := &d.scratch[0]
	buf := grow(&s.tile, 2*experts+a.Groups)
	scores, biased, rank := buf[:experts], buf[experts:2*experts], buf[2*experts:]
	bias := host.RowF32(a.Bias, 0)
	for t := range a.Logits.Rows {
		for e, l := range host.RowF32(a.Logits, t) {
			scores[e] = float32(1 / (1 + math.Exp(-float64(l))))
			biased[e] = scores[e] + bias[e]
		}
		if a.KeepGroups < a.Groups {
			keepGroups(biased, rank, a.KeepGroups)
		}
		ids, weights := host.RowI32(a.IDs, t), host.RowF32(a.Weights, t)
		sum := float32(0)
		for j := range ids {
			e := largest(biased)
			ids[j] = int32(e)
			biased[e] = float32(math.Inf(-1))
			sum += scores[e]
		}
		for j, e := range ids {
			weights[j] = scores[e] * a.Scale
			if a.Normalize {
				weights[j] = scores[e] / (sum + 1e-20) * a.Scale
			}
		}
	}
	return nil
}

// keepGroups sets the experts of every group but the keep best to minus infinity.
func keepGroups(biased, rank []float32, keep int) {
	never := float32(math.Inf(-1))
	size := len(biased) / len(rank)
	for g := range rank {
		first, second := never, never
		for _, b := range biased[g*size:][:size] {
			first, second = max(first, b), max(second, min(first, b))
		}
		if size == 1 {
			second = 0
		}
		rank[g] = first + second
	}
	for range len(rank) - keep {
		// The worst of the groups still in; of equals the last, so that the lower index stays.
		worst := -1
		for g, v := range rank {
			if v == v && !math.IsInf(float64(v), 1) && (worst < 0 || v <= rank[worst]) {
				worst = g
			}
		}
		rank[worst] = float32(math.Inf(1))
		for e := worst * size; e < (worst+1)*size; e++ {
			biased[e] = never
		}
	}
}

// largest is the first index of the largest value.
func largest(v []float32) int {
	best := 0
	for i := range v {
		if v[i] > v[best] {
			best = i
		}
	}
	return best
}
