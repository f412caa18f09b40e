package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sparrow/internal/kv/tier"
	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/internal/model/placement"
	"sparrow/internal/model/usage"
	"sparrow/internal/sched"
	"sparrow/internal/spec"
	"sparrow/internal/testkit/respserver"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/tokenizer"
)

// Invariants of this file: counts that are reported to a request are exact, and limits hold at their boundaries.

// outcomesOf returns one outcome for each of the given tokens.
func outcomesOf(tokens ...int32) (list []outcome) {
	for _, token := range tokens {
		list = append(list, outcome{event: Event{Token: token}})
	}
	return list
}

// Drafts are counted by position in the chain: Judged counts the drafts that were compared with a target token, Right
// the drafts that were equal to it. The usage and the other counters of statistics count all drafts and the accepted
// drafts.
func TestDraftsAreCountedByPlace(t *testing.T) {
	control, other := spec.New(spec.Auto(), 0), spec.New(spec.Auto(), 0)
	j := &Job{trace: &Trace{}}
	c := &choice{job: j, drafts: control.Request()}
	var y tally
	y.countDrafts(c, []int32{5, 6, 7}, outcomesOf(5, 9))
	y.countDrafts(c, []int32{1, 2}, outcomesOf(1, 2, 3))
	y.countDrafts(c, []int32{4}, outcomesOf(8))
	places := []DraftCount{{3, 2}, {2, 1}}
	if !slices.Equal(j.trace.Drafts, places) {
		t.Errorf("drafts of the trace %v, want %v", j.trace.Drafts, places)
	}
	if want := [spec.MaxDrafts]DraftCount{places[0], places[1]}; y.stats.Drafts != want {
		t.Errorf("drafts by place %v, want %v", y.stats.Drafts, want)
	}
	if want := (Usage{DraftedTokens: 6, AcceptedTokens: 3}); j.usage != want {
		t.Errorf("usage %+v, want %+v", j.usage, want)
	}
	if s := &y.stats; s.Verified != 3 || s.VerifiedTokens != 6 || s.Drafted != 6 || s.Accepted != 3 {
		t.Errorf("%d items were verified with %d tokens, %d drafted, %d accepted; want 3, 6, 6 and 3", s.Verified,
			s.VerifiedTokens, s.Drafted, s.Accepted)
	}
	want := other.Request()
	want.Judged(2, 1)
	want.Judged(2, 2)
	want.Judged(1, 0)
	for i := 1; i <= 3; i++ {
		if got, want := c.drafts.Chance(i), want.Chance(i); got != want {
			t.Errorf("draft %d has an acceptance rate of %v, want %v", i, got, want)
		}
	}
}

// An end-of-sequence token may end a choice from the first token after the minimum length on, and a stop string from
// the last token of the minimum length on. Neither ends it earlier.
func TestTheMinimumLengthIsExact(t *testing.T) {
	w := vocabulary(t)
	four, ok := w.TokenID("4")
	if !ok {
		t.Fatal("the vocabulary has no digit")
	}
	e := still(t, "", Config{})
	r := ask(t, "How many?")
	r.MinTokens, r.MaxTokens = 3, 10
	for i, out := range advanced(t, e, r, w.eos, w.eos, w.eos, w.eos) {
		if ended := i == 3; (out.event.Token == w.eos) != ended || (out.finish == FinishStop) != ended {
			t.Errorf("token %d is %d, finish %q; the end-of-sequence token is %d", i, out.event.Token, out.finish,
				w.eos)
		}
	}
	r.Sampling.Stop = []string{"4"}
	for i, out := range advanced(t, e, r, four, four, four) {
		if want := []string{"4", "4", ""}[i]; (out.finish == FinishStop) != (i == 2) || out.event.Text != want {
			t.Errorf("token %d: text %q, finish %q", i, out.event.Text, out.finish)
		}
	}
	r.Sampling.Stop, r.Guide = nil, schema(t, `{"type": "integer"}`)
	outs := advanced(t, e, r, four, w.eos, w.eos, w.eos)
	for i, out := range outs {
		if (out.event.Token == w.eos) != (i == 3) {
			t.Errorf("token %d of a number is %d, the end-of-sequence token is %d", i, out.event.Token, w.eos)
		}
	}
}

