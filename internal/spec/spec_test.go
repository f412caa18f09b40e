package spec

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		text, want string
		drafts     int
		fixed      bool
	}{{"", "auto", MaxDrafts, false}, {"auto", "auto", MaxDrafts, false}, {"off", "off", 0, false}, {"1", "1", 1, true},
		{"7", "7", 7, true}} {
		s, err := Parse(c.text)
		if err != nil || s.String() != c.want || s.Drafts() != c.drafts || s.IsFixed() != c.fixed {
			t.Errorf("%q was parsed as %v with %d drafts, fixed %v, error %v", c.text, s, s.Drafts(), s.IsFixed(), err)
		}
		var back Setting
		if text, _ := s.MarshalText(); back.UnmarshalText(text) != nil || back != s {
			t.Errorf("the text of setting %q was not parsed back: %v", text, back)
		}
	}
	for _, text := range []string{"0", "8", "-1", "on", "2.5", " 2", "99999999999999999999"} {
		if s, err := Parse(text); !errors.Is(err, ErrSetting) {
			t.Errorf("%q was parsed as %v, error %v", text, s, err)
		}
	}
	if (Setting{}) != Auto() {
		t.Error("the zero value of Setting is not auto")
	}
}

// machine simulates the times of a target and a drafting layer with linear costs and noise.
type machine struct {
	step, stepRow, pass, passRow float64
	random                       *rand.Rand
}

func (m *machine) noise() float64 { return 1 + 0.2*m.random.Float64() }

// run decodes the given number of tokens for one of several similar requests, with drafts that are accepted with the
// given probabilities, and returns the total time of its steps in seconds.
func (m *machine) run(c *Controller, r *Request, tokens, sequences int, chances []float64) (seconds float64,
	drafted int) {
	n := 0
	for made := 0; made < tokens; {
		took := (m.step + m.stepRow*float64(sequences*(1+n))) * m.noise()
		c.ForwardPass(sequences*(1+n), took)
		seconds += took
		right := 0
		for right < n && m.random.Float64() < chances[right] {
			right++
		}
		if n > 0 {
			r.Judged(n, right)
			drafted += n
		}
		made += 1 + right
		if n = r.Depth(sequences); n == 0 {
			continue
		}
		for i := range n {
			rows := 1
			if i == 0 {
				rows = 1 + right
			}
			took := (m.pass + m.passRow*float64(sequences*rows)) * m.noise()
			c.DraftPass(sequences*rows, took, false)
			seconds += took
		}
	}
	return seconds, drafted
}

// Automatic drafting is nearly as fast as the best fixed depth, and as plain decoding if drafting saves no time.
func TestAutoFindsTheDepthThatPays(t *testing.T) {
	good := []float64{0.99, 0.95, 0.9, 0.9, 0.85, 0.85, 0.8}
	half := []float64{0.99, 0.5, 0.45, 0.4, 0.4, 0.4, 0.4}
	never := []float64{0.01, 0, 0, 0, 0, 0, 0}
	for _, c := range []struct {
		name      string
		m         machine
		sequences int
		chances   []float64
	}{
		{"rows are nearly free and drafts right", machine{step: 1, stepRow: 0.02, pass: 0.05, passRow: 0.005}, 1, good},
		{"rows are nearly free, drafts right half the time",
			machine{step: 1, stepRow: 0.02, pass: 0.05, passRow: 0.005}, 1, half},
		{"rows cost a third of a step", machine{step: 1, stepRow: 0.3, pass: 0.2, passRow: 0.1}, 1, half},
		{"drafts are never right", machine{step: 1, stepRow: 0.02, pass: 0.2, passRow: 0.01}, 1, never},
		{"a full batch, where rows are all of the cost", machine{step: 1, stepRow: 0.3, pass: 0.2, passRow: 0.1}, 32,
			half},
		{"a batch of cheap rows", machine{step: 1, stepRow: 0.01, pass: 0.05, passRow: 0.002}, 16, good},
	} {
		t.Run(c.name, func(t *testing.T) {
			const tokens = 600
			c.m.random = rand.New(rand.NewPCG(3, 4))
			plain, _ := c.m.run(New(Auto(), 0), &Request{}, tokens, c.sequences, c.chances)
			best := plain
			for n := 1; n <= MaxDrafts; n++ {
				s, err := Fixed(n)
				if err != nil {
					t.Fatal(err)
				}
				control := New(s, 0)
				r := control.Request()
				seconds, drafted := c.m.run(control, &r, tokens, c.sequences, c.chances)
				if drafted == 0 || !r.Active() {
					t.Errorf("%d fixed drafts: %d were made, drafting is active: %v", n, drafted, r.Active())
				}
				best = min(best, seconds)
			}
			control := New(Auto(), 0)
			r := control.Request()
			got, _ := c.m.run(control, &r, tokens, c.sequences, c.chances)
			if got > 1.15*best {
				t.Errorf("auto takes %.1f s, the best depth %.1f s, plain decoding %.1f s", got, best, plain)
			}
			if best == plain && r.Active() {
				t.Error("drafting continues although plain decoding is fastest")
			}
		})
	}
}

