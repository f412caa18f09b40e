package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/sched"
	"sparrow/internal/spec"
	"sparrow/internal/step"
	"sparrow/internal/testmodel"
	"sparrow/plan"
)

// Invariants of this file: every request gets the tokens that it gets without drafts. This holds for right and wrong
// drafts of a trained, a random or a failing drafting layer, and for greedy and seeded requests. It holds in every
// cache layout, with chunks, in large batches, after preemption and with reused prefixes. Pages of rejected drafts are
// released at once.

// oracle returns a hook that replaces the guesses of the drafting layer by the tokens of the known answers, and every
// fifth guess, by position, by another token. A random layer is hardly ever right; the known answers produce every
// pattern of right and wrong drafts.
func oracle(answers []*response, list []Request) func(*Engine) {
	known := map[string]*response{}
	for i, r := range list {
		known[r.ID] = answers[i]
	}
	return func(e *Engine) {
		e.loop.passes.runner = &guesser{runner: e.loop.passes.runner, rewrite: func(w *step.Draft, row []float32) {
			c := e.at(w.Pages)
			if c == nil { // the choice ended while the pass ran
				return
			}
			at := w.Cached + len(w.Tokens) + 1 - len(c.job.request.Prompt)
			if w.Sampled > 0 { // the device has sampled the target's tokens by now, so the accepted row is known
				at = len(c.seq.Tokens) - len(c.job.request.Prompt)
			}
			answer := known[c.job.request.ID].Choices[c.index].Tokens
			if at >= len(answer) {
				return
			}
			token := answer[at]
			if (at*7+len(c.job.request.Prompt))%5 == 0 {
				token = (token + 1) % int32(len(row))
			}
			for i := range row {
				row[i] = -50
			}
			row[token] = 50
		}}
	}
}

// guesser rewrites the logits of the drafting layer.
type guesser struct {
	runner
	works   []step.Draft // works of the latest draft pass
	rewrite func(w *step.Draft, row []float32)
}

func (g *guesser) Draft(works []step.Draft, chained bool) (step.Result, error) {
	p, err := g.StartDraft(works, chained)
	if err != nil {
		return step.Result{}, err
	}
	return g.Wait(p)
}

func (g *guesser) StartDraft(works []step.Draft, chained bool) (step.Pending, error) {
	for i := range works {
		works[i].Best, works[i].Draws = false, nil
	}
	g.works = slices.Clone(works)
	return g.runner.StartDraft(works, chained)
}

func (g *guesser) Wait(p step.Pending) (step.Result, error) {
	res, err := g.runner.Wait(p)
	if err != nil || p.Plan() == nil || p.Plan().Pass == plan.PassTarget {
		return res, err
	}
	row := 0
	for i := range g.works {
		w := &g.works[i]
		if !w.Logits {
			continue
		}
		if p.Plan().Pass != plan.PassBlock {
			g.rewrite(w, res.Row(row))
		} else {
			for place := range p.Plan().Rows / p.Plan().Requests {
				next := *w
				if next.Cached += place; w.Sampled > 0 { // the draft follows the accepted rows, which are known by now
					next.Sampled = place + 1
				}
				at, _ := res.Drafted(row, place)
				g.rewrite(&next, res.Row(at))
			}
		}
		row++
	}
	return res, nil
}

// compare checks that the choices of got and want have equal tokens.
func compare(t *testing.T, list []Request, got, want []*response) {
	t.Helper()
	for i := range list {
		for j := range want[i].Choices {
			sameTokens(t, fmt.Sprintf("request %d choice %d", i, j), got[i].Choices[j], want[i].Choices[j])
		}
	}
}

// mixedDrafts returns a copy of the requests in which every fourth request sets its own number of drafts, from 0 to
// most; the other requests use the engine's default.
func mixedDrafts(list []Request, most int) []Request {
	list = slices.Clone(list)
	for i := 3; i < len(list); i += 4 {
		n := (i / 4) % (most + 1)
		list[i].Draft = &n
	}
	return list
}

