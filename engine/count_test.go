package engine

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"sparrow/internal/kv/tier"
	"sparrow/internal/step"
	"sparrow/internal/testkit/await"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/plan"
)

// Invariants of this file: counters and the arguments of passes are exact, also at the boundaries of pages and chunks.

// A prompt counts as missed if a tier could have held one of its pages but held none. A prompt whose full pages are all
// in the pool is not missed: its last token is computed in any case, so the page that ends with it is not counted.
func TestTiersCountWhatIsMissed(t *testing.T) {
	e := startTiered(t, testmodel.V32(t), tiered("", 8, 64, tier.Options{HostBytes: 1 << 28}))
	const whole = 6 * 64
	for i, c := range []struct {
		seed, cached     int
		missed, restored int64
		pages            int64
	}{
		{1, 0, 1, 0, 0},     // neither the pool nor a tier has a page of the prompt
		{1, whole, 1, 0, 0}, // the pool has all pages that can be reused
		{2, 0, 2, 0, 0},
		{1, whole, 2, 1, 5}, // five pages were evicted for the second prompt and are restored from a tier
		{1, whole, 2, 1, 5},
	} {
		r := generate(t, e, Request{Prompt: tokens(c.seed, whole+64), Sampling: greedy(), MaxTokens: 1, Trace: true})
		st := e.Stats().Tiers
		if r.Usage.CachedTokens != c.cached || st.Missed != c.missed || st.Restored != c.restored ||
			st.RestoredPages != c.pages || st.Tokens != 64*c.pages {
			t.Errorf("request %d: %d tokens cached, want %d; %+v, want %d missed, %d restored of %d pages", i,
				r.Usage.CachedTokens, c.cached, st, c.missed, c.restored, c.pages)
		}
	}
	if got, want := e.Info().Memory.Tiers, e.loop.tiers.stack.Bytes(); got != want || got < 1<<28 {
		t.Errorf("the tiers hold %d bytes, want %d", got, want)
	}
}

// draftTap calls a function of the test with the works of every draft pass.
type draftTap struct {
	runner
	look func(works []step.Draft)
}

func (d *draftTap) Draft(works []step.Draft, chained bool) (step.Result, error) {
	d.look(works)
	return d.runner.Draft(works, chained)
}

func (d *draftTap) StartDraft(works []step.Draft, chained bool) (step.Pending, error) {
	d.look(works)
	return d.runner.StartDraft(works, chained)
}

// For every row of a prompt, the drafting layer gets the token after that row. This holds for chunked and whole
// prompts, and if the draft pass is enqueued before the host has the target's tokens.
func TestDraftRowsOfPromptsHaveTheNextToken(t *testing.T) {
	alone(t, "passes of several ranks do not overlap")
	prompt := tokens(3, 150)
	for _, chunk := range []int{40, 512} {
		rows := map[int]bool{}
		look := func(works []step.Draft) {
			for _, w := range works {
				for i, token := range w.Tokens {
					at := w.Cached + 1 + i
					if w.Kind != plan.ModeExtend || at >= len(prompt) {
						continue
					}
					if rows[at-1] = true; token != prompt[at] {
						t.Errorf("chunks of %d: row %d is followed by token %d, want token %d of the prompt", chunk,
							at-1, token,
							prompt[at])
					}
				}
			}
		}
		e, run := overlapping(t, testmodel.V32Draft(t), Config{Draft: drafts(t, 2), StepTokens: chunk}, checked(t),
			func(e *Engine) { e.loop.passes.runner = &draftTap{e.loop.passes.runner, look} })
		run()
		collect(open(t, e, Request{Prompt: prompt, Sampling: greedy(), MaxTokens: 12, IgnoreEOS: true}))
		e.Close(t.Context())
		if st := e.Stats(); len(rows) != len(prompt)-1 || st.DraftsAhead == 0 {
			t.Errorf("chunks of %d: %d rows of %d were followed by a token; %d draft passes were enqueued ahead", chunk,
				len(rows),
				len(prompt), st.DraftsAhead)
		}
	}
}

