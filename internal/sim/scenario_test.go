package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"sparrow/engine"
	"sparrow/internal/sim/formula"
	"sparrow/internal/spec"
	"sparrow/sample"
)

// scenario holds everything that a seed determines before the first request: sizes, costs, faults and client behaviour.
type scenario struct {
	draw   *rand.Rand
	shape  formula.Shape
	config engine.Config
	cost   formula.Cost
	hang   time.Duration

	tenants  int
	places   map[string]int // maximum number of running sequences, of each tenant with a limit
	requests int
	gap      time.Duration // average time between arrivals
	prompts  [][]int32     // common prefixes of requests
	faults   []formula.Fault
	rate     float64 // share of operations that have a fault
	halts    bool    // the engine is closed while requests run
	beside   bool    // the device computes while the host continues
	simple   bool    // most requests are greedy or sampled by the device, so that passes overlap
	flood    bool    // all tenants but one send more than can be served; that tenant sends small requests
}

const (
	vocabulary = 96
	eos        = 1
	mostOutput = 48

	floodPrompt = 64 // maximum number of prompt tokens during a flood
	floodOutput = 5  // factor by which answers are longer during a flood
)

// newScenario returns a random scenario. requests is the approximate number of requests that clients send.
func newScenario(seed uint64, requests int) *scenario {
	s := &scenario{draw: rand.New(rand.NewPCG(seed, 1)), requests: requests/2 + 1}
	d := s.draw
	s.requests += d.IntN(requests)
	s.shape = formula.Shape{Vocab: vocabulary, Context: 512, Windows: d.IntN(4) == 0}
	page, pages := 64, 4+d.IntN(28)
	if d.IntN(4) == 0 {
		pages = 100
	}
	long := 300 // maximum number of tokens of common prefixes
	if s.shape.Windows {
		page, pages, long, s.shape.Context = 256, max(pages/2, 2), 1200, 1536
	}
	s.config = engine.Config{
		CacheTokens: page * pages,
		StepTokens:  8 << d.IntN(5),
		MaxRunning:  1 + d.IntN(12),
		MaxQueue:    4 + d.IntN(60),
		PlanHistory: 2,
		NoReuse:     d.IntN(8) == 0,
		EOS:         []int32{eos},
		Watchdog:    10 * time.Second,
		Draft:       drawDraft(d),
	}
	s.cost = formula.Cost{Pass: time.Duration(1+d.IntN(20)) * time.Millisecond,
		Row: time.Duration(1+d.IntN(200)) * time.Microsecond, Decode: time.Duration(1+d.IntN(200)) * time.Microsecond,
		Keys: time.Duration(d.IntN(100)) * time.Microsecond}
	s.hang = time.Duration(1+d.IntN(100)) * time.Second
	s.tenants = 1 + d.IntN(5)
	s.gap = time.Duration(1+d.IntN(60)) * time.Millisecond
	for range 4 {
		s.prompts = append(s.prompts, s.tokens(1+d.IntN(long)))
	}
	switch d.IntN(5) {
	case 0, 1: // no faults
	case 2: // all faults except the loss of the device
		s.faults = drawFaults(d, formula.Lose)
	default:
		s.faults = drawFaults(d, formula.Faults)
	}
	if len(s.faults) > 0 {
		s.rate = 0.0002 * float64(int(1)<<d.IntN(7))
	}
	s.places = map[string]int{}
	for i := range s.tenants {
		if d.IntN(4) == 0 {
			s.places[tenantName(i)] = 1 + d.IntN(s.config.MaxRunning)
		}
	}
	s.halts = d.IntN(4) == 0
	if d.IntN(3) == 0 {
		s.config.MaxStall = time.Duration(1+d.IntN(50)) * time.Millisecond
	}
	if d.IntN(4) == 0 {
		s.drawFlood()
	}
	if d := rand.New(rand.NewPCG(seed, 2)); d.IntN(2) == 0 {
		s.config.MaxStall = time.Duration(1+d.IntN(100)) * time.Millisecond
	}
	if d := rand.New(rand.NewPCG(seed, 3)); d.IntN(2) == 0 {
		s.beside, s.simple = true, d.IntN(2) == 0
		s.config.NoOverlap = d.IntN(6) == 0
	}
	return s
}

