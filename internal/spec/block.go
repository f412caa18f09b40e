package spec

import (
	"math"

	"sparrow/internal/cost"
)

// Proposal is a block of drafts of one request, which were made in one pass. Drafts is how many there are, and after
// [Controller.Cut] how many are worth verifying.
type Proposal struct {
	Request *Request
	Drafts  int
	// Confidence is the logit of the drafter's own estimate that a draft is accepted if those before it are.
	Confidence [MaxDrafts]float32
}

// Cut decides how many drafts of each block to verify: as many as give the most tokens per second by the measured times
// of passes and the chances of acceptance, which are those that were counted, adjusted by the drafter's confidence as
// far as that has predicted right drafts. A request whose drafts seem not to pay verifies one at least, as long as it
// drafts: its times show whether that is so. Requests with a fixed number verify all. Together gives all others the
// same number, where a pass is fastest when all of its sequences have equally many rows.
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

// Seen records blocks that are verified before the host has their confidences: as many drafts as were expected to pay.
func (c *Controller) Seen(list []Proposal) { c.seen(list) }

// Blind reports whether the number of drafts of the next blocks is better decided by their counted acceptance alone
// (Together), before they are seen: where the time that their confidence would save is less than that in which a device
// waits for the decision.
func (c *Controller) Blind() bool {
	return c.worth <= 0 || c.waits >= leastWaits && c.worth <= c.wait
}

// leastWaits is how many waits are measured before they count: the first steps of a shape take long to enqueue.
const leastWaits = 8

// Waited notes how long a device waited for the decision how many drafts are verified. Short waits count most.
func (c *Controller) Waited(seconds float64) {
	if c.waits++; c.waits == 1 || seconds < c.wait {
		c.wait = seconds
	}
	c.wait += (1 - sharedDecay) * (min(seconds, cost.Outlier*c.wait) - c.wait)
}

// seen notes the confidences of blocks and what knowing them is worth: how much longer it takes to make the tokens of a
// step with the number of drafts that counted acceptance alone suggests than with the best one. It returns that one,
// and how many requests adapt.
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

// note keeps the confidences of drafts until the drafts are verified.
func (p *Proposal) note() {
	r := p.Request
	for i := range r.said {
		r.said[i] = math.NaN()
		if i >= 1 && i <= p.Drafts {
			r.said[i] = float64(p.Confidence[i-1])
		}
	}
}

// best returns how many drafts of each of the requests that adapt give the most tokens per second, and how many these
// are. What the blocks cost is spent.
func (c *Controller) best(list []Proposal, sequences, share float64, t *trust) (best int, most float64) {
	longest := 0
	for i := range list {
		if r := list[i].Request; r.Adapts() {
			longest = max(longest, list[i].Drafts)
		}
	}
	for i := range list {
		if r := list[i].Request; r.Adapts() && r.losses > 0 { // Depth keeps measuring
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

// expected returns how many tokens the requests that adapt get from blocks and a verify of n drafts each, and how long
// these take. Without trust only counted acceptance decides.
func (c *Controller) expected(list []Proposal, n int, sequences, share float64, t *trust) (tokens, seconds float64) {
	for i := range list {
		if p := &list[i]; p.Request.Adapts() {
			tokens += p.tokens(min(n, p.Drafts), t)
		}
	}
	return tokens, c.draft.at(float64(c.block)*sequences, share) + c.forward.at(float64(1+n)*sequences, share)
}

// tokens returns how many a verify of the first n drafts is expected to give.
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

// trust is the weight of a drafter's confidence. With m_i the mean confidence in drafts of place i and p_i their
// counted acceptance, a draft of confidence g is accepted with the odds of p_i times exp(slope*(g - m_i)). The slope is
// learned from verified drafts: 0 where confidence predicts nothing, as with random weights, and at most 1, the
// drafter's own measure.
type trust struct {
	sum, count [MaxDrafts + 1]float64 // of confidences by place; decayed
	slope      float64
	weight     float64 // of what was learned: the sum of p(1-p)(g-m)^2, decayed
}

const (
	// trustPrior is the weight of the slope that is assumed at first: none.
	trustPrior = 10.0
	// mostConfidence bounds the distance of a confidence from the mean: drafters are overconfident.
	mostConfidence = 4.0
)

// away returns the difference of a confidence from the mean of its position; 0 where the drafter gave none.
func (t *trust) away(i int, said float64) float64 {
	if math.IsNaN(said) || t.count[i] == 0 {
		return 0
	}
	return max(-mostConfidence, min(said-t.sum[i]/t.count[i], mostConfidence))
}

// chance adjusts the counted acceptance of a draft by its confidence.
func (t *trust) chance(i int, said, counted float64) float64 {
	odds := counted / max(1-counted, 1e-6) * math.Exp(t.slope*t.away(i, said))
	return odds / (1 + odds)
}

// learn takes the outcome of a draft, 1 where it was right.
func (t *trust) learn(i int, said, counted, right float64) {
	if math.IsNaN(said) || math.IsInf(said, 0) {
		return
	}
	x, p := t.away(i, said), t.chance(i, said, counted)
	t.weight = t.weight*sharedDecay + p*(1-p)*x*x
	t.slope = max(0, min(t.slope+(right-p)*x/(t.weight+trustPrior), 1))
	t.sum[i], t.count[i] = t.sum[i]*sharedDecay+said, t.count[i]*sharedDecay+1
}
