package engine

import (
	"fmt"
	"slices"
	"testing"

	"sparrow/internal/spec"
	"sparrow/internal/step"
	"sparrow/internal/testmodel"
	"sparrow/plan"
	"sparrow/sample"
)

// Invariants of this file: tokens sampled on the device equal those sampled on the host. Drafts made before the host
// has the target's tokens equal those made afterwards, even if requests end, fail, or are cancelled or preempted in
// between.

// drawing returns the requests: most get sampling parameters that the device supports, with every filter, and if host
// is set, some get parameters that need the host.
func drawing(list []Request, host bool) []Request {
	for i := range list {
		p := sample.Default()
		p.Seed, p.N, p.StopTokenIDs = int64(i), list[i].Sampling.N, list[i].Sampling.StopTokenIDs
		switch i % 6 {
		case 0:
			continue // this request stays greedy
		case 1:
			p.Temperature = 0.6
		case 2:
			p.TopK = 5
		case 3:
			p.TopP = 0.7
		case 4:
			p.TopK, p.TopP, p.MinP, p.Temperature = 30, 0.95, 0.02, 1.3
		}
		if host && i%12 == 5 {
			p.FrequencyPenalty = 0.5
		}
		list[i].Sampling = p
	}
	return list
}

// sampling returns a configuration with few pages.
func sampling(pages int) Config {
	return Config{Policy: deterministic(""), CacheTokens: 64 * pages}
}

func TestTokensDrawnOnTheDevice(t *testing.T) {
	alone(t, "passes of several ranks do not overlap")
	dir := testmodel.V32(t)
	for _, c := range []struct {
		name     string
		requests int
		pages    int
		host     bool
	}{{"few pages", 18, 9, false}, {"some are sampled by the host", 12, 40, true}} {
		t.Run(c.name, func(t *testing.T) {
			if raceEnabled && c.host {
				t.Skip("the case with few pages covers the same races")
			}
			list := drawing(plain(c.requests, []int32{5, 77, 310}), c.host)
			want := lone(t, dir, Config{Policy: deterministic("")}, list)
			cfg := sampling(c.pages)
			cfg.StepTokens = 96
			e, run := overlapping(t, dir, cfg, checked(t))
			compare(t, list, jointly(t, e, list, run), want)
			st := e.Stats()
			few := c.pages < 16 && standIn == nil // on another device, answers may be too short to use up the pages
			if st.Overlapped == 0 || !c.host && 2*st.Overlapped < st.Steps || few && st.Preempted == 0 {
				t.Errorf("%d of %d passes overlapped, %d preemptions", st.Overlapped, st.Steps, st.Preempted)
			}
		})
	}
}

func TestDrawnTokensAndCancellations(t *testing.T) {
	testCancellations(t, drawing(plain(16, nil), false), sampling(10))
}

func TestDraftsAheadAreThoseOfTheHost(t *testing.T) {
	alone(t, "passes of several ranks do not overlap")
	type setup struct {
		checkpoint, kv      string
		drafts, step, pages int
		host                bool
	}
	list := []setup{{testmodel.V32Draft(t), "fp8-656", 1, 96, 64, false},
		{testmodel.V32Draft(t), "bf16", 3, 64, 10, true}, {testmodel.GLMDraft(t), "bf16", 2, 33, 64, false}}
	if raceEnabled {
		list = list[1:2]
	}
	for _, c := range list {
		t.Run(fmt.Sprintf("%s %d drafts", c.kv, c.drafts), func(t *testing.T) {
			requests := drawing(crowd(10), c.host)
			cfg := Config{Policy: deterministic(c.kv), Draft: spec.Off()}
			want := lone(t, c.checkpoint, cfg, requests)
			cfg.Draft, cfg.StepTokens, cfg.CacheTokens = drafts(t, c.drafts), c.step, 64*c.pages
			e, run := overlapping(t, c.checkpoint, cfg, checked(t), oracle(want, requests))
			compare(t, requests, jointly(t, e, mixedDrafts(requests, c.drafts), run), want)
			guessed(t, e)
			if st := e.Stats(); st.DraftsAhead == 0 || c.pages < 16 && standIn == nil && st.Preempted == 0 {
				t.Errorf("%d draft passes enqueued ahead, %d preemptions", st.DraftsAhead, st.Preempted)
			}
		})
	}
}

