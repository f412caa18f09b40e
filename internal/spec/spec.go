package spec

// Controller holds the measurements of all requests of an engine. One goroutine uses it and its requests.
type Controller struct {
	setting Setting
	block   int   // maximum number of drafts of one pass; 0 means that each draft takes a pass
	trust   trust // weight of the confidence of a drafter that drafts blocks
	// worth is the seconds that the use of confidences saves in a step, and wait the seconds that the device waits for
	// it.
	worth, wait  float64
	waits        int                    // number of waits that were measured
	forward      pass                   // time of a forward pass by its rows
	draft        pass                   // time of a draft pass by its rows
	right, tried [MaxDrafts + 1]float64 // accepted and compared drafts by position in the chain, from 1; decayed
	// lost is the number of requests for which drafting was ended since the last decision that found drafting faster.
	lost int
}

// New makes a controller for a setting that is not off. block is the number of tokens that the drafter proposes in one
// pass; 0 means one token.
func New(s Setting, block int) *Controller { return &Controller{setting: s, block: block} }

// most returns the maximum chain length.
func (c *Controller) most() int {
	if c.block > 0 {
		return min(c.block, c.setting.Drafts())
	}
	return c.setting.Drafts()
}

// ForwardPass records the time of a forward pass of the target in which all rows decode or verify.
func (c *Controller) ForwardPass(rows int, seconds float64) { c.forward.add(rows, seconds) }

// DraftPass records the time of a pass of the drafting layer whose rows all follow generated tokens. If late is set,
// the time is only an upper bound, which is ignored if it is longer than expected.
func (c *Controller) DraftPass(rows int, seconds float64, late bool) {
	if !late || !c.draft.known || seconds < c.draft.at(float64(rows), 1) {
		c.draft.add(rows, seconds)
	}
}

// Request is the state of one request. The zero value is a request that does not draft; Controller.Request returns a
// request that drafts.
type Request struct {
	shared       *Controller
	exactly      int // number of drafts that the request always makes; 0 means an adaptive number
	right, tried [MaxDrafts + 1]float64
	losses       int                    // weighted number of consecutive decisions that found plain decoding faster
	said         [MaxDrafts + 1]float64 // the drafter's confidence in each draft of its latest block; NaN if unknown
}

const (
	// requestDecay is the factor by which the weight of a request's earlier verifications decreases with each new one:
	// acceptance changes within a request, for example between prose and code.
	requestDecay = 0.95
	// priorWeight is the number of verifications of a request after which these have the same weight as the
	// verifications of all other requests.
	priorWeight = 4.0
	// priorAcceptance is the acceptance rate assumed before any draft was verified.
	priorAcceptance = 0.7
	// maxLosses is the number of consecutive decisions that must find drafting slower until it ends for a request. A
	// decision that finds drafting much slower is counted as several: one more for each tenth of the time, at most
	// mostLoss, so that drafting ends only after some measurements. A new request starts with a count of one for each
	// earlier request for which drafting ended.
	maxLosses = 16
	lossShare = 10
	mostLoss  = 5
	// minGain is the minimum speedup of drafting over plain decoding, because decisions are based on estimates.
	minGain = 1.02
)

// Request returns a request that drafts according to the setting.
func (c *Controller) Request() Request {
	if c.setting.IsFixed() {
		return c.Exactly(c.setting.Drafts())
	}
	return Request{shared: c}
}

// Exactly returns a request that always drafts n tokens.
func (c *Controller) Exactly(n int) Request { return Request{shared: c, exactly: n} }

// Active reports whether the request drafts.
func (r *Request) Active() bool { return r.shared != nil }

// Stop ends drafting for the request.
func (r *Request) Stop() { *r = Request{} }