// The draft pass over a chunk of a prompt, after which no token is sampled, is enqueued after its forward pass as well.
func TestDraftsOfChunksAreEnqueuedAhead(t *testing.T) {
	alone(t, "passes of several ranks do not overlap")
	for name, dir := range map[string]string{"chains": testmodel.V32Draft(t), "blocks": testmodel.V4Spark(t)} {
		e, _ := overlapping(t, dir, Config{Draft: drafts(t, 2), StepTokens: 40})
		open(t, e, Request{Prompt: tokens(3, 150), Sampling: greedy(), MaxTokens: 1, IgnoreEOS: true})
		for range 3 {
			e.iterations(1)
			if st := e.Stats(); name == "chains" && st.DraftsAhead != st.Steps || st.OutputTokens != 0 ||
				name == "blocks" && st.DraftsAhead != 0 { // a block follows the last row alone
				t.Errorf("%s: %d draft passes ahead in %d steps", name, st.DraftsAhead, st.Steps)
			}
		}
	}
}

// The counters of conversions, slices and rows by kind agree with the plans that ran.
func TestStatsCountWhatPlansSay(t *testing.T) {
	e := start(t, testmodel.V32(t), Config{PlanHistory: 1024,
		Policy: plan.Policy{KV: "fp8-576", Prefill: "sparse-block", Decode: "sparse-raw"}})
	for i := range 3 {
		generate(t, e, Request{Prompt: tokens(i, 300), Sampling: greedy(), MaxTokens: 3, IgnoreEOS: true})
	}
	e.Close(t.Context())
	var conversions, slices, rows, steps int64
	for _, r := range e.Plans() {
		steps++
		for _, s := range r.Plan.Segments {
			if s.Convert != plan.ConvertNone {
				conversions++
			}
			slices += int64(len(s.Launches) - 1)
			rows += int64(s.Rows)
		}
	}
	st := e.Stats()
	for _, p := range st.Plans {
		rows -= p.Rows
	}
	if st.Steps != steps || st.Conversions != conversions || st.Slices != slices || rows != 0 || conversions == 0 {
		t.Errorf("%d steps, %d conversions and %d slices were counted, %d, %d and %d planned; %d rows are missing",
			st.Steps,
			st.Conversions, st.Slices, steps, conversions, slices, rows)
	}
	if st.OutputTokens != 9 || st.PromptTokens != 900 || st.Finished != 3 || st.Requests != 3 {
		t.Errorf("%d output tokens, %d prompt tokens, %d of %d requests finished", st.OutputTokens, st.PromptTokens,
			st.Finished, st.Requests)
	}
}

// Every launch of a segment after the first counts as a slice.
func TestSlicesAreExtraLaunches(t *testing.T) {
	e, _ := prepared(t, testmodel.V32(t), Config{PlanHistory: -1})
	p := &plan.Plan{Segments: []plan.Segment{{Launches: make([]plan.Launch, 3)},
		{Launches: make([]plan.Launch, 1), Convert: plan.ConvertGatherBF16}}}
	e.loop.record(&batch{passes: e.loop.passes, behind: stageFormed}, p, 0)
	if st := e.Stats(); st.Slices != 2 || st.Conversions != 1 || st.Steps != 1 || st.Overlapped != 0 {
		t.Errorf("%d slices, %d conversions in %d steps, %d overlapped", st.Slices, st.Conversions, st.Steps,
			st.Overlapped)
	}
}

// The reported shares of the most often chosen experts equal the shares in the table.
func TestSharesOfExperts(t *testing.T) {
	alone(t, "every rank counts its own experts")
	u := expertCounts(t, testmodel.V32Draft(t))
	e := start(t, testmodel.V32Draft(t), Config{Usage: u})
	generate(t, e, Request{Prompt: tokens(1, 90), Sampling: greedy(), MaxTokens: 9, IgnoreEOS: true})
	e.Close(t.Context())
	n, all := e.Stats().Experts, e.Usage()
	if n.Choices != all.Total() || n.Tenth != all.MeanTop(0.1) || n.Quarter != all.MeanTop(0.25) ||
		n.Half != all.MeanTop(0.5) || n.Choices == 0 {
		t.Errorf("%+v of %v choices: %v, %v, %v", n, all.Total(), all.MeanTop(0.1), all.MeanTop(0.25), all.MeanTop(0.5))
	}
}

