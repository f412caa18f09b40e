package verify

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"sparrow/internal/device/host"
	"sparrow/kernel"
)

// choices are the discrete results of two runs of a model: which keys a row attends to, and which experts compute it.
// Equal plans enqueue equal operations, so the n-th selection of one run belongs to the same rows and layer as in
// another run.
type choices struct {
	selections []choice // [rows, K] by scores [rows, keys]
	experts    []choice // [rows, top] by logits [rows, experts]
}

// choice is one operation that chooses.
type choice struct {
	ids    []int32
	scores []float32 // scores of the candidates; nil if all candidates are taken
}

// recorder is a device that records the choices of the passes it runs.
type recorder struct {
	kernel.Device
	made choices
}

// Do runs an operation and records the selected keys, or the chosen experts.
func (d *recorder) Do(op kernel.Op) error {
	if err := d.Device.Do(op); err != nil {
		return err
	}
	switch a := op.(type) {
	case kernel.SelectArgs:
		return d.note(&d.made.selections, a.Out, a.Scores)
	case kernel.RouteArgs:
		return d.note(&d.made.experts, a.IDs, a.Logits)
	case kernel.RootRouteArgs:
		return d.note(&d.made.experts, a.IDs, a.Logits)
	}
	return nil
}

func (d *recorder) note(to *[]choice, ids, scores kernel.Tensor) error {
	c := choice{ids: make([]int32, ids.Rows*ids.Cols), scores: make([]float32, scores.Rows*scores.Cols)}
	for _, t := range []kernel.Tensor{ids, scores} {
		if t.Stride != t.Cols && t.Rows > 1 {
			return fmt.Errorf("verify: choices %v have gaps between rows, want none", t)
		}
	}
	*to = append(*to, c)
	if err := kernel.ReadI32(d.Device, c.ids, ids); err != nil || len(c.scores) == 0 {
		return err
	}
	return kernel.ReadF32(d.Device, c.scores, scores)
}

// follower is the reference, in host memory. If choices are given, it uses them instead of its own. It compares the
// margin of its own scores at these choices with the difference between its scores and those of the other run.
type follower struct {
	kernel.Device
	given *choices // choices that the follower uses; nil: its own choices
	at    struct{ selections, experts int }
	keys  margins
	route margins
}

// margins counts the choices of another run that the reference would not have made.
type margins struct {
	Rows   int     `json:"rows"`    // compared rows
	Differ int     `json:"differ"`  // rows whose choices differ
	Worst  float64 `json:"largest"` // distance from the cut, as a share of the scale of the row's scores
	// Unexplained is the number of rows whose distance from the cut is larger than the difference of the two runs'
	// scores.
	Unexplained int `json:"unexplained"`
}

// add counts a row whose choices differ. The scores of the two runs differ by up to most, so the scores of a key and
// of the cut may each have moved by that.
func (m *margins) add(distance, most, scale float64) {
	m.Differ++
	m.Worst = max(m.Worst, distance/scale)
	if !(distance <= 2*most) {
		m.Unexplained++
	}
}

// follow uses the choices of another run for the next passes; nil means the reference's own choices.
func (d *follower) follow(c *choices) {
	d.given, d.keys, d.route = c, margins{}, margins{}
	d.at.selections, d.at.experts = 0, 0
}

// next returns the next recorded choice.
func next(list []choice, at *int, t kernel.Tensor) (choice, error) {
	if *at >= len(list) || len(list[*at].ids) != t.Rows*t.Cols {
		return choice{}, fmt.Errorf("verify: choice %d of the reference has %d x %d elements, but the other run had "+
			"no such choice", *at, t.Rows, t.Cols)
	}
	*at++
	return list[*at-1], nil
}

// Do chooses by its own scores, then uses the given choices.
func (d *follower) Do(op kernel.Op) error {
	if err := d.Device.Do(op); err != nil || d.given == nil {
		return err
	}
	switch a := op.(type) {
	case kernel.SelectArgs:
		return d.followKeys(a)
	case kernel.RouteArgs:
		return d.followExperts(&a, sigmoid)
	case kernel.RootRouteArgs: // all experts are one group
		return d.followExperts(&kernel.RouteArgs{IDs: a.IDs, Weights: a.Weights, Logits: a.Logits, Bias: a.Bias,
			Groups: 1, KeepGroups: 1, Normalize: true, Scale: a.Scale}, root)
	}
	return nil
}

// followKeys replaces the reference's selection.
func (d *follower) followKeys(a kernel.SelectArgs) error {
	given, err := next(d.given.selections, &d.at.selections, a.Out)
	if err != nil {
		return err
	}
	lens := host.I32(a.Lens)
	for r := range a.Out.Rows {
		own, other := host.RowI32(a.Out, r), given.ids[r*a.Out.Cols:][:a.Out.Cols]
		if n := int(lens[r*a.Lens.Stride]); n > a.Out.Cols {
			d.keys.Rows++
			scores := host.RowF32(a.Scores, r)[:n]
			if !slices.Equal(own, other) {
				most, scale := apart(scores, given.scores[r*a.Scores.Cols:][:n])
				d.keys.add(selectionMargin(scores, own, other), most, scale)
			}
		} else if !slices.Equal(own, other) {
			return fmt.Errorf("verify: row %d has %d visible keys and must select all of them, but its selection is "+
				"%v", r, n,
				other)
		}
		copy(own, other)
	}
	return nil
}

