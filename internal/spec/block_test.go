package spec

import (
	"math/rand/v2"
	"testing"
)

// timed records the times of passes: a forward pass takes fixed+row*rows seconds, a draft pass of a block takes a tenth
// of that.
func timed(c *Controller, fixed, row float64) {
	for n := 1; n <= 6; n++ {
		for range 20 {
			c.ForwardPass(n, fixed+row*float64(n))
			c.DraftPass(5, (fixed+5*row)/10, false)
		}
	}
}

// If the confidence of a drafter separates accepted drafts from rejected drafts, blocks are cut at the first draft with
// low confidence. Otherwise blocks are not cut, and decoding is as fast as without confidences.
func TestBlocksAreCutByConfidenceThatIsRight(t *testing.T) {
	for _, c := range []struct {
		name  string
		tells bool
	}{{"tells", true}, {"says nothing", false}} {
		t.Run(c.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			control := New(Auto(), 5)
			timed(control, 1, 0.5)
			r := control.Request()
			var verified, right, cutRight, blocks int
			for range 3000 {
				p := Proposal{Request: &r, Drafts: 5}
				good := 5 // number of drafts that would be accepted
				if random.IntN(2) == 0 {
					good = random.IntN(2)
				}
				for i := range p.Confidence {
					sure := i < good
					if !c.tells {
						sure = random.IntN(2) == 0
					}
					p.Confidence[i] = -2 + random.Float32()
					if sure {
						p.Confidence[i] = 2 + random.Float32()
					}
				}
				list := []Proposal{p}
				control.Cut(list, false)
				n := list[0].Drafts
				accepted := min(n, good)
				r.Judged(n, accepted)
				if blocks++; blocks > 1000 {
					verified, right, cutRight = verified+n, right+accepted, cutRight+good-accepted
				}
			}
			share := float64(right) / float64(verified)
			t.Logf("slope %.2f: %d drafts verified, %.2f of them accepted, %d correct drafts not verified",
				control.trust.slope, verified, share, cutRight)
			if c.tells && (share < 0.85 || control.trust.slope < 0.3) || !c.tells && control.trust.slope > 0.15 {
				t.Errorf("slope %.2f, a share of %.2f of the verified drafts was accepted", control.trust.slope, share)
			}
		})
	}
}

// The device does not wait for the confidences of a drafter while their quality is unknown, if they predict nothing, or
// if waiting costs more time than better numbers of drafts save.
func TestBlindWhereConfidenceIsNotWorthTheWait(t *testing.T) {
	const step = 1 + 6*0.5 // seconds of a step that verifies all drafts
	for _, c := range []struct {
		name  string
		tells bool
		wait  float64 // seconds that the device waits
		blind bool
	}{
		{"confidence predicts, waiting is cheap", true, 0.01 * step, false},
		{"confidence predicts, waiting is expensive", true, 0.9 * step, true},
		{"says nothing", false, 0.01 * step, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(3, 4))
			control := New(Auto(), 5)
			timed(control, 1, 0.5)
			if !control.Blind() {
				t.Error("the device waits for confidence of unknown quality")
			}
			r, waits := control.Request(), 0
			for range 3000 {
				p := Proposal{Request: &r, Drafts: 5}
				good := random.IntN(2) * 5 // number of drafts that would be accepted
				for i := range p.Confidence {
					if p.Confidence[i] = -2 + random.Float32(); c.tells && good > 0 {
						p.Confidence[i] = 2 + random.Float32()
					}
				}
				n := 5
				if list := []Proposal{p}; control.Blind() {
					control.Seen(list)
				} else {
					control.Cut(list, true)
					n = list[0].Drafts
					if waits++; waits <= 2 {
						control.Waited(5 * step) // a batch of a new shape took long to enqueue
					} else {
						control.Waited(c.wait)
					}
				}
				r.Judged(n, min(n, good))
			}
			if control.Blind() != c.blind {
				t.Errorf("Blind returned %v; confidence saves %.3f s of a step, waiting takes %.3f s", control.Blind(),
					control.worth, control.wait)
			}
		})
	}
}

