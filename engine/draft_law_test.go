package engine

import (
	"math"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"sparrow/internal/spec"
	"sparrow/internal/step"
	"sparrow/internal/testmodel"
	"sparrow/sample"
)

// Sampled answers follow the target's distribution whatever is drafted: over many seeds, the frequencies of the first
// three tokens match the model's probabilities after all filters. In many runs the third token is sampled from a row
// whose draft was accepted.
func TestSampledDraftsFollowTheTarget(t *testing.T) {
	if raceEnabled {
		t.Skip("the test computes statistics; other tests of drafts run the same goroutines")
	}
	seeds := 1500
	if *everything {
		seeds = 6000
	}
	dir := testmodel.EightTokens(t)
	prompt := []int32{2, 3, 4, 5, 6, 7, 2, 4}
	params := seeded(0)
	params.Temperature, params.TopP, params.LogitBias = 0.9, 0.95, map[int32]float64{5: 0.5}
	law := lawOf(t, dir, prompt, params)
	e := start(t, dir, Config{Draft: drafts(t, 3), StepTokens: 256, CacheTokens: 64 * 80, MaxQueue: seeds}, checked(t),
		func(e *Engine) {
			// This drafter is often right, and its errors depend on the position.
			e.loop.passes.runner = &guesser{runner: e.loop.passes.runner, rewrite: func(w *step.Draft, row []float32) {
				for i := range row {
					row[i] = float32((i*5+w.Cached*3)%8) / 3
				}
			}}
		})
	counts := map[[3]int32]int{}
	var mu sync.Mutex
	var wait sync.WaitGroup
	for w := range 8 {
		wait.Go(func() {
			for seed := w; seed < seeds; seed += 8 {
				p := params
				p.Seed = int64(seed)
				out := generate(t, e, Request{Prompt: prompt, Sampling: p, MaxTokens: 3, IgnoreEOS: true})
				mu.Lock()
				counts[[3]int32(out.Choices[0].Tokens)]++
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	checkLaw(t, law, counts, seeds)
	guessed(t, e)
	if st := e.Stats(); float64(st.Accepted) < 0.05*float64(st.Drafted) {
		t.Errorf("only %d of %d drafts were accepted", st.Accepted, st.Drafted)
	}
}

// checkLaw compares the frequencies of tokens over the given number of runs with their probabilities, by a chi-square
// test.
func checkLaw(t *testing.T, law map[[3]int32]float64, counts map[[3]int32]int, seeds int) {
	t.Helper()
	// Outcomes with an expected count below eight are merged into one cell.
	var chi, restWant, restGot float64
	cells := -1
	for key, p := range law {
		want, got := p*float64(seeds), float64(counts[key])
		if want < 8 {
			restWant, restGot = restWant+want, restGot+got
			continue
		}
		chi += (got - want) * (got - want) / want
		cells++
	}
	if restWant > 0 {
		chi += (restGot - restWant) * (restGot - restWant) / restWant
		cells++
	}
	for key, n := range counts {
		if law[key] == 0 {
			t.Errorf("tokens %v occurred %d times although their probability is 0", key, n)
		}
	}
	// Chi-square is approximately normal with mean cells and variance 2*cells. A value four standard deviations above
	// the mean occurs once in thirty thousand runs; the seeds are fixed, so that this run is always the same.
	if limit := float64(cells) + 4*math.Sqrt(2*float64(cells)); chi > limit || cells < 20 {
		t.Errorf("chi-square %.1f over %d cells, at most %.1f expected", chi, cells, limit)
	}
}

// lawOf returns the probability of every sequence of three tokens after a prompt, computed by plain decoding.
func lawOf(t *testing.T, dir string, prompt []int32, params sample.Params) map[[3]int32]float64 {
	t.Helper()
	var row []float32
	e := start(t, dir, Config{Draft: spec.Off()}, func(e *Engine) {
		e.loop.passes.runner = &tap{runner: e.loop.passes.runner,
			after: func(_ []step.Work, res step.Result) { row = slices.Clone(res.Row(0)) }}
	})
	scratch, err := sample.NewScratch(8)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sample.New(params, 0, scratch)
	if err != nil {
		t.Fatal(err)
	}
	after := func(tokens ...int32) []float32 {
		generate(t, e, Request{Prompt: append(slices.Clone(prompt), tokens...), Sampling: greedy(), MaxTokens: 1,
			IgnoreEOS: true})
		p := make([]float32, 8)
		if err := s.Probabilities(p, row, nil); err != nil {
			t.Fatal(err)
		}
		return p
	}
	law := map[[3]int32]float64{}
	for a, pa := range after() {
		if pa == 0 {
			continue
		}
		for b, pb := range after(int32(a)) {
			if pb == 0 {
				continue
			}
			for c, pc := range after(int32(a), int32(b)) {
				if pc > 0 {
					law[[3]int32{int32(a), int32(b), int32(c)}] = float64(pa) * float64(pb) * float64(pc)
				}
			}
		}
	}
	total := 0.0
	for _, p := range law {
		total += p
	}
	if math.Abs(total-1) > 1e-4 {
		t.Fatalf("the probabilities of %s sum to %v, want 1", filepath.Base(dir), total)
	}
	return law
}
