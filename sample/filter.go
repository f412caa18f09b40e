package sample

import (
	"math"
	"math/bits"
)

// top_k and top_p do not sort the vocabulary. Tokens are counted in narrow buckets by the distance of their logit from
// the maximum; each bucket has a number of tokens and a sum of weights. Only the bucket with the last kept token is
// processed token by token.

// edge is the last kept token in the order of preference: larger logits first, of equal logits the lower id.
type edge struct {
	x  float32
	id int32
}

func (e edge) keeps(x float32, id int32) bool {
	return x > e.x || (x == e.x && id <= e.id)
}

// distribute performs steps 5 to 8: it sets weight, kept and total from the logits x, whose maximum is top. The tokens
// in kept are in order of id.
func (w *Scratch) distribute(d *Draw, top float32) {
	if d.TopK == 0 && d.TopP == 1 {
		w.weighAll(top, d)
		return
	}
	f := filter{w, float64(top), d.Inverse}
	count, mass := f.fill()
	last := edge{x: float32(math.Inf(-1)), id: math.MaxInt32}
	if d.TopK > 0 && d.TopK < count {
		last, mass = f.cut(uint64(d.TopK), one)
	}
	if d.TopP < 1 {
		last, _ = f.cut(share(d.TopP, mass), w.weight)
	}
	w.collect(last, max(d.Least, 1))
}

// weighAll computes the weights of all tokens within Reach, and keeps those with at least the weight d.Least.
func (w *Scratch) weighAll(top float32, d *Draw) {
	far := float64(Reach)
	if d.Least > 0 {
		far = min(far, -math.Log(float64(d.Least)/(1<<weightBits))+1e-6) // skips most; the exact test follows
	}
	weight, kept, high := w.weight[:len(w.x)], w.kept[:len(w.x)], float64(top)
	n, total := 0, uint64(0)
	for i, v := range w.x {
		away := (high - float64(v)) * d.Inverse
		if !(away < far) { // or NaN
			continue
		}
		_, e := Weigh(away)
		if e < d.Least {
			continue
		}
		weight[i] = e
		kept[n] = int32(i)
		n++
		total += e
	}
	w.kept, w.total = kept[:n], total
}

// collect keeps the tokens up to last in the order of preference whose weight is at least least. Every token is stored,
// and the count is then increased by 0 or 1, because a branch would often be mispredicted.
func (w *Scratch) collect(last edge, least uint64) {
	kept := w.kept[:len(w.x)]
	n := 0
	for i, v := range w.x {
		kept[n] = int32(i)
		more := 0
		if v >= last.x {
			more = 1
		}
		n += more
	}
	all, total := kept[:n], uint64(0)
	n = 0
	for _, id := range all {
		if e := w.weight[id]; last.keeps(w.x[id], id) && e >= least {
			kept[n] = id
			n++
			total += e
		}
	}
	w.kept, w.total = kept[:n], total
}

// draw returns the token in kept at which the running sum of weights exceeds random * total / 2^64.
func (w *Scratch) draw(random uint64) int32 {
	goal, _ := bits.Mul64(random, w.total)
	sum := uint64(0)
	for _, id := range w.kept {
		if sum += w.weight[id]; sum > goal {
			return id
		}
	}
	panic("sample: the weights of kept tokens do not add up to their total")
}

// filter finds the last tokens that top_k and top_p keep.
type filter struct {
	w            *Scratch
	top, inverse float64
}

// fill computes the weights of the tokens within Reach, and the number of tokens and the sum of weights of every
// bucket. It returns both totals.
func (f *filter) fill() (tokens int, total uint64) {
	w := f.w
	clear(w.mass)
	clear(w.count)
	mass, count, weight := (*[buckets]uint64)(w.mass), (*[buckets]int32)(w.count), w.weight[:len(w.x)]
	for i, v := range w.x {
		d := (f.top - float64(v)) * f.inverse
		if !(d < Reach) { // or NaN
			weight[i] = 0
			continue
		}
		b, e := Weigh(d)
		weight[i] = e
		mass[b] += e
		count[b]++
		tokens++
		total += e
	}
	return tokens, total
}

// cut returns the last token of the shortest list of best tokens whose measure (count or weight) is at least need, and
// the sum of the list's weights.
func (f *filter) cut(need uint64, measure []uint64) (edge, uint64) {
	w, before, mass := f.w, uint64(0), uint64(0)
	for b := range w.count {
		size := w.mass[b]
		if measure == nil {
			size = uint64(w.count[b])
		}
		if before+size < need {
			before += size
			mass += w.mass[b]
			continue
		}
		f.gather(b)
		n := w.best(need-before, measure)
		for _, id := range w.ids[:n] {
			mass += w.weight[id]
		}
		last := w.ids[n-1]
		return edge{w.x[last], last}, mass
	}
	panic("sample: a filter keeps more tokens than the distribution has")
}

// gather stores the tokens of bucket b in w.ids. Tokens that are far from the middle of the bucket are skipped; only
// for the others the exact bucket is computed.
func (f *filter) gather(b int) {
	w := f.w
	w.ids = w.ids[:0]
	middle := f.top - float64(b)/(grain*f.inverse)
	near := 0.5/(grain*f.inverse) + 1e-6*(math.Abs(f.top)+math.Abs(middle)+1)
	low, high := float32(middle-near), float32(middle+near)
	for i, v := range w.x {
		if v < low || v > high {
			continue
		}
		if d := (f.top - float64(v)) * f.inverse; d < Reach && int(bucketOf(d)) == b {
			w.ids = append(w.ids, int32(i))
		}
	}
}