func TestDraftedAnswersArePlainAnswers(t *testing.T) {
	type setup struct {
		checkpoint, kv string
		drafts, step   int
	}
	list := []setup{
		{testmodel.V32Draft(t), "bf16", 1, 96}, {testmodel.V32Draft(t), "fp8-656", 3, 24},
		{testmodel.V32Draft(t), "fp8-576", 7, 512}, {testmodel.V32Draft(t), "f32", 2, 96},
		{testmodel.GLMDraft(t), "fp8-656", 3, 96}, {testmodel.GLMDraft(t), "bf16", 4, 33},
		{testmodel.V3Draft(t), "bf16", 3, 96},
	}
	if raceEnabled {
		list = list[1:2]
	}
	if standIn != nil { // a GPU has no cache with float32 rows
		list = slices.DeleteFunc(list, func(s setup) bool { return s.kv == "f32" })
	}
	for _, c := range list {
		t.Run(fmt.Sprintf("%s %s %d drafts steps of %d", filepath.Base(c.checkpoint), c.kv, c.drafts, c.step),
			func(t *testing.T) {
				if c.checkpoint == testmodel.GLMDraft(t) || c.kv == "fp8-576" {
					repeats(t, "other cases cover DeepSeek-V3.2 with these rows, or with other rows")
				}
				requests := crowd(20)
				switch {
				case raceEnabled:
					requests = requests[:8]
				case !*everything && standIn == nil:
					requests = requests[:12]
				}
				cfg := Config{Policy: plan.Policy{KV: c.kv}, Draft: spec.Off()}
				want := lone(t, c.checkpoint, cfg, requests)
				cfg.Draft, cfg.StepTokens, cfg.NoReuse = drafts(t, c.drafts), c.step, true
				e, run := prepared(t, c.checkpoint, cfg, checked(t), oracle(want, requests))
				compare(t, requests, jointly(t, e, mixedDrafts(requests, c.drafts), run), want)
				guessed(t, e)
			})
	}
}

// guessed checks that right and wrong drafts occurred in a test.
func guessed(t *testing.T, e *Engine) {
	t.Helper()
	if st := e.Stats(); st.Accepted == 0 || st.Accepted == st.Drafted || st.DraftsFailed != 0 {
		t.Errorf("%d of %d drafts were accepted, %d passes failed; want some accepted, some rejected, none failed",
			st.Accepted, st.Drafted, st.DraftsFailed)
	}
}

// In deterministic mode, with preemption, recomputation and common prefixes, the logits of every committed row are
// bitwise equal to those of a run without drafts and without other requests.
func TestADraftingCrowdGetsTheLogitsOfLonePlainRuns(t *testing.T) {
	requests, pages := 48, 16
	if raceEnabled {
		requests, pages = 24, 6
	}
	list := crowd(requests)
	dir, cfg := testmodel.V32Draft(t), Config{Policy: deterministic("fp8-656"), Draft: spec.Off()}
	wantRows, gotRows := keepLogits(), keepLogits()
	want := lone(t, dir, cfg, list, wantRows.watch)
	cfg.Draft, cfg.CacheTokens, cfg.StepTokens, cfg.MaxRunning = drafts(t, 3), pages*64, 96, 24
	e, run := prepared(t, dir, cfg, gotRows.watch, oracle(want, list), checked(t))
	compare(t, list, jointly(t, e, mixedDrafts(list, 3), run), want)
	different := 0
	for k, v := range wantRows.rows {
		if gotRows.rows[k] != v {
			different++
		}
	}
	if different > 0 {
		t.Errorf("%d of %d rows of logits differ from those of a lone plain run", different, len(wantRows.rows))
	}
	crowded(t, e)
	guessed(t, e)
}

// Drafts do not change the text of the trained model. This is tested for text, JSON by a schema, tool calls, penalties
// and biases, greedy and seeded, in every layout.
func TestDraftedTextIsPlainText(t *testing.T) {
	layouts := []string{"bf16", "fp8-656", "fp8-576"}
	if raceEnabled {
		layouts = layouts[:1]
	}
	var list []Request
	for i, text := range []string{"Rolf plants 22 trees every day for 7 days. How many trees is that?", "Goodbye",
		"Return JSON with name and age. Text: Sofia is 89.",
		"What are you called?",
		"Leo starts with 40 photos. Leo throws away 13 photos. How many photos does Leo have now?"} {
		for temperature := range 2 {
			r := ask(t, text)
			r.ID, r.Sampling, r.MaxTokens = fmt.Sprint(len(list)), seeded(int64(i)), 60
			r.Sampling.Temperature = 0.8 * float64(temperature)
			switch i {
			case 2:
				r.Guide = schema(t,
					`{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name","age"]}`)
			case 3:
				r.Sampling.RepetitionPenalty, r.Sampling.FrequencyPenalty, r.Sampling.LogitBias = 1.2, 0.5,
					map[int32]float64{300: 2}
				r.MinTokens, r.Sampling.Stop = 4, []string{"row"}
			}
			list = append(list, r)
		}
	}
	for _, kv := range layouts {
		t.Run(kv, func(t *testing.T) {
			if kv != "bf16" {
				repeats(t, "these cache rows are tested with random tokens")
			}
			cfg := Config{Policy: plan.Policy{KV: kv}, Draft: spec.Off()}
			want := lone(t, "", cfg, list)
			for _, s := range []spec.Setting{spec.Auto(), drafts(t, 4)} {
				cfg.Draft = s
				e := start(t, "", cfg, checked(t))
				got := together(t, e, list)
				compare(t, list, got, want)
				for i := range list {
					if got[i].Choices[0].Text != want[i].Choices[0].Text {
						t.Errorf("%v drafts, request %d: text %q, without drafts %q", s, i, got[i].Choices[0].Text,
							want[i].Choices[0].Text)
					}
				}
				if st := e.Stats(); st.Accepted == 0 || s.IsFixed() && st.Accepted == st.Drafted ||
					st.DraftsFailed != 0 {
					t.Errorf("%v drafts: %d of %d were accepted, %d passes failed", s, st.Accepted, st.Drafted,
						st.DraftsFailed)
				}
			}
		})
	}
}