// A new request uses the costs and acceptance rates that earlier requests measured.
func TestRequestsShareWhatTheyLearn(t *testing.T) {
	m := machine{step: 1, stepRow: 0.02, pass: 0.05, passRow: 0.005, random: rand.New(rand.NewPCG(1, 1))}
	c := New(Auto(), 0)
	r := c.Request()
	m.run(c, &r, 300, 1, []float64{1, 1, 1, 1, 0, 0, 0})
	next := c.Request()
	if n := next.Depth(1); n != 4 {
		t.Errorf("the next request begins with %d drafts, want the four that are always right", n)
	}
	if a, b := next.Chance(1), next.Chance(5); a < 0.9 || b > 0.3 {
		t.Errorf("the chances are %v and %v", a, b)
	}
}

func TestARequestOfItsOwnDepth(t *testing.T) {
	c := New(Auto(), 0)
	r := c.Exactly(3)
	for range 100 {
		r.Judged(3, 0)
		if n := r.Depth(50); n != 3 {
			t.Fatalf("%d drafts, want exactly 3", n)
		}
	}
	r.Stop()
	r.Judged(3, 3)
	if r.Active() || r.Depth(1) != 0 || r.Chance(1) != 0 {
		t.Error("a stopped request drafts")
	}
	for _, i := range []int{-1, 0, MaxDrafts + 1} {
		fresh := c.Request()
		if p := fresh.Chance(i); p != 0 {
			t.Errorf("draft %d has the chance %v", i, p)
		}
	}
}

// Estimates stay positive and finite for any measurements.
func TestCostsStaySane(t *testing.T) {
	for _, list := range [][][2]float64{
		{{1, 5}, {2, 1}, {3, 0.1}}, {{1, 1}, {1, 1}, {1, 1}}, {{1, 1e-9}, {64, 1e-9}},
		{{1, 0}, {0, 1}, {-3, 1}, {2, 1}}, {{1, 1}, {1, 1}, {1, 1}, {1, 1e6}, {2, 1}},
	} {
		var p pass
		for _, v := range list {
			p.add(int(v[0]), v[1])
		}
		one, two := p.at(1, 1), p.at(2, 1)
		if !p.known || !(one > 0) || !(two > one) || math.IsInf(two, 0) {
			t.Errorf("measurements %v: known %v, one row takes %v, two rows %v", list, p.known, one, two)
		}
	}
	var p pass
	for i := range 200 {
		p.add(1+i%5, 2+0.5*float64(1+i%5))
	}
	if fixed, each := p.fit.Each(0), p.fit.Each(1); math.Abs(fixed-2) > 1e-6 || math.Abs(each-0.5) > 1e-6 {
		t.Errorf("times on an exact line are fitted as %v + %v per row", fixed, each)
	}
}

