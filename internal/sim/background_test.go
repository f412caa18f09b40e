package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"sparrow/engine"
)

// While an endless batch job of the same tenant runs, first tokens take at most 1.5 times as long as on an idle engine.
// This holds for the median and for the 95th percentile. The batch job gets the remaining time.
func TestFirstTokensBesideABatch(t *testing.T) {
	const questions = 60
	draw := func(d *rand.Rand) engine.Request {
		return engine.Request{Prompt: randomTokens(d, 200+d.IntN(800)), MaxTokens: 2, Sampling: greedySampling(1),
			IgnoreEOS: true, Tenant: "a"}
	}
	var ratios []float64
	inTime(t, 100*time.Millisecond, func(x *timed) {
		first := func(r engine.Request) time.Duration {
			begun := x.clock.Now()
			j, err := x.engine.Submit(r)
			if err != nil {
				x.Error(err)
				return 0
			}
			w := &timedJob{last: map[int]time.Time{}, ended: make(chan struct{})}
			x.jobs[j] = w
			x.clock.Wait(w.ended, 0)
			return w.first.Sub(begun)
		}
		d := rand.New(rand.NewPCG(50, 1))
		idle := make([]time.Duration, questions)
		asked := make([]engine.Request, questions)
		for i := range idle {
			asked[i] = draw(d)
			idle[i] = first(asked[i])
		}
		ended, lines := false, 0
		for c := range 32 {
			each := rand.New(rand.NewPCG(50, uint64(10+c)))
			x.clock.Go(func() {
				for !ended {
					r := engine.Request{Prompt: randomTokens(each, 50+each.IntN(2000)), MaxTokens: 1 + each.IntN(100),
						Sampling: greedySampling(1), IgnoreEOS: true, Tenant: "a", Background: true}
					first(r)
					lines++
				}
			})
		}
		x.clock.Sleep(3 * time.Second)
		before, begun := lines, x.clock.Now()
		for i := range idle {
			x.clock.Sleep(time.Duration(d.IntN(400)) * time.Millisecond)
			r := asked[i]
			r.Prompt = randomTokens(d, len(r.Prompt)) // a new prompt, so that no page is cached
			ratios = append(ratios, float64(first(r))/float64(idle[i]))
		}
		t.Logf("%d lines in %v while questions were asked", lines-before, x.clock.Now().Sub(begun))
		if lines-before < questions/4 {
			t.Errorf("the batch finished only %d lines while %d questions were asked", lines-before, questions)
		}
		ended = true
	})
	slices.Sort(ratios)
	p50, p95 := ratios[len(ratios)/2], ratios[len(ratios)*95/100]
	t.Logf("first tokens take p50 %.2f, p95 %.2f, most %.2f of the time on an idle engine", p50, p95,
		ratios[len(ratios)-1])
	if p50 > 1.5 || p95 > 1.5 {
		t.Errorf("first tokens take p50 %.2f, p95 %.2f of the time on an idle engine, want at most 1.5", p50, p95)
	}
}
