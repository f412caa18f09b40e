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