// A stop string that ends with the last allowed token, also one that only the replacement of an incomplete character
// completes, ends a choice as a stop string does, and is not part of its text.
func TestAStopStringEndsWithTheLastToken(t *testing.T) {
	w := vocabulary(t)
	e := still(t, "", Config{})
	// The first tokens of this character are no character yet.
	ids, err := w.Encode("4\U0001F9FF", tokenizer.EncodeOptions{})
	if err != nil || len(ids) < 3 {
		t.Fatalf("tokens %v, error %v", ids, err)
	}
	for _, c := range []struct {
		stop, text string
		tokens     []int32
		finish     Finish
	}{
		{"44", "", []int32{ids[0], ids[0]}, FinishStop},
		{"45", "44", []int32{ids[0], ids[0]}, FinishLength},
		{"4\uFFFD", "", ids[:2], FinishStop},
		{"5\uFFFD", "4\uFFFD", ids[:2], FinishLength},
	} {
		r := ask(t, "How many?")
		r.MaxTokens, r.Sampling.Stop = len(c.tokens), []string{c.stop}
		outs := advanced(t, e, r, c.tokens...)
		text := ""
		for _, out := range outs {
			text += out.event.Text
		}
		if got := outs[len(outs)-1].finish; got != c.finish || text != c.text || outs[0].finish != "" {
			t.Errorf("stop string %q: text %q, finish %q; want %q, %q", c.stop, text, got, c.text, c.finish)
		}
	}
}

// An event counts the bytes of all text up to its token, including text that is held back because it may begin a stop
// string.
func TestEventsCountDecodedBytes(t *testing.T) {
	w := vocabulary(t)
	four, ok := w.TokenID("4")
	if !ok {
		t.Fatal("the vocabulary has no digit")
	}
	r := ask(t, "How many?")
	r.Sampling.Stop = []string{"445"}
	outs := advanced(t, still(t, "", Config{}), r, four, four, four, w.eos)
	for i, want := range []Event{{Text: "", Decoded: 1}, {Text: "", Decoded: 2}, {Text: "4", Decoded: 3},
		{Text: "44"}} {
		if got := outs[i].event; got.Text != want.Text || got.Decoded != want.Decoded {
			t.Errorf("token %d: text %q and %d bytes, want %q and %d", i, got.Text, got.Decoded, want.Text,
				want.Decoded)
		}
	}
}

// proposing is a model whose drafting stages propose a block of tokens, or one token if block is 0.
type proposing struct {
	model.Model
	block int
	head  error
}

func (p *proposing) Facts() plan.Model      { return plan.Model{Block: p.block} }
func (p *proposing) DraftHead() error       { return p.head }
func (p *proposing) Config() *config.Config { return &config.Config{Family: "f"} }

// The number of drafts is limited by the setting, by the block and by the number of rows that a step verifies together
// with the previous token. A fixed number above the limit is refused; automatic drafting uses the limit.
func TestTheNumberOfDraftsIsBounded(t *testing.T) {
	for _, c := range []struct {
		setting     spec.Setting
		block, step int
		want        int
		because     string // reason why drafting is disabled
	}{
		{spec.Off(), 5, 64, 0, "switched off"},
		{spec.Auto(), 0, 64, spec.MaxDrafts, ""},
		{spec.Auto(), 3, 64, 3, ""},
		{spec.Auto(), 5, 4, 3, ""},
		{spec.Auto(), 5, 1, 0, "allows at most 0 drafts"},
		{spec.Auto(), 0, spec.MaxDrafts + 1, spec.MaxDrafts, ""},
		{drafts(t, 3), 3, 4, 3, ""},
		{drafts(t, 2), 3, 64, 2, ""},
		{drafts(t, 3), 3, 3, 0, "allows at most 2 drafts; set --step-tokens 4 or more"},
		{drafts(t, 4), 3, 64, 0, "propose 3 tokens at a time; set at most 3"},
		{drafts(t, 7), 0, 64, 7, ""},
	} {
		got, why, err := maxDrafts(c.setting, &proposing{block: c.block}, c.step)
		if err != nil && c.setting.IsFixed() {
			why = err.Error()
		}
		if got != c.want || (err != nil) != (c.setting.IsFixed() && c.want == 0) || (why == "") != (c.because == "") ||
			!strings.Contains(why, c.because) {
			t.Errorf("%v drafts of blocks of %d in steps of %d tokens: %d, %q, %v; want %d, %q", c.setting, c.block,
				c.step, got, why, err, c.want, c.because)
		}
	}
	for _, s := range []spec.Setting{spec.Auto(), drafts(t, 2)} {
		got, why, err := maxDrafts(s, &proposing{head: errFault}, 64)
		if got != 0 || s.IsFixed() != errors.Is(err, errFault) || !s.IsFixed() && why != errFault.Error() {
			t.Errorf("%v without a drafting layer: %d, %q, %v", s, got, why, err)
		}
	}
}