// drawFlood makes tenants send more than can be served, in short prompts and long answers. The scenario has no faults,
// and has places and pages for more than one sequence of every tenant: mostWait then is an upper limit for the wait of
// a tenant's only request.
func (s *scenario) drawFlood() {
	c := &s.config
	s.flood, s.faults, s.gap = true, nil, time.Millisecond
	s.tenants = 1 + s.draw.IntN(3)
	c.MaxRunning = s.tenants + 2 + s.draw.IntN(6)
	c.StepTokens, c.MaxStall = 128, 0
	c.CacheTokens = max(c.CacheTokens, (s.tenants+1)*s.shape.Context)
	c.MaxQueue = max(c.MaxQueue, 24)
}

// light reports whether a request is a small one during a flood.
func (s *scenario) light(number int) bool { return s.flood && number%8 == 7 }

// pause returns the time before a request. Small requests are sent while the flood runs.
func (s *scenario) pause(number int) time.Duration {
	mean := s.gap
	if s.light(number) {
		mean = 100 * s.cost.Pass
	}
	return time.Duration(s.draw.ExpFloat64() * float64(mean))
}

func tenantName(i int) string { return fmt.Sprintf("tenant %d", i) }

func drawDraft(d *rand.Rand) spec.Setting {
	switch d.IntN(3) {
	case 0:
		return spec.Off()
	case 1:
		return spec.Auto()
	}
	n, err := spec.Fixed(1 + d.IntN(4))
	if err != nil {
		panic(err) // drafts of 1 to 4 tokens are valid settings
	}
	return n
}

// drawFaults returns a random selection of the faults with smaller numbers than most.
func drawFaults(d *rand.Rand, most formula.Fault) (out []formula.Fault) {
	for f := formula.None + 1; f < most; f++ {
		if d.IntN(2) == 0 {
			out = append(out, f)
		}
	}
	return out
}

func (s *scenario) tokens(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(2 + s.draw.IntN(vocabulary-2))
	}
	return out
}

// request returns the next random request; known lists computed sequences that the request may continue. An invalid
// request must be refused with a reason.
func (s *scenario) request(number int, known [][]int32) (r engine.Request, bad bool) {
	d := s.draw
	r = engine.Request{ID: fmt.Sprintf("r%d", number), Tenant: tenantName(d.IntN(s.tenants)),
		Sampling: s.sampling(), FitContext: true, IgnoreEOS: d.IntN(4) == 0, Trace: d.IntN(4) == 0}
	switch {
	case len(known) > 0 && d.IntN(3) == 0:
		r.Prompt = append(r.Prompt, known[d.IntN(len(known))]...)
	case d.IntN(2) == 0:
		p := s.prompts[d.IntN(len(s.prompts))]
		r.Prompt = append(r.Prompt, p[:d.IntN(len(p)+1)]...)
	}
	if s.light(number) {
		r.Tenant, r.Sampling.N = "light", 1
	} else {
		s.place(&r)
	}
	r.Prompt = append(r.Prompt, s.tokens(1+d.IntN(64)>>d.IntN(6))...)
	most := min(s.shape.Context, s.config.CacheTokens) - 1
	r.Prompt = r.Prompt[:min(len(r.Prompt), most)]
	r.MaxTokens = 1 + d.IntN(mostOutput)
	if s.flood {
		r.Prompt = r.Prompt[:min(len(r.Prompt), floodPrompt)]
		r.MaxTokens *= floodOutput
	}
	if d.IntN(6) == 0 {
		r.MinTokens = min(1+d.IntN(r.MaxTokens), most+1-len(r.Prompt))
	}
	if n := 1 + d.IntN(4); d.IntN(5) == 0 && s.config.Draft.Drafts() >= n && !s.config.Draft.IsFixed() {
		r.Draft = &n
	} else if d.IntN(8) == 0 {
		none := 0
		r.Draft = &none
	}
	if !s.simple {
		s.guide(&r)
		s.score(&r)
	}
	if d.IntN(12) == 0 {
		s.spoil(&r)
		return r, true
	}
	return r, false
}

