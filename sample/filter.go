package sample

import "math"

// Filtering never sorts the vocabulary. Tokens fall into buckets by their distance from the maximum, each bucket knows its count and mass, and
// the bucket in which top_k or top_p ends is the only one looked at token by token.

const (
	// reach is how far below the maximum, in units of temperature, a token still counts. Beyond it, a vocabulary of a million tokens has less
	// than 1e-11 of the likeliest token's probability in all.
	reach = 40.0
	// A bucket spans 2^bucketShift steps of expUnit, 0.02: a dozen to a few hundred tokens of a large vocabulary. The index falls out of
	// the exponential's own range reduction.
	bucketShift = 3
	buckets     = 14774>>bucketShift + 1 // 14774 >= reach/expUnit
)

// edge is the last token kept in the order of preference: larger logit first, then lower id.
type edge struct {
	x  float32
	id int32
}

// everything is the edge that drops nothing.
var everything = edge{float32(math.Inf(-1)), math.MaxInt32}

func (e edge) keeps(x float32, id int32) bool {
	return x > e.x || (x == e.x && id <= e.id)
}

// distribute does steps 5 to 8: it fills weight, kept and total from x, whose largest value is top.
func (w *Scratch) distribute(p *Params, top float32) {
	last := everything
	if p.TopK == 0 && p.TopP == 1 {
		w.weigh(p.Temperature, top, p.MinP)
		return
	}
	w.weighBuckets(p.Temperature, top)
	f := filter{w: w, bound: buckets}
	for _, m := range w.mass {
		f.boundMass += m
	}
	if p.TopK > 0 {
		last = f.topK(p.TopK, last)
	}
	if p.TopP < 1 {
		last = f.topP(p.TopP, last)
	}
	w.keep(last, p.MinP)
}

// weigh sets weight[i] = exp((x[i]-top)/temperature), 0 beyond reach, and keeps what has at least the given weight.
func (w *Scratch) weigh(temperature float64, top float32, least float64) {
	inverse := 1 / temperature
	far := reach
	if least > 0 {
		far = min(far, -math.Log(least)+1e-6) // skips most exponentials; the exact test follows
	}
	weight, kept := w.weight[:len(w.x)], w.kept[:len(w.x)]
	n, total := 0, 0.0
	for i, v := range w.x {
		d := float64(top-v) * inverse
		if d >= far {
			weight[i] = 0
			continue
		}
		e := expNeg(d)
		if e < least {
			weight[i] = 0
			continue
		}
		weight[i] = e
		kept[n] = int32(i)
		n++
		total += e
	}
	w.kept, w.total = kept[:n], total
}

// weighBuckets is weigh, and fills mass, count and bucket too.
func (w *Scratch) weighBuckets(temperature float64, top float32) {
	clear(w.mass)
	clear(w.count)
	inverse := 1 / temperature
	mass, count := (*[buckets]float64)(w.mass), (*[buckets]int32)(w.count)
	weight, bucket := w.weight[:len(w.x)], w.bucket[:len(w.x)]
	for i, v := range w.x {
		d := float64(top-v) * inverse
		if d >= reach {
			weight[i], bucket[i] = 0, buckets
			continue
		}
		n := stepsOf(d)
		e := expSteps(d, n)
		b := uint(n) >> bucketShift
		weight[i], bucket[i] = e, uint16(b)
		mass[b] += e
		count[b]++
	}
}

// keep lists the tokens up to the edge that have at least the given weight; the likeliest token weighs 1.
func (w *Scratch) keep(last edge, least float64) {
	least = max(least, math.SmallestNonzeroFloat64)
	weight, kept := w.weight[:len(w.x)], w.kept[:len(w.x)]
	n := 0
	for i, v := range w.x {
		// Written first and counted afterwards: whether a token is kept is hard to predict, and this needs no jump.
		kept[n] = int32(i)
		in := 0
		if v >= last.x {
			in = 1
		}
		if weight[i] < least {
			in = 0
		}
		if v == last.x && int32(i) > last.id {
			in = 0
		}
		n += in
	}
	w.kept, w.total = kept[:n], 0
	for _, id := range w.kept {
		w.total += weight[id]
	}
}

// draw is the token at share u of the distribution, 0 <= u < 1, ids ascending.
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

// filter finds the edges of top_k and top_p.
type filter struct {
	w *Scratch

	// What top_k left: buckets before bound entirely, of bound itself the tokens in w.ids, and the mass of them all.
	bound     int
	boundMass float64
}

// topK returns the edge behind the k best tokens.
func (f *filter) topK(k int, last edge) edge {
	before, mass := 0, 0.0
	for b, n := range f.w.count {
		if before+int(n) < k {
			before += int(n)
			mass += f.w.mass[b]
			continue
		}
		f.gather(b)
		n := f.w.best(float64(k-before), one)
		f.w.ids = f.w.ids[:n]
		f.bound, f.boundMass = b, mass
		for _, id := range f.w.ids {
			f.boundMass += f.w.weight[id]
		}
		return f.w.worst(f.w.ids)
	}
	return last // fewer than k tokens
}

// topP returns the edge behind the smallest prefix whose share of what top_k left reaches p.
func (f *filter) topP(p float64, last edge) edge {
	goal, sum := p*f.boundMass, 0.0
	for b := range f.bound {
		if sum+f.w.mass[b] < goal {
			sum += f.w.mass[b]
			continue
		}
		f.gather(b)
		return f.cut(goal-sum, last)
	}
	if f.bound == buckets {
		return last // rounding left the sum below the goal
	}
	return f.cut(goal-sum, last) // in the bucket that top_k gathered
}

func (f *filter) cut(goal float64, last edge) edge {
	n := f.w.best(goal, f.w.weight)
	if n == 0 {
		return last
	}
	return f.w.worst(f.w.ids[:n])
}

// gather collects the tokens of one bucket in w.ids.
func (f *filter) gather(b int) {
	ids := f.w.ids[:0]
	for i, in := range f.w.bucket {
		if in == uint16(b) {
			ids = append(ids, int32(i))
		}
	}
	f.w.ids = ids
}