// The drafting layer makes the same drafts whether the target's tokens are sampled on the device or on the host.
func TestTheDraftingLayerAheadDraftsTheSame(t *testing.T) {
	alone(t, "passes of several ranks do not overlap")
	notUnderRace(t)
	requests := drawing(crowd(6), false)
	for i := range requests {
		requests[i].Sampling.N = 1
	}
	cfg := Config{Policy: deterministic("bf16"), Draft: drafts(t, 2), NoReuse: true, MaxRunning: 1}
	run := func(on bool) ([]*response, Stats) {
		cfg.NoOverlap = !on
		e, begin := overlapping(t, testmodel.V32Draft(t), cfg)
		return jointly(t, e, requests, begin), e.Stats()
	}
	want, plain := run(false)
	got, ahead := run(true)
	compare(t, requests, got, want)
	if ahead.Drafts != plain.Drafts || ahead.DraftsAhead == 0 || plain.DraftsAhead > 0 || plain.Drafted == 0 {
		t.Errorf("drafts %v, %d draft passes enqueued ahead; want drafts %v", ahead.Drafts, ahead.DraftsAhead,
			plain.Drafts)
	}
}

// Sampling on the device changes no draft if the drafting layer waits for the accepted tokens, as with a model that has
// states.
func TestTheDraftingLayerAfterwardsDraftsTheSame(t *testing.T) {
	alone(t, "passes of several ranks do not overlap")
	notUnderRace(t)
	requests := drawing(crowd(5), false)[1:] // requests that sample
	for i := range requests {
		requests[i].Sampling.N, requests[i].MaxTokens = 1, 8
	}
	run := func(on bool) (list [][]int32, st Stats) {
		cfg := Config{Policy: deterministic(""), Draft: drafts(t, 2), NoReuse: true, MaxRunning: 1, NoOverlap: !on}
		e, begin := overlapping(t, testmodel.V4Draft(t), cfg, before(func(works []step.Work) error {
			for i := range works {
				if works[i].Kind == plan.ModeVerify {
					list = append(list, slices.Clone(works[i].Tokens))
				}
			}
			return nil
		}))
		jointly(t, e, requests, begin)
		return list, e.Stats()
	}
	want, _ := run(false)
	got, st := run(true)
	if len(want) == 0 || !slices.EqualFunc(got, want, slices.Equal) || st.DraftsAhead > 0 {
		t.Errorf("verified drafts %v, %d draft passes enqueued ahead; want drafts %v", got, st.DraftsAhead, want)
	}
}

// With one draft, the next batch is enqueued while the draft pass runs, and the answers do not change. The vocabulary
// has eight tokens, so that the random drafting layer sometimes guesses the target's token.
func TestDraftsThatTheHostHasNotSeen(t *testing.T) {
	alone(t, "passes of several ranks do not overlap")
	requests := drawing(plain(18, []int32{3}), false)
	for i := range requests {
		r := &requests[i]
		for j := range r.Prompt {
			r.Prompt[j] %= 8
		}
		r.MaxTokens, r.IgnoreEOS = 20+i, true
	}
	cfg := Config{Policy: deterministic("bf16"), Draft: spec.Off()}
	want := lone(t, testmodel.EightTokens(t), cfg, requests)
	cfg.Draft, cfg.StepTokens, cfg.CacheTokens = drafts(t, 1), 96, 10*64
	e, run := overlapping(t, testmodel.EightTokens(t), cfg, checked(t))
	compare(t, requests, jointly(t, e, requests, run), want)
	guessed(t, e)
	if st := e.Stats(); 2*st.Overlapped < st.Steps || standIn == nil && st.Preempted == 0 {
		t.Errorf("%d of %d passes overlapped, %d preemptions", st.Overlapped, st.Steps, st.Preempted)
	}
	// In this run a draft pass fails after the next batch was enqueued after it.
	e, run = overlapping(t, testmodel.EightTokens(t), cfg, checked(t),
		func(e *Engine) { e.loop.passes.runner = &failsLate{runner: e.loop.passes.runner, pass: plan.PassPick} })
	compare(t, requests, jointly(t, e, requests, run), want)
	if st := e.Stats(); st.DraftsFailed == 0 || st.Failed > 0 || st.Isolated > 0 {
		t.Errorf("%d sequences stopped drafting, %d requests failed, %d batches were isolated", st.DraftsFailed,
			st.Failed, st.Isolated)
	}
}

