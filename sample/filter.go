package sample

import "math"

// Filtering never sorts the vocabulary and computes few exponentials. Tokens are put into narrow buckets by their
// distance from the maximum; each bucket has a count and a mass, which inside a bucket is a short series. Only the
// bucket in which top_k or top_p ends is read token by token, and only kept tokens get a weight.

const (
	// reach is how far below the maximum, in units of temperature, a token still counts. Beyond it, a vocabulary of a
	// million tokens has less than 1e-11 of the likeliest token's probability in all.
	reach = 40.0
	// buckets divide the reach: one spans 0.02, a dozen to a few hundred tokens of a large vocabulary.
	buckets = 2000
	span    = reach / (buckets - 1) // the first and the last are halves
)

// edge is the last token kept in the order of preference: larger logit first, then lower id.
type edge struct {
	x  float32
	id int32
}

func (e edge) keeps(x float32, id int32) bool {
	return x > e.x || (x == e.x && id <= e.id)
}

// distribute does steps 5 to 8: it fills weight, kept and total from x, whose largest value is top.
func (w *Scratch) distribute(p *Params, top float32) {
	inverse := 1 / p.Temperature
	if p.TopK == 0 && p.TopP == 1 {
		w.weighAll(top, inverse, p.MinP)
		return
	}
	w.fill(top, inverse)
	f := filter{w: w, top: top, inverse: inverse, bound: buckets}
	for _, m := range w.mass {
		f.boundMass += m
	}
	if p.TopK > 0 {
		f.topK(p.TopK)
	}
	if p.TopP < 1 {
		f.topP(p.TopP)
	}
	if !f.cut {
		w.weighAll(top, inverse, p.MinP) // neither drops anything
		return
	}
	w.kept = append(w.kept, w.ids...)
	w.weighKept(top, inverse, p.MinP)
}

// weighAll sets weight[i] = exp((x[i]-top)*inverse) and keeps all tokens within reach that have at least the given
// weight; the likeliest token weighs 1.
func (w *Scratch) weighAll(top float32, inverse, least float64) {
	far := reach
	if least > 0 {
		far = min(far, -math.Log(least)+1e-6) // spares most exponentials; the exact test follows
	}
	weight, kept := w.weight[:len(w.x)], w.kept[:len(w.x)]
	n, total := 0, 0.0
	for i, v := range w.x {
		d := float64(top-v) * inverse
		if d >= far {
			continue
		}
		e := expNeg(d)
		if e < least {
			continue
		}
		weight[i] = e
		kept[n] = int32(i)
		n++
		total += e
	}
	w.kept, w.total = kept[:n], total
}

// weighKept gives the tokens in kept their weight and drops those below the least.
func (w *Scratch) weighKept(top float32, inverse, least float64) {
	n, total := 0, 0.0
	for _, id := range w.kept {
		e := expNeg(float64(top-w.x[id]) * inverse)
		if e < least {
			continue
		}
		w.weight[id] = e
		w.kept[n] = id
		n++
		total += e
	}
	w.kept, w.total = w.kept[:n], total
}

// fill computes count and mass of every bucket. At a distance d = b*span - r from the maximum, a token weighs
// exp(-b*span) * exp(r); with |r| <= span/2 three terms of exp(r) leave out 2e-7.
func (w *Scratch) fill(top float32, inverse float64) {
	clear(w.mass)
	clear(w.count)
	mass, count := (*[buckets]float64)(w.mass), (*[buckets]int32)(w.count)
	for _, v := range w.x {
		d := float64(top-v) * inverse
		if d >= reach {
			continue
		}
		b := bucketOf(d)
		r := float64(b)*span - d
		mass[b] += 1 + r + r*r*0.5
		count[b]++
	}
	for b := range mass {
		mass[b] *= expNeg(float64(b) * span)
	}
}

// bucketOf is monotone in the distance, so buckets are in order of preference. (The detour over int is one
// instruction; straight to uint takes a jump.)
func bucketOf(d float64) uint { return uint(int(d*(1/span) + 0.5)) }

// draw is the token at share u of the distribution, 0 <= u < 1, in the order of kept.
func (w *Scratch) draw(u float64) int32 {
	goal := u * w.total
	sum := 0.0
	for _, id := range w.kept {
		sum += w.weight[id]
		if sum > goal {
			return id
		}
	}
	return w.kept[len(w.kept)-1] // rounding left the sum at or below the goal
}

// filter applies top_k and top_p one after the other.
type filter struct {
	w       *Scratch
	top     float32
	inverse float64

	// What is left: the tokens of the buckets before bound, which are in w.kept once cut is set, and of bound itself
	// those in w.ids.
	cut       bool
	bound     int
	boundMass float64 // of all of them
}

// topK leaves the k best tokens.
func (f *filter) topK(k int) {
	before, mass := 0, 0.0
	for b, n := range f.w.count {
		if before+int(n) >= k {
			f.gather(b)
			f.w.ids = f.w.ids[:f.w.best(float64(k-before), one)]
			for _, id := range f.w.ids {
				mass += f.w.weight[id]
			}
			f.boundMass = mass
			return
		}
		before += int(n)
		mass += f.w.mass[b]
	}
}

// topP leaves the smallest prefix whose share of what is left reaches p.
func (f *filter) topP(p float64) {
	goal, sum := p*f.boundMass, 0.0
	for b := range f.bound {
		if sum+f.w.mass[b] >= goal {
			f.gather(b)
			f.w.ids = f.w.ids[:f.w.best(goal-sum, f.w.weight)]
			return
		}
		sum += f.w.mass[b]
	}
	if f.cut { // in the bucket that top_k gathered
		f.w.ids = f.w.ids[:f.w.best(goal-sum, f.w.weight)]
	}
}

// gather puts the tokens of the buckets before b into w.kept and those of b, with their weights, into w.ids.
func (f *filter) gather(b int) {
	w := f.w
	w.ids = w.ids[:0]
	if f.cut {
		rest := w.kept
		w.kept = w.kept[:0]
		for _, id := range rest {
			f.take(id, b)
		}
	} else {
		f.gatherAll(b)
	}
	f.cut, f.bound = true, b
}

// gatherAll is gather over the whole vocabulary. Tokens far enough from the middle of bucket b are before or after it
// whatever rounding does; only the others are looked at closely. Whether a token is before is hard to predict, so it
// is written first and counted afterwards, without a jump.
func (f *filter) gatherAll(b int) {
	w := f.w
	middle := float32(float64(f.top) - float64(b)*span/f.inverse)
	near := 0.5*span/f.inverse + 1e-6*(math.Abs(float64(f.top))+math.Abs(float64(middle))+1)
	kept := w.kept[:len(w.x)]
	n := 0
	for i, v := range w.x {
		kept[n] = int32(i)
		before := 0
		if v > middle {
			before = 1
		}
		if math.Abs(float64(v-middle)) <= near {
			w.kept = kept[:n]
			f.take(int32(i), b)
			n = len(w.kept)
			continue
		}
		n += before
	}
	w.kept = kept[:n]
}

// take puts one token where gather wants it.
func (f *filter) take(id int32, b int) {
	d := float64(f.top-f.w.x[id]) * f.inverse
	switch in := int(bucketOf(d)); {
	case in < b:
		f.w.kept = append(f.w.kept, id)
	case in == b && d < reach:
		f.w.weight[id] = expNeg(d)
		f.w.ids = append(f.w.ids, id)
	}
}