func (s *scenario) sampling() sample.Params {
	d, p := s.draw, sample.Default()
	if s.simple && d.IntN(16) > 0 {
		p.Temperature, p.N = 0, 1+d.IntN(2)
		p.StopTokenIDs = s.tokens(d.IntN(3))
		if d.IntN(2) == 0 {
			p.Seed, p.Temperature, p.TopK, p.TopP = d.Int64(), 0.5+d.Float64(), d.IntN(40), 0.2+0.8*d.Float64()
		}
		return p
	}
	p.Seed = d.Int64()
	p.Temperature = []float64{0, 0, 0.7, 1, 2}[d.IntN(5)]
	if d.IntN(4) == 0 {
		p.TopK, p.TopP = d.IntN(40), 0.2+0.8*d.Float64()
	}
	if d.IntN(6) == 0 {
		p.RepetitionPenalty, p.FrequencyPenalty = 1.2, 0.5
	}
	if d.IntN(4) == 0 {
		p.Logprobs, p.TopLogprobs = true, d.IntN(4)
	}
	if d.IntN(4) == 0 {
		p.StopTokenIDs = s.tokens(1 + d.IntN(3))
	}
	p.N = 1
	if d.IntN(5) == 0 {
		p.N = min(1+d.IntN(6), s.config.MaxQueue)
	}
	return p
}

// place returns the flow and priority of a request within its tenant.
func (s *scenario) place(r *engine.Request) {
	d := s.draw
	if s.flood {
		r.Sampling.N, r.IgnoreEOS = 1+d.IntN(6), true
	}
	if d.IntN(3) == 0 {
		r.Flow, r.Priority = fmt.Sprintf("flow %d", d.IntN(3)), d.IntN(5)-2
	}
	r.Places = s.places[r.Tenant]
	if d.IntN(10) == 0 {
		r.Salt = "salt"
	}
}

// guide constrains the tokens of a request by masks, like tool calls and reasoning.
func (s *scenario) guide(r *engine.Request) {
	d := s.draw
	switch d.IntN(10) {
	case 0:
		r.Guide.NoCalls = sample.AllBut(vocabulary, s.tokens(1+d.IntN(20)))
	case 1:
		r.Guide.ReasoningEnd, r.Guide.MaxReasoning = s.tokens(1)[0], 1+d.IntN(20)
	}
}

// score requests log probabilities of the prompt, or of continuations of it.
func (s *scenario) score(r *engine.Request) {
	d := s.draw
	if d.IntN(10) > 0 {
		return
	}
	r.Score = &engine.Score{From: d.IntN(len(r.Prompt) + 1), Top: d.IntN(3), Only: d.IntN(2) == 0}
	if d.IntN(3) > 0 {
		return
	}
	left := min(s.shape.Context, s.config.CacheTokens) - len(r.Prompt)
	for range min(1+d.IntN(4), s.config.MaxQueue) {
		r.Score.Continuations = append(r.Score.Continuations, s.tokens(1+d.IntN(min(left, 20))))
	}
}

// spoil makes a request invalid in one way.
func (s *scenario) spoil(r *engine.Request) {
	switch s.draw.IntN(7) {
	case 0:
		r.Prompt = nil
	case 1:
		r.Prompt[s.draw.IntN(len(r.Prompt))] = vocabulary + s.draw.Int32N(1000)
	case 2:
		r.Prompt[0] = -1 - s.draw.Int32N(1000)
	case 3:
		r.Prompt = s.tokens(s.shape.Context + 1)
	case 4:
		r.Sampling.N = s.config.MaxQueue + 1 + s.draw.IntN(1000)
		r.Score = nil // a request with continuations may not set the number of choices
	case 5:
		r.Sampling.Temperature = -1
	case 6:
		r.MaxTokens, r.FitContext = -1-s.draw.IntN(100), false
		r.Score = nil
	}
}
