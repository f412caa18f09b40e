package spec

// Controller is what all requests of an engine share. One goroutine uses it and its requests.
type Controller struct {
	setting      Setting
	step, pass   line
	right, tried [Most + 1]float64 // by place in the chain, from 1; decayed
}

// New makes a controller for a setting that is not off.
func New(s Setting) *Controller { return &Controller{setting: s} }

// Step notes how long a step of the target took whose rows all decode or verify.
func (c *Controller) Step(rows int, seconds float64) { c.step.add(rows, seconds) }

// Pass notes how long a pass of the drafting layer took whose rows all follow generated tokens.
func (c *Controller) Pass(rows int, seconds float64) { c.pass.add(rows, seconds) }

// Request is what one request adds. The zero value is a request that does not draft; Controller.Request makes one that does.
type Request struct {
	shared       *Controller
	exactly      int // drafts it always makes; 0 for as many as pay
	right, tried [Most + 1]float64
	losses       int // decisions in a row at which not drafting was better
}

const (
	// fading makes a request's older verifies count less: text changes from prose to lists to code.
	fading = 0.95
	// belief is how many verifies of its own a request needs until they count as much as what all requests saw.
	belief = 4.0
	// guess is how often a draft is taken to be right before any was judged.
	guess = 0.7
	// patience is how often in a row drafting must look like a loss until it ends for a request.
	patience = 16
	// gain is how much better drafting must be than not drafting: decisions rest on estimates.
	gain = 1.02
)

// Request begins a request that drafts as the setting says.
func (c *Controller) Request() Request {
	if c.setting.Insists() {
		return c.Exactly(c.setting.Drafts())
	}
	return Request{shared: c}
}

// Exactly begins a request that always drafts n tokens.
func (c *Controller) Exactly(n int) Request { return Request{shared: c, exactly: n} }

// On tells whether the request drafts.
func (r *Request) On() bool { return r.shared != nil }

// Stop ends drafting for the request.
func (r *Request) Stop() { *r = Request{} }

// Depth is how many drafts to make next while sequences sequences share a step. 0 means that drafting does not pay and has ended for this request.
func (r *Request) Depth(sequences int) int {
	if r.shared == nil {
		return 0
	}
	if r.exactly > 0 {
		return r.exactly
	}
	c := r.shared
	if !c.step.known() || !c.pass.known() {
		return 1
	}
	best, most := 0, gain*c.rate(r, 0, sequences)
	for n := 1; n <= c.setting.Drafts(); n++ {
		if v := c.rate(r, n, sequences); v > most {
			best, most = n, v
		}
	}
	if best > 0 {
		r.losses = 0
		return best
	}
	if r.losses++; r.losses >= patience {
		r.Stop()
		return 0
	}
	return 1 // go on measuring
}

// Judged notes the outcome of a verify: the first judged drafts were looked at and the first right of them were right.
func (r *Request) Judged(judged, right int) {
	if r.shared == nil {
		return
	}
	for i := 1; i <= min(judged, right+1, Most); i++ {
		ok := 0.0
		if i <= right {
			ok = 1
		}
		r.right[i] = r.right[i]*fading + ok
		r.tried[i] = r.tried[i]*fading + 1
		c := r.shared
		c.right[i] = c.right[i]*memory + ok
		c.tried[i] = c.tried[i]*memory + 1
	}
}

// Chance is how often draft i, counted from 1, is expected to be right once those before it are.
func (r *Request) Chance(i int) float64 {
	c := r.shared
	if c == nil || i < 1 || i > Most {
		return 0
	}
	all := (c.right[i] + guess) / (c.tried[i] + 1)
	return (r.right[i] + belief*all) / (r.tried[i] + belief)
}

// rate is the tokens per second of one of several sequences that each verify n drafts.
func (c *Controller) rate(r *Request, n, sequences int) float64 {
	share := float64(max(sequences, 1))
	tokens, alive := 1.0, 1.0
	for i := 1; i <= n; i++ {
		alive *= r.Chance(i)
		tokens += alive
	}
	seconds := c.step.at(float64(1+n), share)
	if n > 0 {
		// One pass over the tokens that were kept gives the first draft, every further draft is a pass of one row.
		seconds += c.pass.at(tokens, share) + float64(n-1)*c.pass.at(1, share)
	}
	return tokens / seconds
}