// Each token of a prompt is scored once, even if the sequence is preempted later and its prompt is computed again.
func TestPreemptedPromptsAreScoredOnce(t *testing.T) {
	for _, reuse := range []bool{true, false} {
		e, run := prepared(t, testmodel.V32(t), Config{CacheTokens: 64 * 6, NoReuse: !reuse}, checked(t))
		var jobs []*Job
		for i := range 8 {
			jobs = append(jobs, open(t, e, Request{Prompt: tokens(i, 60), Sampling: greedy(), MaxTokens: 100,
				IgnoreEOS: true, Score: &Score{}}))
		}
		run()
		for i, j := range jobs {
			if got := scoresOf(t, j)[0]; len(got) != 60 {
				t.Errorf("reuse %v: request %d has %d scores, want 60", reuse, i, len(got))
			}
		}
		e.Close(t.Context())
		if st := e.Stats(); st.ScoredTokens != 8*60 || st.Preempted == 0 {
			t.Errorf("reuse %v: %d tokens scored, %d sequences preempted", reuse, st.ScoredTokens, st.Preempted)
		}
	}
}

// noting is a clock that sends to waits when the loop starts to wait.
type noting struct {
	machine
	waits chan struct{}
}

func (c noting) Wait(wake <-chan struct{}, limit time.Duration) bool {
	if limit == 0 { // the caller is the loop; other callers wait with a limit
		select {
		case c.waits <- struct{}{}:
		default:
		}
	}
	return c.machine.Wait(wake, limit)
}

// If an engine has no work, its loop waits and runs no iteration.
func TestAnIdleEngineWaits(t *testing.T) {
	c := noting{waits: make(chan struct{}, 1)}
	e := start(t, testmodel.V32(t), Config{Clock: c})
	for range 2 {
		await.Value(t, "the loop starts to wait", c.waits)
		generate(t, e, Request{Prompt: tokens(1, 9), Sampling: greedy(), MaxTokens: 2, IgnoreEOS: true})
	}
}

// lostDrafts makes every draft pass fail with the error of a lost device.
type lostDrafts struct{ runner }

func (lostDrafts) Draft([]step.Draft, bool) (step.Result, error) {
	return step.Result{}, fmt.Errorf("a draft pass: %w", kernel.ErrLost)
}

// If the device is lost in a draft pass, all requests end; after other failures of a draft pass, only the drafts are
// lost.
func TestADeviceThatIsLostWhileDrafting(t *testing.T) {
	e := start(t, testmodel.V32Draft(t), Config{Draft: drafts(t, 2)},
		func(e *Engine) { e.loop.passes.runner = lostDrafts{e.loop.passes.runner} })
	_, last := collect(open(t, e, Request{Prompt: tokens(1, 30), Sampling: greedy(), MaxTokens: 20, IgnoreEOS: true}))
	if !errors.Is(last.Err, kernel.ErrLost) || e.Stats().Device == "" {
		t.Errorf("the request ended with error %v, Stats.Device is %q", last.Err, e.Stats().Device)
	}
}

// Every counter of captured graphs equals the counter of the runner, except the bytes, which are summed over all ranks.
// The first failed capture is logged once.
func TestGraphsAreCounted(t *testing.T) {
	var c tally
	g := step.Graphs{Captured: 2, Replayed: 3, Evicted: 5, Held: 6, Bytes: 7}
	if c.noteGraphs(g, 1) {
		t.Error("a failure is reported although no capture failed")
	}
	g.Failed = 4
	if want := (GraphCount{Captured: 2, Replayed: 3, Failed: 4, Evicted: 5, Held: 6, Bytes: 14}); !c.noteGraphs(g, 2) ||
		c.stats.Graphs != want {
		t.Errorf("counters %+v, want %+v and a reported failure", c.stats.Graphs, want)
	}
	if c.noteGraphs(g, 2) {
		t.Error("the same failure is reported twice")
	}
}

// The longest context is the smaller of the cache and the model's positions.
func TestTheLongestContext(t *testing.T) {
	e := still(t, tinyGLM, Config{CacheTokens: 256})
	positions := e.model.Config().MaxPositions
	for _, c := range []struct{ asked, cached, want int }{
		{0, 256, 256}, {255, 256, 255}, {256, 256, 256}, {257, 256, 0},
		{0, 2 * positions, positions}, {positions, 2 * positions, positions}, {positions + 1, 2 * positions, 0},
	} {
		s := *e.setup
		s.cfg.ContextTokens = c.asked
		if got, err := contextOf(&s, c.cached); got != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
}