// Answers do not change if a draft pass fails when it is enqueued ahead, if it fails in Wait, or if the forward pass
// before it fails.
func TestFaultsOfDraftsAhead(t *testing.T) {
	alone(t, "passes of several ranks do not overlap")
	requests := drawing(crowd(6), false)
	dir := testmodel.V32Draft(t)
	want := lone(t, dir, Config{Policy: deterministic(""), Draft: spec.Off()}, requests)
	for _, c := range []struct {
		name string
		tap  func(r runner) runner
	}{
		{"enqueued", func(r runner) runner {
			return &faultyDrafts{runner: r, fault: func(pass int) error {
				if pass == 6 {
					panic(errFault)
				}
				return nil
			}}
		}},
		{"waited for", func(r runner) runner { return &failsLate{runner: r, pass: plan.PassPick} }},
		{"its forward pass", func(r runner) runner { return &failsLate{runner: r, pass: plan.PassTarget} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := sampling(64)
			cfg.Draft = drafts(t, 2)
			e, run := overlapping(t, dir, cfg, checked(t), oracle(want, requests),
				func(e *Engine) { e.loop.passes.runner = c.tap(e.loop.passes.runner) })
			compare(t, requests, jointly(t, e, requests, run), want)
			st := e.Stats()
			if st.DraftsAhead == 0 || st.Failed > 0 || st.DraftsFailed == 0 && st.Isolated == 0 {
				t.Errorf("%d draft passes enqueued ahead, %d requests failed, %d sequences stopped drafting, %d "+
					"batches isolated",
					st.DraftsAhead, st.Failed, st.DraftsFailed, st.Isolated)
			}
		})
	}
}

// failsLate makes the ninth pass of a kind, with several requests, fail in Wait.
type failsLate struct {
	runner
	pass plan.Pass
	seen int
}

func (f *failsLate) Wait(p step.Pending) (step.Result, error) {
	res, err := f.runner.Wait(p)
	if err == nil && p.Plan() != nil && p.Plan().Pass == f.pass && p.Plan().Requests > 1 {
		if f.seen++; f.seen == 9 {
			return step.Result{}, errFault
		}
	}
	return res, err
}

// Requests with adaptive drafting make the same number of drafts in a batch, although all drafts of every second
// request are wrong.
func TestRequestsOfABatchAgreeOnDrafts(t *testing.T) {
	alone(t, "passes of several ranks do not overlap")
	requests := plain(6, nil)
	for i := range requests {
		requests[i].MaxTokens, requests[i].IgnoreEOS, requests[i].Sampling.N = 40, true, 1
	}
	cfg := Config{Policy: deterministic("bf16"), Draft: spec.Off()}
	dir := testmodel.V32Draft(t)
	want := lone(t, dir, cfg, requests)
	known := map[string]int{}
	for i := range requests {
		known[requests[i].ID] = i
	}
	cfg.Draft = spec.Auto()
	var seen *depths
	e, run := overlapping(t, dir, cfg, func(e *Engine) {
		guesses := &guesser{runner: e.loop.passes.runner, rewrite: func(w *step.Draft, row []float32) {
			c := e.at(w.Pages)
			if c == nil {
				return
			}
			i, at := known[c.job.request.ID], c.output()+len(c.seq.Drafts)
			if answer := want[i].Choices[0].Tokens; at < len(answer) {
				clear(row)
				row[(int(answer[at])+i%2)%len(row)] = 50
			}
		}}
		seen = &depths{runner: guesses, e: e, of: map[int]int{}}
		e.loop.passes.runner = seen
		for i := range 200 { // with these costs the best number of drafts depends on how many drafts are accepted
			rows := 6 * (1 + i%4)
			e.loop.drafter.control.ForwardPass(rows, 1000+20*float64(rows))
			e.loop.drafter.control.DraftPass(rows, 50+5*float64(rows), false)
		}
	})
	compare(t, requests, jointly(t, e, requests, run), want)
	if seen.mixed > 0 || len(seen.of) < 2 {
		t.Errorf("%d batches verify unequal numbers of drafts; sequences by number of tokens: %v, want several numbers",
			seen.mixed, seen.of)
	}
}

// depths counts batches whose sequences verify different numbers of drafts although no sequence is near its end.
type depths struct {
	runner
	e     *Engine
	mixed int
	of    map[int]int // number of verified sequences, by number of tokens
}

func (d *depths) Begin(works []step.Work) (step.Started, error) {
	first, unequal := 0, false
	for i := range works {
		w := &works[i]
		if c := d.e.at(w.Pages); w.Kind != plan.ModeVerify || c.maxTokens-c.limits.made <= spec.MaxDrafts+1 {
			continue
		}
		d.of[len(w.Tokens)]++
		unequal = unequal || first > 0 && first != len(w.Tokens)
		first = len(w.Tokens)
	}
	if unequal {
		d.mixed++
	}
	return d.runner.Begin(works)
}
