package sample

import (
	"cmp"
	"slices"
)

// one is the measure that counts each token as 1.
var one []uint64

// best moves the best tokens of w.ids to its front and returns how many are needed until their measure reaches need;
// the last of them is the worst. The measure is the number of tokens if it is [one], otherwise the sum of measure[id].
// All tokens together must reach need. It is a quickselect with pseudo-random pivots, so that the expected time is
// linear for every order of logits.
func (w *Scratch) best(need uint64, measure []uint64) int {
	ids := w.ids
	lo, hi := 0, len(ids)
	sum := uint64(0)
	random := uint64(len(ids))
	for hi-lo > 24 {
		random = random*6364136223846793005 + 1442695040888963407
		at := lo + int((random>>33)%uint64(hi-lo))
		p, before := w.partition(ids[lo:hi], at-lo, measure)
		p += lo
		if sum+before >= need {
			hi = p
			continue
		}
		sum += before + measureOf(measure, ids[p])
		if sum >= need {
			return p + 1
		}
		lo = p + 1
	}
	slices.SortFunc(ids[lo:hi], w.compare)
	for i := lo; i < hi; i++ {
		sum += measureOf(measure, ids[i])
		if sum >= need {
			return i + 1
		}
	}
	panic("sample: the weights of a bucket's tokens add up to less than the bucket's sum")
}

// partition moves the ids that are better than ids[pivot] before it. It returns the pivot's new index and the measure
// of the ids before it.
func (w *Scratch) partition(ids []int32, pivot int, measure []uint64) (place int, before uint64) {
	end := len(ids) - 1
	ids[pivot], ids[end] = ids[end], ids[pivot]
	last := edge{w.x[ids[end]], ids[end]}
	for i, id := range ids[:end] {
		if last.keeps(w.x[id], id) {
			ids[i], ids[place] = ids[place], id
			place++
			before += measureOf(measure, id)
		}
	}
	ids[place], ids[end] = ids[end], ids[place]
	return place, before
}

// compare orders tokens by preference: larger logits first, of equal logits the lower id.
func (w *Scratch) compare(a, b int32) int {
	if c := cmp.Compare(w.x[b], w.x[a]); c != 0 {
		return c
	}
	return cmp.Compare(a, b)
}

func measureOf(measure []uint64, id int32) uint64 {
	if measure == nil {
		return 1
	}
	return measure[id]
}