// movable is a readable model whose experts move.
type movable struct {
	readable
	model.ExpertMover
}

// The expert counts are read once a second if experts move, also while batches run, and every five seconds otherwise.
func TestCountsAreReadMoreOftenWhereExpertsMove(t *testing.T) {
	for _, moves := range []bool{false, true} {
		clock, m := &paced{}, &movable{}
		x := experts{tally: &tally{stats: Stats{Steps: 1}},
			setup: &setup{model: m, cfg: Config{Clock: clock, Usage: usage.New("", 1, 4, 1)}}}
		if moves {
			x.moves = placement.Uniform(1, 4, 0.5)
		}
		for second := range 11 {
			if err := x.read(usageEvery); err != nil {
				t.Fatal(err)
			}
			want := 1 + second/5
			if moves {
				want = 1 + second
			}
			if m.reads != want {
				t.Errorf("experts move: %v, after %d s: read %d times, want %d", moves, second, m.reads, want)
			}
			clock.at.Add(int64(time.Second))
		}
	}
}

// Flush returns an error if the engine is closing, and no caller waits for it.
func TestFlushingAClosingEngine(t *testing.T) {
	e, _ := prepared(t, testmodel.V32(t), Config{})
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := e.Flush(ended); !errors.Is(err, context.Canceled) { // Flush waits for the loop, which does not run
		t.Errorf("before: %v", err)
	}
	e.inbox.flushes = nil
	e.inbox.stop(false)
	if err := e.Flush(ended); !errors.Is(err, ErrClosed) || len(e.inbox.flushes) != 0 {
		t.Errorf("while the engine closes: error %v, %d callers of Flush wait", err, len(e.inbox.flushes))
	}
}

// If the device is lost, requests that were in no batch yet fail too: each gets the error, and none remains in a
// counter.
func TestALostDeviceEndsQueuedRequests(t *testing.T) {
	e, _ := prepared(t, testmodel.V32(t), Config{MaxRunning: 1})
	r := Request{Prompt: tokens(1, 9), Sampling: greedy(), MaxTokens: 9, IgnoreEOS: true}
	r.Sampling.N = 2
	jobs := []*Job{open(t, e, r), open(t, e, r)}
	e.iterations(1)
	jobs = append(jobs, open(t, e, r), open(t, e, r)) // these requests are in the inbox
	e.loop.lose(fmt.Errorf("%w: it is gone", kernel.ErrLost))
	if err := e.Check(); err != nil {
		t.Error(err)
	}
	if st := e.Stats(); st.Failed != 4 || st.Running+st.Waiting != 0 || len(e.inbox.jobs) != 0 || st.Device == "" {
		t.Errorf("%d requests failed, %d run, %d wait, %d are in the inbox; Stats.Device is %q", st.Failed, st.Running,
			st.Waiting,
			len(e.inbox.jobs), st.Device)
	}
	for i, j := range jobs {
		ends := 0
		for {
			ev, ok := j.Poll()
			if !ok {
				break
			}
			if ev.Finish == FinishError && errors.Is(ev.Err, ErrDevice) && errors.Is(ev.Err, kernel.ErrLost) {
				if ends++; ev.Last != (ends == 2) {
					t.Errorf("request %d: last event of choice %d has Last %v", i, ends, ev.Last)
				}
			}
		}
		if ends != 2 {
			t.Errorf("request %d: %d choices got a last event, want 2", i, ends)
		}
	}
	if _, err := e.Submit(r); !errors.Is(err, ErrDevice) {
		t.Errorf("another request: %v", err)
	}
}

