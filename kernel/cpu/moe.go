package cpu

import (
	"math"

	"sparrow/internal/device/host"
	"sparrow/kernel"
)

// route chooses experts by the sigmoid of their logits.
func route(d *Device, a kernel.RouteArgs) error {
	return eachRow(d, a.Logits.Rows, a, routeRow)
}

func routeRow(d *Device, a *kernel.RouteArgs, worker, t int) {
	experts := a.Logits.Cols
	buf := grow(&d.scratch[worker].tile, 2*experts+a.Groups)
	scores, biased, rank := buf[:experts], buf[experts:2*experts], buf[2*experts:]
	bias := host.RowF32(a.Bias, 0)
	for e, l := range host.RowF32(a.Logits, t) {
		scores[e] = float32(1 / (1 + math.Exp(-float64(l))))
		biased[e] = scores[e] + bias[e]
	}
	if a.KeepGroups < a.Groups {
		keepGroups(biased, rank, a.KeepGroups)
	}
	ids, weights := host.RowI32(a.IDs, t), host.RowF32(a.Weights, t)
	best(ids, biased)
	sum := float32(0)
	for _, e := range ids {
		sum += scores[e]
	}
	for j, e := range ids {
		weights[j] = scores[e] * a.Scale
		if a.Normalize {
			weights[j] = scores[e] / (sum + 1e-20) * a.Scale
		}
	}
}

// keepGroups sets the experts of all groups, except the keep best groups, to minus infinity. A group with NaN ranks
// last. A row of NaN still chooses experts and gets weights of NaN, so that the error is detected in its own logits and
// does not affect the other rows of the batch.
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
		if rank[g] = first + second; rank[g] != rank[g] {
			rank[g] = never
		}
	}
	for range len(rank) - keep {
		// The worst of the remaining groups; among equal groups the last one, so that the lower index is kept.
		worst := 0
		for g, v := range rank {
			if v <= rank[worst] {
				worst = g
			}
		}
		rank[worst] = float32(math.Inf(1))
		for e := worst * size; e < (worst+1)*size; e++ {
			biased[e] = never
		}
	}
}

// best writes the indices of the largest values in descending order; among equal values the lower index comes first.
// Each value is compared with the worst of the current best and inserted if it is larger, which is rare.
func best(ids []int32, v []float32) {
	if len(ids) == 0 {
		return
	}
	kept := 0
	for i, x := range v {
		at := kept
		if kept == len(ids) {
			if at--; !(x > v[ids[at]]) {
				continue
			}
		} else {
			kept++
		}
		for ; at > 0 && x > v[ids[at-1]]; at-- {
			ids[at] = ids[at-1]
		}
		ids[at] = int32(i)
	}
}
