package sample

import "math"

// Scored is a given token with its log probability under the model, before sampling parameters are applied.
type Scored struct {
	TokenLogprob
	Rank int // 1 for the most likely token; equal logits have equal ranks
	// Top holds the most likely tokens, in descending order. The next call with the same Scratch overwrites it.
	Top []TokenLogprob
}

// Score returns the log probability of a token under logits [vocabulary], its rank, and the n most likely tokens, as
// Sample does for a chosen token.
func (w *Scratch) Score(logits []float32, token int32, n int) (Scored, error) {
	if err := checkToken(token, w.Vocabulary()); err != nil {
		return Scored{}, err
	}
	if _, err := w.load(logits); err != nil {
		return Scored{}, err
	}
	s := Scored{TokenLogprob: TokenLogprob{Token: token}, Rank: 1}
	s.Logprob, s.Top = w.logprobs(logits, token, n)
	for _, v := range logits {
		if v > logits[token] {
			s.Rank++
		}
	}
	return s, nil
}

// negligible is the distance below the largest logit at which a logit is ignored in the sum: a million such logits add
// less than 1e-11 of the largest term.
const negligible = 40.0

// logprobs returns the log-softmax of raw logits at one token and at the n most likely tokens. The list is w.top.
func (w *Scratch) logprobs(logits []float32, token int32, n int) (float64, []TokenLogprob) {
	top := logits[argmax(logits)]
	sum := 0.0
	for _, v := range logits {
		if d := float64(top - v); d < negligible {
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

// likeliest fills w.top with the n largest logits and their tokens, by insertion: n is small, and almost every token
// fails the first comparison.
func (w *Scratch) likeliest(logits []float32, n int) {
	list := w.top
	floor := math.Inf(-1)
	for i, v := range logits {
		x := float64(v)
		if x <= floor { // skip also -Inf; on a tie the lower id is already in the list
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
