package verify

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"sparrow/kernel"
	"sparrow/kernel/host"
)

// choices are what two runs of a model can only agree or disagree about: which keys a row attends to, and which
// experts compute it. Equal plans enqueue equal operations, so the n-th selection of one run is that of the same rows
// of the same layer in another.
type choices struct {
	selections [][]int32 // of each selection, [rows, K]
	experts    [][]int32 // of each choice of experts, [rows, top]
}

// recorder is a device that notes the choices of the passes it runs.
type recorder struct {
	kernel.Device
	made choices
}

// Select notes the selected keys.
func (d *recorder) Select(a kernel.SelectArgs) error {
	if err := d.Device.Select(a); err != nil {
		return err
	}
	return d.note(&d.made.selections, a.Out)
}

// Route notes the chosen experts.
func (d *recorder) Route(a kernel.RouteArgs) error {
	if err := d.Device.Route(a); err != nil {
		return err
	}
	return d.note(&d.made.experts, a.IDs)
}

func (d *recorder) note(to *[][]int32, t kernel.Tensor) error {
	if t.Stride != t.Cols && t.Rows > 1 {
		return fmt.Errorf("verify: choices %v with gaps between rows cannot be read", t)
	}
	out := make([]int32, t.Rows*t.Cols)
	*to = append(*to, out)
	return kernel.ReadI32(d.Device, out, t)
}

// follower is the reference, in host memory. Where choices are given it follows them in place of its own, and measures
// by how much its own scores would have had to differ for them.
type follower struct {
	kernel.Device
	given *choices // nil: its own choices
	at    struct{ selections, experts int }
	keys  margins
	route margins
}

// margins are choices that differ from those of the reference.
type margins struct {
	Rows   int     // compared
	Differ int     // of them
	Worst  float64 // the largest distance from the cut, as a share of the scale of the row's scores
}

func (m *margins) add(differ bool, distance float64) {
	if m.Rows++; differ {
		m.Differ++
		m.Worst = max(m.Worst, distance)
	}
}

// follow takes the choices of another run for the passes that come; nil for the reference's own.
func (d *follower) follow(c *choices) {
	d.given, d.keys, d.route = c, margins{}, margins{}
	d.at.selections, d.at.experts = 0, 0
}

// next takes one recorded choice.
func next(list [][]int32, at *int, t kernel.Tensor) ([]int32, error) {
	if *at >= len(list) || len(list[*at]) != t.Rows*t.Cols {
		return nil, fmt.Errorf("verify: choice %d of the reference has %d x %d elements, the other run had no such "+
			"choice", *at, t.Rows, t.Cols)
	}
	*at++
	return list[*at-1], nil
}

// Select selects by scores, then follows.
func (d *follower) Select(a kernel.SelectArgs) error {
	if err := d.Device.Select(a); err != nil || d.given == nil {
		return err
	}
	given, err := next(d.given.selections, &d.at.selections, a.Out)
	if err != nil {
		return err
	}
	lens := host.I32(a.Lens)
	for r := range a.Out.Rows {
		own, other := host.RowI32(a.Out, r), given[r*a.Out.Cols:][:a.Out.Cols]
		if n := int(lens[r*a.Lens.Stride]); n > a.Out.Cols {
			d.keys.add(selectionMargin(host.RowF32(a.Scores, r)[:n], own, other))
		} else if !slices.Equal(own, other) {
			return fmt.Errorf("verify: row %d sees %d keys, no more than it keeps, and its selection is %v", r, n,
				other)
		}
		copy(own, other)
	}
	return nil
}

// selectionMargin says whether two selections differ, and how far from the cut the scores of the keys are that are in
// one of them alone. A key that cannot be selected is infinitely far.
func selectionMargin(scores []float32, own, other []int32) (differ bool, distance float64) {
	cut, scale := math.Inf(1), 0.0
	for _, p := range own {
		if p >= 0 {
			cut = min(cut, float64(scores[p]))
		}
	}
	for _, s := range scores {
		scale = max(scale, math.Abs(float64(s)))
	}
	mine := map[int32]bool{}
	for _, p := range own {
		mine[p] = true
	}
	for _, p := range other {
		if mine[p] {
			delete(mine, p)
			continue
		}
		if p < 0 || int(p) >= len(scores) {
			return true, math.Inf(1)
		}
		differ, distance = true, max(distance, cut-float64(scores[p]))
	}
	for p := range mine { // selected by the reference alone
		if p < 0 {
			return true, math.Inf(1)
		}
		differ, distance = true, max(distance, float64(scores[p])-cut)
	}
	if !differ {
		return false, 0
	}
	return true, distance / scale
}

// Route chooses by scores, then follows.
func (d *follower) Route(a kernel.RouteArgs) error {
	if err := d.Device.Route(a); err != nil || d.given == nil {
		return err
	}
	given, err := next(d.given.experts, &d.at.experts, a.IDs)
	if err != nil {
		return err
	}
	bias := host.RowF32(a.Bias, 0)
	for r := range a.IDs.Rows {
		own, other := host.RowI32(a.IDs, r), given[r*a.IDs.Cols:][:a.IDs.Cols]
		logits := host.RowF32(a.Logits, r)
		scores, biased := make([]float64, len(logits)), make([]float64, len(logits))
		for e, l := range logits {
			scores[e] = 1 / (1 + math.Exp(-float64(l)))
			biased[e] = scores[e] + float64(bias[e])
		}
		d.route.add(expertMargin(biased, &a, own, other))
		copy(own, other)
		expertWeights(host.RowF32(a.Weights, r), scores, own, &a)
	}
	return nil
}

// expertWeights are the weights of chosen experts.
func expertWeights(out []float32, scores []float64, ids []int32, a *kernel.RouteArgs) {
	sum := 1.0
	if a.Normalize {
		sum = 1e-20
		for _, e := range ids {
			sum += scores[e]
		}
	}
	for j, e := range ids {
		out[j] = float32(scores[e] / sum * float64(a.Scale))
	}
}

// expertMargin says whether two choices of experts differ, and by how much the scores would have to differ for it. The
// other choice is one of the best experts of some groups: those that explain it with the least distance count, be it
// of the groups' ranks, which are sums of two scores, or of the experts' scores from the worst that would be chosen.
func expertMargin(biased []float64, a *kernel.RouteArgs, own, other []int32) (differ bool, distance float64) {
	if sameSet(own, other) {
		return false, 0
	}
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
	return true, distance
}

// groupDistance is how far the worst of the kept groups is below the best of the others.
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

// expertDistance is how far the worst of some experts is below the worst of as many best ones of the kept groups.
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