func TestCancelledDraftsLeakNothing(t *testing.T) {
	e := start(t, testmodel.V32Draft(t), Config{Draft: drafts(t, 4), CacheTokens: 6 * 64, StepTokens: 64,
		MaxRunning: 8}, checked(t))
	for i := range 40 {
		s := open(t, e, Request{Prompt: tokens(i%5, 1+i), Sampling: seeded(int64(i)), MaxTokens: 40, IgnoreEOS: true})
		for range i % 7 {
			s.Next()
		}
		s.Cancel()
		for range s.events() {
		}
	}
}

// Requests that are cancelled while their drafts are verified do not change the answers of the others.
func TestNeighboursOfCancelledDraftsAnswerAsIfAlone(t *testing.T) {
	list := crowd(6)
	dir, cfg := testmodel.V32Draft(t), Config{Draft: spec.Off()}
	want := lone(t, dir, cfg, list)
	cfg.Draft, cfg.NoReuse, cfg.CacheTokens, cfg.MaxRunning = drafts(t, 4), true, 24*64, 8
	e := start(t, dir, cfg, checked(t))
	got := jointly(t, e, list, func() {
		for i := range 16 {
			s := open(t, e, Request{Prompt: tokens(i%5, 20+3*i), Sampling: seeded(int64(i)), MaxTokens: 40,
				IgnoreEOS: true})
			for range i % 5 {
				s.Next()
			}
			s.Cancel()
			for range s.events() {
			}
		}
	})
	compare(t, list, got, want)
	if st := e.Stats(); st.Drafted == 0 || st.Aborted == 0 {
		t.Errorf("%d tokens drafted, %d requests aborted; want some of each", st.Drafted, st.Aborted)
	}
}

// faultyDrafts fails some passes of the drafting layer.
type faultyDrafts struct {
	runner
	passes int
	fault  func(pass int) error
}

func (f *faultyDrafts) Draft(works []step.Draft, chained bool) (step.Result, error) {
	f.passes++
	if err := f.fault(f.passes); err != nil {
		return step.Result{}, err
	}
	return f.runner.Draft(works, chained)
}

func (f *faultyDrafts) StartDraft(works []step.Draft, chained bool) (step.Pending, error) {
	f.passes++
	if err := f.fault(f.passes); err != nil {
		return step.Pending{}, err
	}
	return f.runner.StartDraft(works, chained)
}

func TestAFailingDrafterCostsNothingButSpeed(t *testing.T) {
	list := crowd(6)
	dir, cfg := testmodel.V32Draft(t), Config{Draft: spec.Off()}
	want := lone(t, dir, cfg, list)
	cfg.Draft, cfg.NoReuse = drafts(t, 3), true
	for _, c := range []struct {
		name  string
		fault func(pass int) error
	}{
		{"the first pass fails", func(int) error { return errFault }},
		{"a later pass panics", func(pass int) error {
			if pass == 8 {
				panic(errFault)
			}
			return nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := start(t, dir, cfg, checked(t),
				func(e *Engine) { e.loop.passes.runner = &faultyDrafts{runner: e.loop.passes.runner, fault: c.fault} })
			compare(t, list, together(t, e, list), want)
			if st := e.Stats(); st.DraftsFailed == 0 || st.Failed != 0 {
				t.Errorf("%d sequences stopped drafting, %d requests failed; want some sequences and no request",
					st.DraftsFailed,
					st.Failed)
			}
		})
	}
}

