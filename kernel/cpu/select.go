package cpu

import (
	"fmt"
	"math"

	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
)

// Selection finds the lowest score that is kept without sorting. From a sample it estimates a floor that slightly more
// than K scores reach. One pass collects these scores, and a binary search over the order of float32 numbers, which
// counts the scores above each midpoint, finds the cut. The result is exact for any estimate: a floor that is too high
// is discarded.
const (
	// The sample of a row is sampleRuns runs of sampleRun adjacent scores.
	sampleRuns = 64
	sampleRun  = 16
	// sharePart is the number of scores in one part of a row, if several workers share the row.
	sharePart = 16384
)

// selectBest chooses the best scored positions of every row.
func selectBest(d *Device, a kernel.SelectArgs) error {
	shared := false
	for r := range a.Out.Rows {
		n := int(host.RowI32(a.Lens, r)[0])
		if n > a.Out.Cols && (!a.Scores.Given() || n > a.Scores.Cols) {
			return fmt.Errorf("%w: select: row %d has %d keys, but the scores %v have fewer "+
				"columns", kernel.ErrArgument, r,
				n, a.Scores)
		}
		shared = shared || n > a.Out.Cols && n > 2*sharePart
	}
	if shared && a.Out.Rows < d.pool.Limit() {
		for r := range a.Out.Rows {
			if err := selectShared(d, &a, r); err != nil {
				return err
			}
		}
		host.SelectedScores(a)
		return nil
	}
	err := each(d, a.Out.Rows, a, func(d *Device, a *kernel.SelectArgs, worker, r int) {
		s := &d.scratch[worker].pick
		if out, scores, many := s.begin(a, r); many {
			s.finish(d, out, scores, s.collect(d, scores, s.floor(d, scores, len(out))))
		}
	})
	if err == nil {
		host.SelectedScores(a)
	}
	return err
}

// selectShared selects from one row with all workers: each collects candidates from its parts of the scores.
func selectShared(d *Device, a *kernel.SelectArgs, r int) error {
	s := &d.scratch[0].pick
	out, scores, many := s.begin(a, r)
	if !many {
		return nil
	}
	parts := ceilDiv(len(scores), sharePart)
	s.reserve(len(scores) + parts*vec.CollectSlack)
	floor := s.floor(d, scores, len(out))
	w := partWork{scores: scores, above: above(floor), to: s, counts: grow(&s.counts, parts)}
	err := each(d, parts, w, func(d *Device, w *partWork, _, i int) {
		from, end := i*sharePart, min((i+1)*sharePart, len(w.scores))
		at := from + i*vec.CollectSlack
		w.counts[i] = d.tier.Collect(w.to.places[at:], w.to.kept[at:], w.scores[from:end], nil, int32(from), w.above)
	})
	if err != nil {
		return err
	}
	n := 0
	for i, count := range w.counts {
		at := i * (sharePart + vec.CollectSlack)
		copy(s.places[n:], s.places[at:][:count])
		n += copy(s.kept[n:], s.kept[at:][:count])
	}
	s.finish(d, out, scores, candidates{n: n, floor: floor})
	return nil
}

// partWork holds the scores of one row and the candidates collected from each part.
type partWork struct {
	scores []float32
	above  float32
	to     *picker
	counts []int
}

// picker is the scratch memory of one selection.
type picker struct {
	sample []float32
	places []int32 // positions of the scores that reached the floor
	kept   []float32
	counts []int
}

// candidates describes the scores that reached a floor; their values and positions are in the picker.
type candidates struct {
	n     int
	floor float32
}

// lowest is a floor that all scores reach except NaN and minus infinity, which are never chosen.
const lowest = -math.MaxFloat32

// begin returns the row's output and scores, and whether there are more scores than output entries. If there are not,
// it has already written the output.
func (s *picker) begin(a *kernel.SelectArgs, r int) (out []int32, scores []float32, many bool) {
	out = host.RowI32(a.Out, r)
	n := max(int(host.RowI32(a.Lens, r)[0]), 0)
	if n > len(out) {
		return out, host.RowF32(a.Scores, r)[:n], true
	}
	for p := range n {
		out[p] = int32(p)
	}
	end(out, n)
	return nil, nil, false
}

// end fills the unused entries of a row with -1.
func end(out []int32, n int) {
	for i := n; i < len(out); i++ {
		out[i] = -1
	}
}