// A work has all tokens of the sequence before its own tokens (step.Work), unless the host does not know the last of
// these tokens yet.
func TestTokensBeforeAWork(t *testing.T) {
	c := &choice{seq: sched.Sequence{Tokens: tokens(1, 8)}}
	c.seq.Owner = c
	for cached, want := range map[int]int{0: 0, 5: 5, 7: 7, 8: 8, 9: 0} {
		got := tokensBefore(&sched.Item{Seq: &c.seq, Cached: cached})
		if !slices.Equal(got, c.seq.Tokens[:want]) || (got == nil) != (cached > 8) {
			t.Errorf("after %d of 8 tokens: the tokens before are %v", cached, got)
		}
	}
}

// shorter is a model with fewer positions.
type shorter struct {
	model.Model
	positions int
}

func (s *shorter) Config() *config.Config {
	c := *s.Model.Config()
	c.MaxPositions = s.positions
	return &c
}

// A block is drafted only if its last token has a position in the context.
func TestTheLastBlockEndsWithTheContext(t *testing.T) {
	alone(t, "the test needs one device")
	const prompt, positions, block, most = 8, 24, 5, 14
	// Every draft is rejected, so that the answer grows by one token in each step.
	e, _ := prepared(t, testmodel.V4Spark(t), Config{Draft: drafts(t, block), DraftAccept: 1e-12, NoReuse: true})
	s := *e.setup
	s.model = &shorter{s.model, positions}
	e.loop.drafter.setup = &s
	open(t, e, Request{Prompt: tokens(1, prompt), Sampling: greedy(), MaxTokens: most, IgnoreEOS: true})
	for cached, rows := 0, prompt; cached+rows < prompt+most-1; {
		e.iterations(1)
		q := e.loop.sched.All()[0]
		want := min(block, prompt+most-len(q.Tokens)-1)
		// The number of accepted drafts is not known when the block is enqueued; the limit of positions counts all
		// drafts as accepted.
		if cached+rows+1+block > positions {
			want = 0
		}
		if len(q.Drafts) != want {
			t.Errorf("%d rows after %d of %d positions: %d drafts, want %d", rows, cached, positions, len(q.Drafts),
				want)
		}
		cached, rows = len(q.Tokens)-1, 1+len(q.Drafts)
	}
}

// If pages do not arrive from a tier, the sequence waits exactly until its time limit, and the lost time is counted.
func TestTimeLostToPagesIsCounted(t *testing.T) {
	store := respserver.Start(t)
	store.Set(respserver.Hangs)
	const wait = 50 * time.Millisecond
	c, clock := tiered("", 8, 64, tier.Options{StoreURL: store.URL()}), &paced{}
	c.Clock = clock
	e := still(t, testmodel.V32(t), c)
	e.loop.tiers.wait = wait // the store's own limit is longer, and this test does not control its clock
	emptied(t, e)
	_, run := running(t, e, func(*Engine) { t.Cleanup(func() { store.Set(respserver.Works) }) })
	j := open(t, e, Request{Prompt: tokens(1, 400), Sampling: greedy(), MaxTokens: 1, Trace: true})
	const queued = time.Second // time before the sequence is admitted, which is not part of the wait
	clock.at.Store(int64(queued))
	e.iterations(1)
	begun := clock.Now()
	for _, late := range []time.Duration{0, wait - 1} {
		clock.at.Store(int64(queued + late))
		if e.loop.tiers.advance() || len(e.loop.tiers.restoring) != 1 {
			t.Fatalf("after %v the sequence no longer waits", late)
		}
	}
	clock.at.Store(int64(queued + wait))
	if !e.loop.tiers.advance() || len(e.loop.tiers.restoring) != 0 {
		t.Fatalf("after %v the sequence still waits", wait)
	}
	if st := e.loop.tiers.stats; st.Lost != wait || st.Saved != 0 || st.Slow != 1 || st.Missed != 1 ||
		st.Restored != 0 {
		t.Errorf("%+v; want %v lost", st, wait)
	}
	run()
	got, err := j.whole()
	if err != nil {
		t.Fatal(err)
	}
	want := Restored{Stop: "pages arrived too slowly: the sequence waited 50ms longer than computing them takes",
		Period: Period{begun, begun.Add(wait)}}
	if r := got.Trace.Restored; r.Stop != want.Stop || r.Period != want.Period || r.Tokens != 0 {
		t.Errorf("%+v, want %+v", r, want)
	}
}
