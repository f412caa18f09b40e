package spec

import "math"

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
	adapting := 0
	for i := range list {
		if p := &list[i]; p.Request.Adapts() {
			adapting++
		}
		list[i].note()
	}
	if adapting == 0 || !c.forward.known || !c.draft.known {
		return
	}
	if !together {
		for i := range list {
			if p := &list[i]; p.Request.Adapts() {
				p.Drafts = c.best(list[i:i+1], 1, float64(len(list)))
			}
		}
		return
	}
	n := c.best(list, float64(adapting), 1)
	for i := range list {
		if p := &list[i]; p.Request.Adapts() {
			p.Drafts = min(p.Drafts, n)
		}
	}
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

// best returns how many drafts of each of the requests that adapt give the most tokens per second. What the blocks cost
// is spent.
func (c *Controller) best(list []Proposal, sequences, share float64) int {
	most, longest := -1.0, 0
	for i := range list {
		if list[i].Request.Adapts() {
			longest = max(longest, list[i].Drafts)
		}
	}
	spent := c.draft.at(float64(c.block)*sequences, share)
	best := 0
	for i := range list {
		if r := list[i].Request; r.Adapts() && r.losses > 0 { // Depth keeps measuring
			best = min(1, longest)
		}
	}
	for n := best; n <= longest; n++ {
		tokens := 0.0
		for i := range list {
			if p := &list[i]; p.Request.Adapts() {
				tokens += p.tokens(min(n, p.Drafts), &c.trust)
			}
		}
		if v := tokens / (spent + c.forward.at(float64(1+n)*sequences, share)); v > most {
			best, most = n, v
		}
	}
	return best
}

// tokens returns how many a verify of the first n drafts is expected to give.
func (p *Proposal) tokens(n int, t *trust) float64 {
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

// away returns how far a confidence is from the mean of its place; 0 where nothing was said.
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