// floor estimates a number that slightly more than k of the scores exceed. If one score is so frequent that no such
// number exists, it returns that score.
func (s *picker) floor(d *Device, scores []float32, k int) float32 {
	const size = sampleRuns * sampleRun
	n := len(scores)
	if n < 4*size {
		return lowest
	}
	sample := grow(&s.sample, size)
	for i := range sampleRuns {
		copy(sample[i*sampleRun:], scores[i*(n-sampleRun)/(sampleRuns-1):][:sampleRun])
	}
	expect := float64(k) * size / float64(n)
	rank := int(expect+4*math.Sqrt(expect)) + 4
	if rank >= size || d.tier.CountAbove(sample, lowest) < rank {
		return lowest
	}
	return cutAt(d.tier, sample, rank, lowest)
}

func (s *picker) reserve(n int) { s.places, s.kept = grow(&s.places, n), grow(&s.kept, n) }

// collect gathers the scores that reach the floor.
func (s *picker) collect(d *Device, scores []float32, floor float32) candidates {
	s.reserve(len(scores) + vec.CollectSlack)
	return candidates{n: d.tier.Collect(s.places, s.kept, scores, nil, 0, above(floor)), floor: floor}
}

// above returns the smallest candidate for a floor: the smallest finite number if the floor is lowest, otherwise the
// next number above the floor.
func above(floor float32) float32 {
	if floor == lowest {
		return lowest
	}
	return after(floor)
}

// finish writes the selection: from the candidates, or from all scores if there are too few candidates.
func (s *picker) finish(d *Device, out []int32, scores []float32, c candidates) {
	k := len(out)
	switch {
	case c.n >= k:
	case c.floor != lowest && d.tier.CountAbove(scores, c.floor) >= k:
		// The floor is a frequent score and is itself the cut.
		s.reserve(len(scores) + vec.CollectSlack)
		s.emit(d, out, scores, nil, c.floor)
		return
	case c.floor != lowest:
		c = s.collect(d, scores, lowest)
	}
	if c.n <= k {
		end(out, copy(out, s.places[:c.n]))
		return
	}
	s.emit(d, out, s.kept[:c.n], s.places[:c.n], cutAt(d.tier, s.kept[:c.n], k, c.floor))
}

// cutAt returns the k-th largest of the numbers x. At least k of them reach the floor.
func cutAt(tier *vec.Tier, x []float32, k int, floor float32) float32 {
	low, high := order(floor), order(tier.Max(x))+1
	for high-low > 1 {
		middle := low + (high-low)/2
		if tier.CountAbove(x, number(middle)) >= k {
			low = middle
		} else {
			high = middle
		}
	}
	return number(low)
}

// emit writes the positions of the numbers above the cut, and fills the other entries of out with positions of numbers
// equal to the cut, lowest positions first.
func (s *picker) emit(d *Device, out []int32, x []float32, places []int32, cut float32) {
	const block = 1024
	over := after(cut)
	ties := len(out) - d.tier.CountAbove(x, over) // how many numbers equal to the cut are kept
	// Numbers before split are kept if they reach the cut, and numbers from split on only if they exceed it.
	split := 0
	for split < len(x) {
		part := x[split:min(split+block, len(x))]
		n := d.tier.CountAbove(part, cut) - d.tier.CountAbove(part, over)
		if n >= ties {
			break
		}
		ties -= n
		split += len(part)
	}
	for ; ties > 0; split++ {
		if x[split] == cut {
			ties--
		}
	}
	before, behind := places, places
	if places != nil {
		before, behind = places[:split], places[split:]
	}
	// Collect overwrites only elements that it has already read.
	n := d.tier.Collect(s.places, s.kept, x[:split], before, 0, cut)
	n += d.tier.Collect(s.places[n:], s.kept[n:], x[split:], behind, int32(split), over)
	copy(out, s.places[:n])
}

// order maps a float32 to an integer such that both have one order; number is its inverse.
func order(v float32) int64 {
	b := int64(math.Float32bits(v))
	if b>>31 != 0 {
		return 1<<31 - b
	}
	return b
}

func number(o int64) float32 {
	if o < 0 {
		return math.Float32frombits(uint32(1<<31 - o))
	}
	return math.Float32frombits(uint32(o))
}

// after returns the next larger float32. After +Inf that is NaN, which no score reaches.
func after(v float32) float32 { return number(order(v) + 1) }
