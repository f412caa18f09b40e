package spec

import (
	"math"

	"sparrow/internal/cost"
)

// Proposal is a block of drafts of one request, made in one pass. Drafts is the number of drafts, and after
// [Controller.Cut] the number of drafts to verify.
type Proposal struct {
	Request *Request
	Drafts  int
	// Confidence is the logit of the drafter's own estimate that a draft is accepted, given that the drafts before it
	// are accepted.
	Confidence [MaxDrafts]float32
}

// Cut sets how many drafts of each block to verify: the number with the most expected tokens per second. It is computed
// from measured times of passes and from acceptance rates, adjusted by the drafter's confidence to the extent that
// confidence has predicted acceptance. A request that drafts verifies at least one draft, so that times continue to be
// measured. Requests with a fixed draft length verify all drafts. If together is set, all other requests get the same
// number, because a pass is fastest if all its sequences have the same number of rows.
func (c *Controller) Cut(list []Proposal, together bool) {
	n, adapting := c.seen(list)
	if adapting == 0 || !c.forward.known || !c.draft.known {
		return
	}
	if !together {
		for i := range list {
			if p := &list[i]; p.Request.Adapts() {
				p.Drafts, _ = c.best(list[i:i+1], 1, float64(len(list)), &c.trust)
			}
		}
		return
	}
	for i := range list {
		if p := &list[i]; p.Request.Adapts() {
			p.Drafts = min(p.Drafts, n)
		}
	}
}

// Seen records blocks that are verified before the host has their confidences: the draft length was chosen from
// acceptance rates alone.
func (c *Controller) Seen(list []Proposal) { c.seen(list) }

// Blind reports whether to choose the draft length of the next blocks from acceptance rates alone (Together), before
// the host has the blocks. It returns true if the use of confidences saves less time than the device waits for the
// choice.
func (c *Controller) Blind() bool {
	return c.worth <= 0 || c.waits >= leastWaits && c.worth <= c.wait
}

// leastWaits is the number of waits that must be measured before Blind uses them, because the first steps of a shape
// take long to enqueue.
const leastWaits = 8

// Waited records how long the device waited for the choice of the draft length. Short waits have the most weight.
func (c *Controller) Waited(seconds float64) {
	if c.waits++; c.waits == 1 || seconds < c.wait {
		c.wait = seconds
	}
	c.wait += (1 - sharedDecay) * (min(seconds, cost.Outlier*c.wait) - c.wait)
}

// seen records the confidences of blocks. It also estimates what the use of confidences saves: the difference in time
// per token between the draft length chosen from acceptance rates alone and the best draft length. It returns the best
// number, and the number of adaptive requests.
func (c *Controller) seen(list []Proposal) (n, adapting int) {
	for i := range list {
		if list[i].note(); list[i].Request.Adapts() {
			adapting++
		}
	}
	if adapting == 0 || !c.forward.known || !c.draft.known {
		return 0, adapting
	}
	sequences := float64(adapting)
	n, most := c.best(list, sequences, 1, &c.trust)
	blind, _ := c.best(list, sequences, 1, nil)
	tokens, seconds := c.expected(list, max(blind, 1), sequences, 1, &c.trust)
	c.worth += (1 - sharedDecay) * (seconds - tokens/most - c.worth)
	return n, adapting
}

// note stores the confidences of drafts until the drafts are verified.
func (p *Proposal) note() {
	r := p.Request
	for i := range r.said {
		r.said[i] = math.NaN()
		if i >= 1 && i <= p.Drafts {
			r.said[i] = float64(p.Confidence[i-1])
		}
	}
}

// best returns the number of drafts for each adaptive request with the most tokens per second, and the number of
// adaptive requests. The time of the draft pass that made the blocks is not included.
func (c *Controller) best(list []Proposal, sequences, share float64, t *trust) (best int, most float64) {
	longest := 0
	for i := range list {
		if r := list[i].Request; r.Adapts() {
			longest = max(longest, list[i].Drafts)
		}
	}
	for i := range list {
		// For requests with losses, at least one draft is verified; Depth decides whether they continue to draft.
		if r := list[i].Request; r.Adapts() && r.losses > 0 {
			best = min(1, longest)
		}
	}
	for n := best; n <= longest; n++ {
		tokens, seconds := c.expected(list, n, sequences, share, t)
		if v := tokens / seconds; v > most {
			best, most = n, v
		}
	}
	return best, most
}

// expected returns the expected number of tokens of the adaptive requests from a verification of n drafts of each
// block, and the time in seconds. If t is nil, it uses only acceptance rates.
func (c *Controller) expected(list []Proposal, n int, sequences, share float64, t *trust) (tokens, seconds float64) {
	for i := range list {
		if p := &list[i]; p.Request.Adapts() {
			tokens += p.tokens(min(n, p.Drafts), t)
		}
	}
	return tokens, c.draft.at(float64(c.block)*sequences, share) + c.forward.at(float64(1+n)*sequences, share)
}

// tokens returns the expected number of tokens from verifying the first n drafts.
func (p *Proposal) tokens(n int, t *trust) float64 {
	if t == nil {
		return p.Request.tokens(n)
	}
	tokens, accepted := 1.0, 1.0
	for i := 1; i <= n; i++ {
		accepted *= t.chance(i, p.Request.said[i], p.Request.Chance(i))
		tokens += accepted
	}
	return tokens
}

// trust is the weight of a drafter's confidence. With m_i the mean confidence of drafts at position i and p_i their
// acceptance rate, a draft with confidence g is accepted with the odds of p_i times exp(slope*(g - m_i)). The slope is
// learned from verified drafts: it is 0 if confidence does not predict acceptance, as with random weights, and at most
// 1, with which confidences are used unchanged.
type trust struct {
	sum, count [MaxDrafts + 1]float64 // sum and number of confidences by position, decayed
	slope      float64
	weight     float64 // weight of the learned slope: sum of p(1-p)(g-m)^2, decayed
}

const (
	// trustPrior is the weight of the initial slope, which is 0.
	trustPrior = 10.0
	// mostConfidence limits the distance of a confidence from the mean, because drafters are overconfident.
	mostConfidence = 4.0
)

// away returns the difference of a confidence from the mean at its position; 0 without a confidence.
func (t *trust) away(i int, said float64) float64 {
	if math.IsNaN(said) || t.count[i] == 0 {
		return 0
	}
	return max(-mostConfidence, min(said-t.sum[i]/t.count[i], mostConfidence))
}

// chance adjusts the acceptance rate of a draft by its confidence.
func (t *trust) chance(i int, said, counted float64) float64 {
	odds := counted / max(1-counted, 1e-6) * math.Exp(t.slope*t.away(i, said))
	return odds / (1 + odds)
}

// learn records the outcome of a draft, 1 if it was accepted.
func (t *trust) learn(i int, said, counted, right float64) {
	if math.IsNaN(said) || math.IsInf(said, 0) {
		return
	}
	x, p := t.away(i, said), t.chance(i, said, counted)
	t.weight = t.weight*sharedDecay + p*(1-p)*x*x
	t.slope = max(0, min(t.slope+(right-p)*x/(t.weight+trustPrior), 1))
	t.sum[i], t.count[i] = t.sum[i]*sharedDecay+said, t.count[i]*sharedDecay+1
}