// A single pass during which the machine was interrupted changes the estimates little and does not change the decision.
func TestAnInterruptedPassDoesNotSkewCosts(t *testing.T) {
	c := New(Auto(), 0)
	measure := func() {
		for i := range 60 {
			rows := 1 + i%5
			c.ForwardPass(rows, 1+0.02*float64(rows))
			c.DraftPass(rows, 0.05+0.005*float64(rows), false)
		}
	}
	measure()
	r := c.Request()
	depth, forward, draft := r.Depth(1), c.forward.at(1, 1), c.draft.at(1, 1)
	for range 20 { // the host was late, so these times are only upper bounds
		c.DraftPass(3, 0.5, true)
	}
	if got := c.draft.at(1, 1); got != draft {
		t.Errorf("a draft pass is estimated at %v, before the host was late at %v", got, draft)
	}
	if depth < 2 {
		t.Fatalf("%d drafts, want several with these costs", depth)
	}
	c.ForwardPass(3, 900)
	c.DraftPass(3, 900, false)
	if got := c.forward.at(1, 1); got > 1.2*forward || got < forward/1.2 {
		t.Errorf("a forward pass is estimated at %v, before the interruption at %v", got, forward)
	}
	if got := c.draft.at(1, 1); got > 1.2*draft || got < draft/1.2 {
		t.Errorf("a draft pass is estimated at %v, before the interruption at %v", got, draft)
	}
	if n := r.Depth(1); n != depth {
		t.Errorf("%d drafts after the interruption, %d before", n, depth)
	}
}

// Drafting stops after eight consecutive losses of a tenth or more; a smaller loss counts half. A decision in between
// that finds drafting faster resets the count.
func TestLossesCountInARow(t *testing.T) {
	c := New(Auto(), 0)
	for i := range 60 {
		rows := 1 + i%5
		c.ForwardPass(rows, 1+0.3*float64(rows))
		c.DraftPass(rows, 0.05+0.005*float64(rows), false)
	}
	r := c.Request()
	const full = 64 // number of sequences at which rows are nearly all of the cost
	lose := func(times int) {
		t.Helper()
		for i := range times {
			if n := r.Depth(full); n != 1 || !r.Active() {
				t.Fatalf("loss %d: %d drafts, active %v; want one to keep measuring", i+1, n, r.Active())
			}
		}
	}
	lose(7)
	if n := r.Depth(1); n < 1 || r.losses != 0 {
		t.Fatalf("with one sequence: %d drafts, %d losses; want no losses", n, r.losses)
	}
	lose(7)
	if n := r.Depth(full); n != 0 || r.Active() {
		t.Errorf("after the eighth consecutive loss: %d drafts, active %v", n, r.Active())
	}
}

// Similar requests that draft together make as many drafts as one such request would make alone; if they differ, the
// sum over all of them decides.
func TestRequestsDraftTogether(t *testing.T) {
	learned := func(stepRow float64, rights ...float64) (*Controller, []*Request) {
		c := New(Auto(), 0)
		var list []*Request
		for range rights {
			r := c.Request()
			list = append(list, &r)
		}
		for i := range 40 {
			rows := len(list) * (1 + i%4)
			c.ForwardPass(rows, 10+stepRow*float64(rows))
			c.DraftPass(rows, 1+stepRow*float64(rows)/8, false)
		}
		for k := range 60 {
			for i, r := range list {
				right := 0
				for right < 4 && float64((k*7+right*13)%20)/20 < rights[i] {
					right++
				}
				r.Judged(4, right)
			}
		}
		return c, list
	}
	if c, _ := learned(0, 0.5); c.Together([]*Request{}) != 1 {
		t.Error("Together of no request is not 1")
	}
	if c := New(Auto(), 0); c.Together([]*Request{{shared: c}}) != 1 {
		t.Error("without measurements, Together is not 1")
	}
	for _, stepRow := range []float64{0.02, 0.3, 2} {
		c, list := learned(stepRow, 0.8, 0.8, 0.8, 0.8)
		if got, want := c.Together(list), list[0].Depth(len(list)); got != want {
			t.Errorf("row time %v: %d drafts together, %d alone", stepRow, got, want)
		}
	}
	c, list := learned(0.3, 0.95, 0.95, 0.95, 0.1)
	got, good, bad := c.Together(list), list[0].Depth(4), list[3].Depth(4)
	if got > good || got < bad || good == bad {
		t.Errorf("%d drafts together; the request with correct drafts makes %d, that with wrong drafts %d", got, good,
			bad)
	}
	if fixed := c.Exactly(2); fixed.Adapts() || !list[0].Adapts() || new(Request).Adapts() {
		t.Error("requests with a fixed depth adapt, or adaptive requests do not")
	}
}