// If a batch with drafts fails, its items run again one by one, drafts included.
func TestDraftsOfBatchesThatRunOneByOne(t *testing.T) {
	list := crowd(8)
	dir, cfg := testmodel.V32Draft(t), Config{Draft: spec.Off()}
	want := lone(t, dir, cfg, list)
	cfg.Draft, cfg.NoReuse = drafts(t, 2), true
	n := 0
	e := start(t, dir, cfg, checked(t), oracle(want, list), before(func(works []step.Work) error {
		if n++; len(works) > 1 && n%3 == 0 {
			return errFault
		}
		return nil
	}))
	compare(t, list, together(t, e, list), want)
	if st := e.Stats(); st.Isolated == 0 {
		t.Error("no items of a failed batch were run one by one")
	}
	guessed(t, e)
}

func TestDraftingNeedsAHead(t *testing.T) {
	_, err := build(t, tinyBF16, Config{Draft: drafts(t, 2)})
	if !errors.Is(err, plan.E15) || !strings.Contains(err.Error(), "model.layers.3.eh_proj.weight") ||
		!strings.Contains(err.Error(), "model.layers.3.shared_head.norm.weight") {
		t.Errorf("got %v, want E15 naming the missing tensors", err)
	}
	e := start(t, tinyBF16, Config{})
	if i := e.Info(); i.Drafts != 0 || i.NoDrafts != "this checkpoint has no draft layer" || i.Config.N != 1 {
		t.Errorf("automatic drafting without a drafting layer: %d drafts, %q, n %d", i.Drafts, i.NoDrafts, i.Config.N)
	}
	if out := generate(t, e, Request{Prompt: tokens(1, 9), Sampling: greedy(), MaxTokens: 4,
		IgnoreEOS: true}); out.Usage.DraftedTokens != 0 || out.Usage.CompletionTokens != 4 {
		t.Errorf("usage %+v", out.Usage)
	}
	one := 1
	if _, err := e.Submit(Request{Prompt: tokens(1, 9), Sampling: greedy(), Draft: &one}); !errors.Is(err, ErrRequest) {
		t.Errorf("a request with drafts: error %v", err)
	}
}

// If the drafts are never right, as with a random drafting layer, automatic drafting stops for each request. The engine
// logs this once, counts it and continues with plain decoding.
func TestDraftingThatDoesNotPayEnds(t *testing.T) {
	var log strings.Builder
	e := start(t, testmodel.V32Draft(t), Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	out := generate(t, e, Request{ID: "loser", Prompt: tokens(1, 30), Sampling: seeded(3), MaxTokens: 200,
		IgnoreEOS: true})
	if u := out.Usage; u.CompletionTokens != 200 || u.DraftedTokens < 3 || u.DraftedTokens > 150 {
		t.Errorf("usage %+v, want drafts that end early", u)
	}
	if st := e.Stats(); st.DraftsEnded != 1 || st.Drafted != int64(out.Usage.DraftedTokens) {
		t.Errorf("%d sequences stopped, %d drafts, usage says %d", st.DraftsEnded, st.Drafted, out.Usage.DraftedTokens)
	}
	e.Close(t.Context())
	if n := strings.Count(log.String(), "drafting takes more time"); n != 1 ||
		!strings.Contains(log.String(), "id=loser") {
		t.Errorf("the message was logged %d times, want once:\n%s", n, &log)
	}
}

// With simulated acceptance, the device decides which drafts are accepted before the host has sampled. The host later
// makes the same decision for each draft, however many tokens it did not know.
func TestPretendedDraftsAreRightForBoth(t *testing.T) {
	c := &choice{job: &Job{setup: &setup{cfg: Config{DraftAccept: 0.5}}}, seq: sched.Sequence{Tokens: tokens(1, 20)}}
	const drafts = 6
	right := 0
	for made := range 20 {
		for ahead := range 3 {
			it := &sched.Item{Seq: &c.seq, Tokens: tokens(2, drafts+1), Drafts: drafts, Cached: 19 + ahead}
			c.limits.made = made
			list := slices.Clone(c.rightDrafts(it))
			for i, draft := range it.DraftTokens() {
				c.limits.made = made + ahead + i
				for _, sampled := range []int32{draft, draft + 1} {
					got := c.pretend(sampled, draft, 0.5)
					if told := sampled >= list[i].Least && sampled <= list[i].Most; told != (got == draft) {
						t.Fatalf("token %d of the answer: the device accepts tokens in %+v, the host chose %d for "+
							"draft %d",
							c.limits.made, list[i], got, draft)
					}
					if got == draft {
						right++
					}
				}
			}
		}
	}
	if all := 20 * 3 * drafts * 2; right < all/4 || right > all*3/4 {
		t.Errorf("%d of %d drafts were accepted, want about half", right, all)
	}
}
