package spec

import (
	"math"
	"slices"
	"testing"
)

// Each request for which drafting ended shortens the trial of later requests, up to the point where one decision ends
// it. A request for which drafting saves time restores the full trial.
func TestLostRequestsShortenTheNext(t *testing.T) {
	costly := func(c *Controller) {
		for range 200 { // a draft pass takes the time of ten steps
			c.ForwardPass(1, 1)
			c.ForwardPass(2, 2)
			c.DraftPass(1, 10, false)
		}
	}
	c := New(Auto(), 0)
	costly(c)
	decisions := func() (n int) {
		for r := c.Request(); r.Active(); n++ {
			r.Depth(1)
		}
		return n
	}
	var got []int
	for range 5 {
		got = append(got, decisions())
	}
	if want := []int{4, 3, 2, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("drafting ended after %v decisions, want %v", got, want)
	}
	for range 400 { // from here on, a draft pass is nearly free
		c.ForwardPass(1, 1)
		c.ForwardPass(2, 1.01)
		c.DraftPass(1, 0.01, false)
	}
	r := c.Request()
	for range 200 {
		r.Judged(1, 1)
	}
	if r.Depth(1) == 0 || c.lost != 0 {
		t.Fatalf("drafts that save time are not made; %d requests count as lost", c.lost)
	}
}

// A drafter of blocks never drafts more than its block.
func TestDepthsAreBoundedByTheBlock(t *testing.T) {
	for block, want := range map[int]int{0: MaxDrafts, 3: 3, 5: 5} {
		c := New(Auto(), block)
		for n := 1; n <= 8; n++ {
			for range 20 {
				c.ForwardPass(n, 1+0.001*float64(n))
				c.DraftPass(n, 0.001, false)
			}
		}
		r := c.Request()
		for range 100 {
			r.Judged(MaxDrafts, MaxDrafts)
		}
		if got := r.Depth(1); got != want {
			t.Errorf("blocks of %d: %d drafts, want %d", block, got, want)
		}
		if got := c.Together([]*Request{&r}); got != want {
			t.Errorf("blocks of %d: %d drafts together, want %d", block, got, want)
		}
	}
}

// After a cut block, the confidences of all drafts of that block are stored and none of an earlier block.
func TestConfidencesAreKeptByPlace(t *testing.T) {
	c := New(Auto(), 5)
	r := c.Request()
	for _, n := range []int{5, 3, 0} {
		c.Cut([]Proposal{{Request: &r, Drafts: n, Confidence: [MaxDrafts]float32{1, 2, 3, 4, 5, 6, 7}}}, false)
		for i, said := range r.said {
			if known := i >= 1 && i <= n; known != (said == float64(i)) || !known && !math.IsNaN(said) {
				t.Errorf("%d drafts: the stored confidence of draft %d is %v", n, i, said)
			}
		}
	}
}

// In a larger batch more sequences share the fixed part of a pass, so that each draft costs relatively more.
func TestBlocksOfLargeBatchesAreShorter(t *testing.T) {
	cut := func(sequences int) int {
		c := New(Auto(), 5)
		timed(c, 1, 0.15)
		r := c.Request()
		for range 60 {
			r.Judged(5, 2)
			r.Judged(5, 5)
		}
		list := make([]Proposal, sequences)
		for i := range list {
			list[i] = Proposal{Request: &r, Drafts: 5}
		}
		c.Cut(list, false)
		return list[0].Drafts
	}
	if one, many := cut(1), cut(64); one != 5 || many >= one {
		t.Errorf("%d drafts are verified of a single block, %d of each of 64 blocks", one, many)
	}
}

