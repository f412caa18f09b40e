package ref

import (
	"fmt"
	"math"

	"sparrow/internal/device/host"
	"sparrow/kernel"
)

// route chooses experts by the sigmoid of their logits.
func route(a kernel.RouteArgs) error {
	experts, k := a.Logits.Cols, a.IDs.Cols
	scores, biased := make([]float64, experts), make([]float64, experts)
	bias := host.RowF32(a.Bias, 0)
	for t := range a.Logits.Rows {
		logits := host.RowF32(a.Logits, t)
		for e, l := range logits {
			// Scores are rounded to float32, as in every implementation, so that ties are the same everywhere.
			scores[e] = float64(float32(1 / (1 + math.Exp(-float64(l)))))
			biased[e] = float64(float32(scores[e]) + bias[e])
		}
		dropGroups(biased, a.Groups, a.KeepGroups)
		ids, weights := host.RowI32(a.IDs, t), host.RowF32(a.Weights, t)
		var sum float64
		for j := range k {
			e := argmax(biased)
			ids[j] = int32(e)
			biased[e] = math.Inf(-1)
			sum += scores[e]
		}
		for j, e := range ids {
			w := scores[e]
			if a.Normalize {
				w /= sum + 1e-20
			}
			weights[j] = float32(w * float64(a.Scale))
		}
	}
	return nil
}

// dropGroups sets the scores of experts to minus infinity in all but the keep best groups. A group's score is the sum
// of its two best experts.
func dropGroups(biased []float64, groups, keep int) {
	if keep == groups {
		return
	}
	size := len(biased) / groups
	rank := make([]float64, groups)
	for g := range rank {
		first, second := math.Inf(-1), math.Inf(-1)
		for _, b := range biased[g*size : (g+1)*size] {
			if b > first {
				first, second = b, first
			} else if b > second {
				second = b
			}
		}
		if size == 1 {
			second = 0
		}
		rank[g] = first + second
	}
	kept := make([]bool, groups)
	for range keep {
		g := argmax(rank)
		kept[g] = true
		rank[g] = math.Inf(-1)
	}
	for e := range biased {
		if !kept[e/size] {
			biased[e] = math.Inf(-1)
		}
	}
}

// argmax returns the index of the largest value, the lowest index on a tie.
func argmax(v []float64) int {
	best := 0
	for i := range v {
		if v[i] > v[best] {
			best = i
		}
	}
	return best
}

// experts computes the chosen experts of each row.
func experts(d *Device, a kernel.ExpertArgs) error {
	if err := onlyF32("experts", a.Out, a.X); err != nil {
		return err
	}
	x, ok := a.Experts.(*host.Experts)
	if !ok {
		return fmt.Errorf("%w: experts: the experts were prepared by another device", kernel.ErrArgument)
	}
	inner := x.Inner()
	g, u := make([]float32, inner), make([]float32, inner)
	wide := make([]float64, max(inner, a.X.Cols))
	sum := make([]float64, a.X.Cols)
	for t := range a.X.Rows {
		row, ids, weights := host.RowF32(a.X, t), host.RowI32(a.IDs, t), host.RowF32(a.Weights, t)
		clear(sum)
		for j, id := range ids {
			if !a.Part.Valid(int(id), x.Count()) {
				return fmt.Errorf("%w: experts: expert %d is outside the %d experts", kernel.ErrArgument, id,
					max(a.Part.Of, x.Count()))
			}
			e, here := a.Part.Local(int(id), x.Count())
			if !here {
				continue
			}
			met := d.met(row, x.Gate[e])
			for o := range inner {
				d.weightRow(wide[:len(row)], x.Gate[e], o)
				g[o] = float32(d.sum(dot(wide, met), x.Gate[e]))
				d.weightRow(wide[:len(row)], x.Up[e], o)
				u[o] = float32(d.sum(dot(wide, met), x.Up[e]))
			}
			gate(g, g, u, a.Limit)
			between := d.between(g, x.Down[e])
			for o := range sum {
				d.weightRow(wide[:inner], x.Down[e], o)
				sum[o] += float64(weights[j]) * d.result(d.sum(dot(wide, between), x.Down[e]))
			}
		}
		for c, v := range host.RowF32(a.Out, t) {
			host.RowF32(a.Out, t)[c] = float32(float64(v) + sum[c])
		}
	}
	return nil
}