// A fixed number of drafts is not cut; blocks of one batch get the same length.
func TestCutKeepsWhatWasAskedFor(t *testing.T) {
	s, err := Fixed(4)
	if err != nil {
		t.Fatal(err)
	}
	control := New(s, 5)
	timed(control, 1, 5)
	r := control.Request()
	list := []Proposal{{Request: &r, Drafts: 4, Confidence: [MaxDrafts]float32{-9, -9, -9, -9}}}
	if control.Cut(list, false); list[0].Drafts != 4 {
		t.Errorf("%d drafts remain, want the 4 requested drafts", list[0].Drafts)
	}
	control = New(Auto(), 5)
	timed(control, 1, 0.01)
	a, b := control.Request(), control.Request()
	for range 50 {
		a.Judged(5, 5)
		b.Judged(5, 5)
	}
	list = []Proposal{{Request: &a, Drafts: 5}, {Request: &b, Drafts: 3}}
	if control.Cut(list, true); list[0].Drafts != 5 || list[1].Drafts != 3 {
		t.Errorf("%d and %d drafts; want all drafts verified if rows cost little", list[0].Drafts, list[1].Drafts)
	}
	control = New(Auto(), 5)
	timed(control, 0.001, 5)
	a, b = control.Request(), control.Request()
	for range 50 {
		a.Judged(5, 0)
		b.Judged(3, 0)
	}
	list = []Proposal{{Request: &a, Drafts: 5}, {Request: &b, Drafts: 3}}
	if control.Cut(list, true); list[0].Drafts != 0 || list[1].Drafts != 0 {
		t.Errorf("%d and %d drafts; want the fewest drafts verified if rows cost much and all drafts are wrong",
			list[0].Drafts, list[1].Drafts)
	}
}

// After long plain decoding there is no recent measurement of passes with several rows. Blocks that then seem to cost
// more than they save are measured again, and continue if they save time.
func TestBlocksAreMeasuredAgain(t *testing.T) {
	control := New(Auto(), 5)
	seconds := func(rows int) float64 { return 1 + 0.1*float64(rows) }
	control.DraftPass(5, 0.2, false)
	for range 30 {
		control.ForwardPass(1, 1)
		control.ForwardPass(6, 9) // other work on the machine slowed this pass down
	}
	for range 400 {
		control.ForwardPass(1, seconds(1))
	}
	r := control.Request()
	longest := 0
	for range 200 {
		if r.Depth(1) == 0 {
			t.Fatal("drafting has ended although it saves time")
		}
		list := []Proposal{{Request: &r, Drafts: 5}}
		control.Cut(list, false)
		n := list[0].Drafts
		control.DraftPass(5, 0.2, false)
		control.ForwardPass(1+n, seconds(1+n))
		r.Judged(n, min(n, 4))
		longest = max(longest, n)
	}
	if longest < 4 {
		t.Errorf("at most %d drafts of a block were verified; want more, because 4 of 5 drafts are right and rows "+
			"cost little", longest)
	}
}

// Blocks that save no time add little time. On a machine whose draft pass takes two steps, drafts that are accepted
// half the time are stopped after a few drafts, and sooner for later requests. Drafts that save time continue.
func TestBlocksThatDoNotPayAreGivenUp(t *testing.T) {
	const tokens = 384
	for _, c := range []struct {
		name       string
		draft, row float64 // time of a draft pass and of each additional row, relative to a step of one row
		right      float64
		least      float64 // smallest allowed ratio of plain decoding time to drafted time of a request
	}{
		{"a draft pass of two steps", 2, 0.28, 0.5, 0.97},
		{"a draft pass of a step", 1, 0.1, 0.5, 0.97},
		{"rows that cost much", 0.5, 0.5, 0.5, 0.97},
		{"drafts that are never right", 0.3, 0.1, 0.02, 0.97},
		{"drafts that pay", 0.6, 0.1, 0.957, 1.7},
	} {
		t.Run(c.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(7, 8))
			noise := func() float64 { return 1 + 0.2*random.Float64() }
			control := New(Auto(), 5)
			for range 30 { // these requests run before the measured requests
				control.ForwardPass(1, noise())
			}
			for request := range 4 {
				r := control.Request()
				plain, took := 0.0, 0.0
				for made, n := 0, 0; made < tokens; {
					step := (1 + c.row*float64(n)) * noise()
					control.ForwardPass(1+n, step)
					took += step
					right := 0
					for right < n && random.Float64() < c.right {
						right++
					}
					if n > 0 {
						r.Judged(n, right)
					}
					for range 1 + right {
						plain += noise()
					}
					made += 1 + right
					if n = r.Depth(1); n > 0 {
						pass := c.draft * noise()
						control.DraftPass(5, pass, false)
						took += pass
						list := []Proposal{{Request: &r, Drafts: 5}}
						control.Cut(list, false)
						n = list[0].Drafts
					}
				}
				if got := plain / took; got < c.least {
					t.Errorf("request %d: %.3f x plain decoding, want %.2f", request, got, c.least)
				} else {
					t.Logf("request %d: %.3f x plain decoding", request, got)
				}
			}
		})
	}
}