// Older statistics of confidences lose weight like all other measurements.
func TestTrustFades(t *testing.T) {
	var x trust
	x.learn(1, 1, 0.5, 1) // sets the mean confidence of this position
	for range 3 {
		away, p := x.away(1, 3), x.chance(1, 3, 0.5)
		weight := sharedDecay*x.weight + p*(1-p)*away*away
		slope := max(0, min(x.slope+(1-p)*away/(weight+trustPrior), 1))
		sum, count := sharedDecay*x.sum[1]+3, sharedDecay*x.count[1]+1
		if x.learn(1, 3, 0.5, 1); x.weight != weight || x.slope != slope || x.sum[1] != sum || x.count[1] != count {
			t.Errorf("trust %+v; want weight %v, slope %v, sum %v and count %v", x, weight, slope, sum, count)
		}
	}
	if before := x; x.slope <= 0 {
		t.Errorf("%+v", before)
	}
	before := x
	if x.learn(1, math.NaN(), 0.5, 1); x != before {
		t.Error("a draft without confidence changed the trust")
	}
}

// The time of a draft pass that the host saw late is an upper bound. It is used if no better time is known, or if it is
// shorter than expected.
func TestLateDraftPasses(t *testing.T) {
	c := New(Auto(), 0)
	c.DraftPass(2, 4, true)
	if first := c.draft.at(2, 1); !c.draft.known || math.Abs(first-4) > 1e-9 {
		t.Fatalf("the first pass, which was seen late, is estimated at %v, want 4", first)
	}
	for _, x := range []struct {
		seconds float64
		late    bool
		counts  bool
	}{{5, true, false}, {3, true, true}, {5, false, true}} {
		before := c.draft.at(2, 1)
		if c.DraftPass(2, x.seconds, x.late); (c.draft.at(2, 1) != before) != x.counts {
			t.Errorf("pass of %v s, late %v: estimated at %v, before at %v", x.seconds, x.late, c.draft.at(2, 1),
				before)
		}
	}
}

// Until a pass of the target and one of the drafter were measured, one draft is made, blocks are not cut, and the
// estimated gain from confidences does not change.
func TestUnknownTimesDecideNothing(t *testing.T) {
	for _, c := range []struct {
		name            string
		forward, drafts bool
	}{{"nothing", false, false}, {"the target", true, false}, {"the drafter", false, true}} {
		x := New(Auto(), 5)
		if c.forward {
			x.ForwardPass(1, 1)
		}
		if c.drafts {
			x.DraftPass(1, 1, false)
		}
		r := x.Request()
		if got := r.Depth(1); got != 1 {
			t.Errorf("%s was measured: %d drafts", c.name, got)
		}
		if got := x.Together([]*Request{&r, &r}); got != 1 {
			t.Errorf("%s was measured: %d drafts together", c.name, got)
		}
		for _, together := range []bool{false, true} {
			list := []Proposal{{Request: &r, Drafts: 5, Confidence: [MaxDrafts]float32{-9, -9, -9}}}
			if x.Cut(list, together); list[0].Drafts != 5 || x.worth != 0 || !x.Blind() {
				t.Errorf("%s was measured: %d drafts of 5 are verified, confidences are worth %v s", c.name,
					list[0].Drafts, x.worth)
			}
		}
	}
}

// A step takes one pass of the target over the next token and the drafts of each sequence. With drafts it takes a pass
// of the drafter: over a whole block, or over the kept tokens for the first draft and one for each further draft.
func TestTheTimeOfAStep(t *testing.T) {
	for _, block := range []int{0, 4} {
		c := New(Auto(), block)
		for n := 1; n <= 6; n++ {
			for range 30 {
				c.ForwardPass(n, 10+float64(n))
				c.DraftPass(n, 2+0.1*float64(n), false)
			}
		}
		for _, x := range []struct {
			n                        int
			sequences, tokens, share float64
			want                     [2]float64 // without blocks, with blocks of four
		}{
			{0, 1, 1, 1, [2]float64{11, 11}},
			{0, 3, 3, 1, [2]float64{13, 13}},
			{2, 1, 2.5, 1, [2]float64{13 + 2.25 + 2.1, 13 + 2.4}},
			{3, 2, 5, 1, [2]float64{18 + 2.5 + 2*2.2, 18 + 2.8}},
			{2, 1, 2.5, 2, [2]float64{8 + 1.25 + 1.1, 8 + 1.4}},
		} {
			want := x.want[min(block, 1)]
			if got := c.seconds(x.n, x.sequences, x.tokens, x.share); math.Abs(got-want) > 0.02*want {
				t.Errorf("blocks of %d, %+v: %v s, want %v", block, x, got, want)
			}
		}
	}
}