// apart returns the largest difference of two rows of scores, and the largest score. Blocks that are always kept have
// infinite scores and are not included.
func apart(a, b []float32) (most, scale float64) {
	for i := range a {
		if math.IsInf(float64(a[i]), 1) && a[i] == b[i] {
			continue
		}
		most, scale = max(most, math.Abs(float64(a[i])-float64(b[i]))), max(scale, math.Abs(float64(a[i])))
	}
	return most, scale
}

// selectionMargin returns how far from the cut the scores are of keys that are in only one of two selections. A key
// that cannot be selected is infinitely far.
func selectionMargin(scores []float32, own, other []int32) (distance float64) {
	cut := math.Inf(1)
	mine := map[int32]bool{}
	for _, p := range own {
		if mine[p] = true; p >= 0 {
			cut = min(cut, float64(scores[p]))
		}
	}
	for _, p := range other {
		if mine[p] {
			delete(mine, p)
			continue
		}
		if p < 0 || int(p) >= len(scores) {
			return math.Inf(1)
		}
		distance = max(distance, cut-float64(scores[p]))
	}
	for p := range mine { // keys that only the reference selected
		if p < 0 {
			return math.Inf(1)
		}
		distance = max(distance, float64(scores[p])-cut)
	}
	return distance
}

// followExperts replaces the reference's choice of experts. score turns a logit into the score by which experts are
// chosen.
func (d *follower) followExperts(a *kernel.RouteArgs, score func(logit float64) float64) error {
	given, err := next(d.given.experts, &d.at.experts, a.IDs)
	if err != nil {
		return err
	}
	bias := host.RowF32(a.Bias, 0)
	for r := range a.IDs.Rows {
		own, other := host.RowI32(a.IDs, r), given.ids[r*a.IDs.Cols:][:a.IDs.Cols]
		scores := scoresOf(host.RowF32(a.Logits, r), score)
		d.route.Rows++
		if !sameSet(own, other) {
			most, scale := apart(scores, scoresOf(given.scores[r*a.Logits.Cols:][:a.Logits.Cols], score))
			biased := make([]float64, len(scores))
			for e := range scores {
				biased[e] = float64(scores[e] + bias[e])
			}
			d.route.add(expertMargin(biased, a, other), most, scale)
		}
		copy(own, other)
		expertWeights(host.RowF32(a.Weights, r), scores, own, a)
	}
	return nil
}

// sigmoid and root turn an expert's logit into its score: sigmoid for Route, root for RouteRoot.
func sigmoid(z float64) float64 { return 1 / (1 + math.Exp(-z)) }
func root(z float64) float64    { return math.Sqrt(max(z, 0) + math.Log1p(math.Exp(-math.Abs(z)))) }

// scoresOf returns the scores of a row of logits.
func scoresOf(logits []float32, score func(logit float64) float64) []float32 {
	out := make([]float32, len(logits))
	for e, l := range logits {
		out[e] = float32(score(float64(l)))
	}
	return out
}

// expertWeights computes the routing weights of chosen experts.
func expertWeights(out, scores []float32, ids []int32, a *kernel.RouteArgs) {
	sum := 1.0
	if a.Normalize {
		sum = 1e-20
		for _, e := range ids {
			sum += float64(scores[e])
		}
	}
	for j, e := range ids {
		out[j] = float32(float64(scores[e]) / sum * float64(a.Scale))
	}
}

// expertMargin returns the amount by which scores would have to differ for a different choice of experts. Experts are
// chosen in two steps: the best groups, by the sum of their two best scores, and then the best experts of these
// groups. For each set of groups that allows the other choice, the margin is the larger of two distances: half the
// distance of the groups' sums, because two scores may differ, and the distance of the experts' scores from the worst
// expert that would be chosen. The smallest margin of all sets counts.
func expertMargin(biased []float64, a *kernel.RouteArgs, other []int32) (distance float64) {
	size := len(biased) / a.Groups
	ranks := make([]float64, a.Groups)
	for g := range ranks {
		best := slices.Clone(biased[g*size:][:size])
		slices.Sort(best)
		for _, v := range best[max(size-2, 0):] {
			ranks[g] += v
		}
	}
	distance = math.Inf(1)
	for kept := range uint64(1) << a.Groups {
		if bits.OnesCount64(kept) == a.KeepGroups {
			distance = min(distance, max(groupDistance(ranks, kept)/2, expertDistance(biased, size, kept, other)))
		}
	}
	return distance
}

// groupDistance returns how far the worst of the kept groups is below the best of the other groups.
func groupDistance(ranks []float64, kept uint64) float64 {
	worst, best := math.Inf(1), math.Inf(-1)
	for g, r := range ranks {
		if kept>>g&1 != 0 {
			worst = min(worst, r)
		} else {
			best = max(best, r)
		}
	}
	return max(best-worst, 0)
}

// expertDistance returns how far the worst of the given experts is below the worst of the same number of best experts
// of the kept groups.
func expertDistance(biased []float64, size int, kept uint64, ids []int32) float64 {
	var all []float64
	for e, v := range biased {
		if kept>>(e/size)&1 != 0 {
			all = append(all, v)
		}
	}
	slices.Sort(all)
	if len(all) < len(ids) {
		return math.Inf(1)
	}
	cut, worst := all[len(all)-len(ids)], math.Inf(1)
	for _, e := range ids {
		if e < 0 || int(e) >= len(biased) || kept>>(int(e)/size)&1 == 0 {
			return math.Inf(1)
		}
		worst = min(worst, biased[e])
	}
	return max(cut-worst, 0)
}

func sameSet(a, b []int32) bool {
	x, y := slices.Clone(a), slices.Clone(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}
