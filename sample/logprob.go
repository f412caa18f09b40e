package sample

import "math"

// logprobs computes the log-softmax of raw logits at one token and at the n likeliest. The list is in w.top.
func (w *Scratch) logprobs(logits []float32, token int32, n int) (float64, []TokenLogprob) {
	top := logits[argmax(logits)]
	sum := 0.0
	for _, v := range logits {
		if d := float64(top - v); d < reach {
			sum += expNeg(d)
		}
	}
	norm := float64(top) + math.Log(sum)
	w.top = w.top[:0]
	if n > 0 {
		w.likeliest(logits, n)
		for i := range w.top {
			w.top[i].Logprob -= norm
		}
	}
	return float64(logits[token]) - norm, w.top
}

// likeliest fills w.top with the n best tokens and their logits by insertion: n is small, and almost every token
// fails the first comparison.
func (w *Scratch) likeliest(logits []float32, n int) {
	list := w.top
	floor := math.Inf(-1)
	for i, v := range logits {
		x := float64(v)
		if x <= floor { // also drops -Inf; equal values lose to the lower id already there
			continue
		}
		at := len(list)
		if at < n {
			list = list[:at+1]
		} else {
			at = n - 1
		}
		for at > 0 && list[at-1].Logprob < x {
			list[at] = list[at-1]
			at--
		}
		list[at] = TokenLogprob{int32(i), x}
		if len(list) == n {
			floor = list[n-1].Logprob
		}
	}
	w.top = list
}