// Depth returns the draft length of the request's next chain in a batch of the given number of sequences. 0 means that
// drafting is slower than plain decoding and has ended for this request.
func (r *Request) Depth(sequences int) int {
	if r.shared == nil {
		return 0
	}
	if r.exactly > 0 {
		return r.exactly
	}
	c := r.shared
	if !c.forward.known || !c.draft.known {
		return 1
	}
	plain, best, most := c.rate(r, 0, sequences), 0, 0.0
	for n := 1; n <= c.most(); n++ {
		if v := c.rate(r, n, sequences); v > most {
			best, most = n, v
		}
	}
	if most > minGain*plain {
		r.losses, c.lost = 0, 0
		return best
	}
	if r.losses == 0 { // the first loss has a larger weight if drafting has ended for other requests
		r.losses = min(c.lost*mostLoss, maxLosses-mostLoss)
	}
	if r.losses += min(1+int(lossShare*(plain/most-1)), mostLoss); r.losses >= maxLosses {
		r.Stop()
		c.lost++
		return 0
	}
	return 1 // one draft keeps the measurements up to date
}

// Adapts reports whether the request's number of drafts is adaptive.
func (r *Request) Adapts() bool { return r.shared != nil && r.exactly == 0 }

// Together returns the number of drafts that each of several adaptive requests should make next, because a pass is
// fastest if all of its sequences have the same number of rows. It is the number with the most tokens per second for
// all requests together, at least 1.
func (c *Controller) Together(list []*Request) int {
	best, most := 1, 0.0
	if !c.forward.known || !c.draft.known {
		return best
	}
	for n := 1; n <= c.most(); n++ {
		tokens := 0.0
		for _, r := range list {
			tokens += r.tokens(n)
		}
		rows := float64(len(list))
		if v := tokens / c.seconds(n, rows, tokens, 1); v > most {
			best, most = n, v
		}
	}
	return best
}

// Judged records the outcome of a verification: judged drafts were compared with the target's tokens, and the first
// right drafts were equal to the target's tokens.
func (r *Request) Judged(judged, right int) {
	if r.shared == nil {
		return
	}
	for i := 1; i <= min(judged, right+1, MaxDrafts); i++ {
		ok := 0.0
		if i <= right {
			ok = 1
		}
		if r.shared.block > 0 {
			r.shared.trust.learn(i, r.said[i], r.Chance(i), ok)
		}
		r.right[i] = r.right[i]*requestDecay + ok
		r.tried[i] = r.tried[i]*requestDecay + 1
		c := r.shared
		c.right[i] = c.right[i]*sharedDecay + ok
		c.tried[i] = c.tried[i]*sharedDecay + 1
	}
}

// Chance returns the expected acceptance rate of draft i, counted from 1, given that the drafts before it were
// accepted.
func (r *Request) Chance(i int) float64 {
	c := r.shared
	if c == nil || i < 1 || i > MaxDrafts {
		return 0
	}
	all := (c.right[i] + priorAcceptance) / (c.tried[i] + 1)
	return (r.right[i] + priorWeight*all) / (r.tried[i] + priorWeight)
}

// rate returns the tokens per second of one of several sequences that each verify n drafts.
func (c *Controller) rate(r *Request, n, sequences int) float64 {
	tokens := r.tokens(n)
	return tokens / c.seconds(n, 1, tokens, float64(max(sequences, 1)))
}

// tokens returns the expected number of tokens from verifying n drafts.
func (r *Request) tokens(n int) float64 {
	tokens, accepted := 1.0, 1.0
	for i := 1; i <= n; i++ {
		accepted *= r.Chance(i)
		tokens += accepted
	}
	return tokens
}

// seconds returns the time of drafting and verifying n drafts for each of the given sequences, which together gain the
// given number of tokens. 1/share of the fixed time of each pass is included.
func (c *Controller) seconds(n int, sequences, tokens, share float64) float64 {
	cost := c.forward.at(float64(1+n)*sequences, share)
	switch {
	case c.block > 0 && n > 0:
		cost += c.draft.at(float64(c.block)*sequences, share)
	case n > 0:
		// A draft pass over the accepted tokens gives the first draft; every further draft is a pass of one row.
		cost += c.draft.at(tokens, share) + float64(n-1)*c.draft.at(sequences, share)
	}
	return cost
}
