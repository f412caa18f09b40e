package cpu

import (
	"fmt"
	"math"

	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
)

// Selection finds the lowest score that is kept without sorting: from a sample it estimates a floor that slightly more
// than K scores reach, one pass collects those, and a binary search over the order of float32 numbers, counting at
// each step, ends at the cut. The result is exact whatever the estimate: a floor that is too high is dropped.
const (
	// sampleRuns runs of 16 adjacent scores are the sample of a row.
	sampleRuns = 64
	sampleRun  = 16
	// sharePart is the number of scores in one part of a row that workers share.
	sharePart = 16384
)

// Select chooses the best scored positions of every row.
func (d *Device) Select(a kernel.SelectArgs) error {
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
			if err := d.selectShared(&a, r); err != nil {
				return err
			}
		}
		host.SelectedScores(a)
		return nil
	}
	err := d.eachItem(rowWork{rows: a.Out.Rows, pick: a, do: func(d *Device, w *rowWork, worker, r int) {
		s := &d.scratch[worker].pick
		if out, scores, many := s.begin(&w.pick, r); many {
			s.finish(d, out, scores, s.collect(d, scores, s.floor(d, scores, len(out))))
		}
	}})
	if err == nil {
		host.SelectedScores(a)
	}
	return err
}

// selectShared selects one row with all workers: each collects from its parts of the scores.
func (d *Device) selectShared(a *kernel.SelectArgs, r int) error {
	s := &d.scratch[0].pick
	out, scores, many := s.begin(a, r)
	if !many {
		return nil
	}
	parts := ceilDiv(len(scores), sharePart)
	s.reserve(len(scores) + parts*vec.CollectSlack)
	floor := s.floor(d, scores, len(out))
	w := partWork{scores: scores, above: above(floor), to: s, counts: grow(&s.counts, parts)}
	err := d.parts.run(d, parts, w, func(d *Device, w *partWork, _, i int) {
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

// partWork holds the scores of one row, collected in parts.
type partWork struct {
	scores []float32
	above  float32
	to     *picker
	counts []int
}

// picker is the memory of one selection.
type picker struct {
	sample []float32
	places []int32 // of the scores that reached a floor
	kept   []float32
	counts []int
}

// candidates counts the scores that reached a floor; the picker has them.
type candidates struct {
	n     int
	floor float32
}

// lowest is the floor that every score reaches but NaN and minus infinity, which are never chosen.
const lowest = -math.MaxFloat32

// begin returns the row's output and scores, and whether there are more scores than output entries. If not, the row
// is done.
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

// floor estimates a number that slightly more than k of the scores exceed. If one score is so frequent that there is
// no such number, it returns that score.
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
	return d.cut(sample, rank, lowest)
}

func (s *picker) reserve(n int) { s.places, s.kept = grow(&s.places, n), grow(&s.kept, n) }

// collect gathers the scores above the floor.
func (s *picker) collect(d *Device, scores []float32, floor float32) candidates {
	s.reserve(len(scores) + vec.CollectSlack)
	return candidates{n: d.tier.Collect(s.places, s.kept, scores, nil, 0, above(floor)), floor: floor}
}

// above returns the least candidate for a floor: the least finite number, or the next one above an estimate.
func above(floor float32) float32 {
	if floor == lowest {
		return lowest
	}
	return after(floor)
}

// finish chooses among the candidates, or among all scores when they are too few.
func (s *picker) finish(d *Device, out []int32, scores []float32, c candidates) {
	k := len(out)
	switch {
	case c.n >= k:
	case c.floor != lowest && d.tier.CountAbove(scores, c.floor) >= k:
		// The floor is a frequent score and the cut itself.
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
	s.emit(d, out, s.kept[:c.n], s.places[:c.n], d.cut(s.kept[:c.n], k, c.floor))
}

// cut returns the k-th largest of the numbers, of which at least k reach the floor.
func (d *Device) cut(x []float32, k int, floor float32) float32 {
	low, high := order(floor), order(d.tier.Max(x))+1
	for high-low > 1 {
		middle := low + (high-low)/2
		if d.tier.CountAbove(x, number(middle)) >= k {
			low = middle
		} else {
			high = middle
		}
	}
	return number(low)
}

// emit writes the positions of the numbers above the cut, then fills out with positions of numbers equal to the cut,
// lowest positions first.
func (s *picker) emit(d *Device, out []int32, x []float32, places []int32, cut float32) {
	const block = 1024
	over := after(cut)
	ties := len(out) - d.tier.CountAbove(x, over) // to be kept
	split := 0                                    // numbers before it are kept at the cut, those from it on above
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
	// Collecting overwrites only elements that were read already.
	n := d.tier.Collect(s.places, s.kept, x[:split], before, 0, cut)
	n += d.tier.Collect(s.places[n:], s.kept[n:], x[split:], behind, int32(split), over)
	copy(out, s.places[:n])
}

// order maps a number to an integer of the same order; number is its inverse.
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

// after returns the next larger number. No number is at least the successor of infinity.
func after(v float32) float32 { return number(order(v) + 1) }