// A draft without confidence has the mean confidence of its position.
func TestADraftWithoutConfidence(t *testing.T) {
	var x trust
	for range 20 {
		x.learn(1, 2, 0.5, 1)
		x.learn(1, -2, 0.5, 0)
	}
	if x.slope <= 0 || x.chance(1, 2, 0.5) <= 0.5 {
		t.Fatalf("confidences that were right count with slope %v", x.slope)
	}
	if got := x.away(1, math.NaN()); got != 0 {
		t.Errorf("a draft without confidence is %v away from the mean", got)
	}
	if got := x.chance(1, math.NaN(), 0.25); math.Abs(got-0.25) > 1e-12 {
		t.Errorf("a draft without confidence has the chance %v, want the acceptance rate of 0.25", got)
	}
	if got := x.away(2, 3); got != 0 {
		t.Errorf("a confidence at a position without mean is %v away from it", got)
	}
	if a, b := x.away(1, 100), x.away(1, -100); a != mostConfidence || b != -mostConfidence {
		t.Errorf("confidences far from the mean are %v and %v away", a, b)
	}
}

// The estimated gain from confidences is a running mean, changed by a fiftieth with each step. A step's gain is the
// time that the best number of drafts saves compared with the number chosen from acceptance rates, for all sequences
// together.
func TestTheWorthOfConfidences(t *testing.T) {
	c := New(Auto(), 5)
	timed(c, 1, 1)
	r := c.Request()
	for range 60 {
		r.Judged(5, 5)
	}
	c.trust.slope = 1
	for i := 1; i <= 5; i++ {
		c.trust.count[i] = 10 // the mean confidence is 0
	}
	low := Proposal{Request: &r, Drafts: 5, Confidence: [MaxDrafts]float32{-4, -4, -4, -4, -4}}
	list := []Proposal{low, low, low}
	best := func(t *trust) (n int, rate float64) {
		for i := 0; i <= 5; i++ {
			if tokens, seconds := c.expected(list, i, 3, 1, t); tokens/seconds > rate {
				n, rate = i, tokens/seconds
			}
		}
		return n, rate
	}
	for i := range list {
		list[i].note()
	}
	n, most := best(&c.trust)
	blind, _ := best(nil)
	tokens, seconds := c.expected(list, blind, 3, 1, &c.trust)
	if n >= blind {
		t.Fatalf("%d drafts with confidences, %d without", n, blind)
	}
	for range 3 {
		want := c.worth + (1-sharedDecay)*(seconds-tokens/most-c.worth)
		if c.Seen(list); math.Abs(c.worth-want) > 1e-12 || c.worth <= 0 {
			t.Errorf("confidences are worth %v s, want %v", c.worth, want)
		}
	}
	if c.Blind() {
		t.Error("confidences that save time are not waited for")
	}
}

// The estimated wait for a decision is the shortest measured wait. Longer waits increase it slowly, and each counts as
// at most three times the estimate.
func TestWaitsForADecision(t *testing.T) {
	c := New(Auto(), 5)
	for i, x := range []struct{ waited, want float64 }{{8, 8}, {2, 2}, {3, 2 + 0.02}, {1, 1}, {100, 1 + 0.04}} {
		if c.Waited(x.waited); math.Abs(c.wait-x.want) > 1e-12 || c.waits != i+1 {
			t.Errorf("after a wait of %v: %v, want %v; %d waits", x.waited, c.wait, x.want, c.waits)
		}
	}
	for _, x := range []struct {
		worth, wait float64
		waits       int
		blind       bool
	}{{0, 0, 0, true}, {-1, 0, 0, true}, {1, 5, leastWaits - 1, false}, {1, 5, leastWaits, true},
		{5, 5, leastWaits, true}, {6, 5, leastWaits, false}} {
		c.worth, c.wait, c.waits = x.worth, x.wait, x.waits
		if c.Blind() != x.blind {
			t.Errorf("%+v: blind %t", x, c.Blind())
		}
	}
}
