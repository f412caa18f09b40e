package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"sparrow/internal/kv/tier"
	"sparrow/internal/sched"
	"sparrow/internal/step"
	"sparrow/internal/testkit/await"
	"sparrow/internal/testkit/respserver"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/plan"
)

// Invariants of this file: every pass that was enqueued is waited for, and every error is reported to all requests that
// it affects, also if it is found late.

// flights counts the passes that were enqueued and not waited for. draft, if set, is the error of enqueueing draft
// passes.
type flights struct {
	runner
	count int
	draft error // error of enqueueing a pass of the drafting layer
}

func (f *flights) End(s *step.Started) (step.Pending, error) {
	p, err := f.runner.End(s)
	if err == nil {
		f.count++
	}
	return p, err
}

func (f *flights) StartDraft(works []step.Draft, chained bool) (step.Pending, error) {
	if f.draft != nil {
		return step.Pending{}, f.draft
	}
	p, err := f.runner.StartDraft(works, chained)
	if err == nil {
		f.count++
	}
	return p, err
}

func (f *flights) Wait(p step.Pending) (step.Result, error) {
	f.count--
	return f.runner.Wait(p)
}

// flying returns an engine on a device that computes while the host continues, whose last batch has the given stage,
// and a function that starts its loop.
func flying(t *testing.T, s stage) (*Engine, *Job, *flights, func()) {
	t.Helper()
	alone(t, "passes of several ranks do not overlap")
	dir, c, f := testmodel.V32(t), Config{}, &flights{}
	if s == stageDrafting {
		dir, c.Draft = testmodel.V32Draft(t), drafts(t, 1)
	}
	e, run := overlapping(t, dir, c, func(e *Engine) {
		f.runner = e.loop.passes.runner
		e.loop.passes.runner = f
	})
	j := open(t, e, Request{Prompt: tokens(1, 20), Sampling: greedy(), MaxTokens: 90, IgnoreEOS: true})
	for range 9 {
		if e.loop.last == nil || e.loop.last.stage != s {
			e.iterations(1)
		}
	}
	if e.loop.last == nil || e.loop.last.stage != s || f.count == 0 {
		t.Fatalf("the last batch is %+v, want one that is %v", e.loop.last, s)
	}
	return e, j, f, run
}

// An engine that is stopped at once waits for every pass on the device, because passes use memory that is freed
// afterwards.
func TestStoppingWaitsForTheDevice(t *testing.T) {
	for _, s := range []stage{stageRunning, stageDrafting} {
		e, j, f, run := flying(t, s)
		e.inbox.stop(true)
		run()
		e.Close(t.Context())
		if f.count != 0 || e.loop.last != nil {
			t.Errorf("%v: %d passes were not waited for; the last batch is %+v", s, f.count, e.loop.last)
		}
		if _, last := collect(j); last.Finish != FinishError || !errors.Is(last.Err, ErrClosed) {
			t.Errorf("%v: the request ended with %+v", s, last)
		}
	}
}

// If the device is lost in a draft pass whose drafts are already inputs of the next batch, all requests end.
func TestADeviceThatIsLostAfterTheNextBatch(t *testing.T) {
	e, j, _, _ := flying(t, stageDrafting)
	other := open(t, e, Request{Prompt: tokens(2, 20), Sampling: greedy(), MaxTokens: 9})
	e.loop.last.ahead.err = fmt.Errorf("a draft pass: %w", kernel.ErrLost)
	e.iterations(1)
	for i, j := range []*Job{j, other} {
		if _, last := collect(j); !errors.Is(last.Err, ErrDevice) || !errors.Is(last.Err, kernel.ErrLost) {
			t.Errorf("request %d ended with %+v", i, last)
		}
	}
	if st := e.Stats(); st.Device == "" || st.Failed != 2 || st.DraftsFailed != 0 {
		t.Errorf("device %q, %d requests failed, %d stopped drafting", st.Device, st.Failed, st.DraftsFailed)
	}
}

// If the device is lost while the items of a failed batch run one by one, all requests end and no other item runs.
func TestADeviceThatIsLostWhileItemsRunAlone(t *testing.T) {
	lonely := 0
	e, _, _ := startPaced(t, Config{}, before(func(works []step.Work) error {
		if len(works) > 1 {
			return errFault
		}
		lonely++
		return fmt.Errorf("a pass: %w", kernel.ErrLost)
	}))
	var jobs []*Job
	for i := range 3 {
		jobs = append(jobs, open(t, e, Request{Prompt: tokens(1+i, 9), Sampling: greedy(), MaxTokens: 9}))
	}
	e.iterations(1)
	if st := e.Stats(); lonely != 1 || st.Failed != 3 || st.Device == "" {
		t.Errorf("%d items ran alone, %d requests failed, device %q", lonely, st.Failed, st.Device)
	}
	for i, j := range jobs {
		if _, last := collect(j); !errors.Is(last.Err, ErrDevice) {
			t.Errorf("request %d ended with %+v", i, last)
		}
	}
}

// A pass of the drafting layer that the device refuses counts as a fault: its sequences continue without drafts.
func TestDraftPassesThatAreNotEnqueued(t *testing.T) {
	e, j, f, _ := flying(t, stageDrafting)
	f.draft = fmt.Errorf("a draft pass: %w", plan.E28)
	for e.Stats().Finished == 0 {
		e.iterations(1)
	}
	if got, last := collect(j); len(got) != 90 || last.Finish != FinishLength {
		t.Errorf("%d tokens, %+v", len(got), last)
	}
	if st := e.Stats(); st.Faults != 1 || st.DraftsFailed != 1 || f.count != 0 {
		t.Errorf("%d faults, %d sequences stopped drafting, %d passes in flight", st.Faults, st.DraftsFailed, f.count)
	}
}

// A draft pass contains only rows of its own batch. This also holds after a batch failed whose draft pass was already
// enqueued.
func TestDraftPassesAfterAFailedBatch(t *testing.T) {
	e, failed, f, _ := flying(t, stageDrafting)
	fails := true
	f.runner = &spoiled{runner: f.runner, count: new(int), fails: func(p step.Pending) bool {
		last := fails && p.Plan().Pass == plan.PassTarget
		fails = fails && !last
		return last
	}}
	for !failed.choices[0].ended {
		e.iterations(1)
	}
	j, passes := open(t, e, Request{Prompt: tokens(2, 20), Sampling: greedy(), MaxTokens: 9, IgnoreEOS: true}), 0
	f.runner = &drafted{f.runner, func(works []step.Draft) {
		if passes++; len(works) != 1 || e.at(works[0].Pages) != j.choices[0] {
			t.Errorf("draft pass %d has %d works", passes, len(works))
		}
	}}
	for !j.choices[0].ended {
		e.iterations(1)
	}
	if _, last := collect(failed); !errors.Is(last.Err, errFault) || passes == 0 || e.Stats().DraftsFailed != 0 {
		t.Errorf("%+v; %d draft passes, %d sequences stopped drafting", last, passes, e.Stats().DraftsFailed)
	}
}

// If the draft pass is already enqueued, a chain uses the work and the row that its item has in that pass; the items
// between them may have no chain.
func TestRowsOfChainsAhead(t *testing.T) {
	e, _, _, _ := flying(t, stageDrafting)
	d, b := e.loop.drafter, e.loop.last
	chains, at := d.chains, b.ahead.places[0]
	if d.chains, b.ahead.places[0] = nil, (place{3, 4}); len(chains) != 1 {
		t.Fatalf("%d chains", len(chains))
	}
	d.add(b, 0)
	if k := d.chains; len(k) != 1 || k[0].work != 3 || k[0].row != 4 || k[0].want != 1 || k[0].c != chains[0].c {
		t.Errorf("chains %+v, want one of work 3, row 4", k)
	}
	d.chains, b.ahead.places[0] = chains, at
}

// A sequence that the scheduler refuses ends with an error; the other requests run.
func TestASequenceThatCannotBeScheduled(t *testing.T) {
	e := still(t, testmodel.V32(t), Config{})
	running(t, e)
	jobs := []*Job{open(t, e, Request{Prompt: tokens(1, 9), Sampling: greedy(), MaxTokens: 1}),
		open(t, e, Request{Prompt: tokens(1, 9), Sampling: greedy(), MaxTokens: 1})}
	jobs[0].choices[0].seq.Tokens = nil
	e.iterations(1)
	if _, last := collect(jobs[0]); !errors.Is(last.Err, ErrStep) || !errors.Is(last.Err, sched.ErrSequence) {
		t.Errorf("it ended with %+v", last)
	}
	if got, last := collect(jobs[1]); len(got) != 1 || last.Err != nil {
		t.Errorf("the request beside it: %+v", last)
	}
}

// A prompt whose logits are NaN cannot be scored: the request fails.
func TestScoresOfLogitsThatAreNotNumbers(t *testing.T) {
	for at := range 3 {
		e := still(t, testmodel.V32(t), Config{})
		running(t, e, after(func(_ []step.Work, res step.Result) { res.Row(at)[5] = float32(math.NaN()) }))
		j := open(t, e, scoreOnly(tokens(1, 4), 0))
		e.iterations(1)
		if ev, _ := j.Poll(); at > 0 && len(ev.Scores) != 1+at {
			t.Errorf("row %d is not a number: %d scores before it", at, len(ev.Scores))
		}
		if _, last := collect(j); !errors.Is(last.Err, ErrStep) || e.Stats().Failed != 1 {
			t.Errorf("row %d is not a number: it ended with %+v", at, last)
		}
	}
}

// Callers that wait for the loop return when it has ended.
func TestNobodyWaitsForALoopThatHasEnded(t *testing.T) {
	e := start(t, testmodel.V32(t), Config{})
	e.Close(t.Context())
	if err := e.inbox.await(t.Context(), &e.inbox.settles); !errors.Is(err, ErrClosed) {
		t.Errorf("error %v", err)
	}
	e.Settle(t.Context())
}

// unwritable is a device to which no page can be copied.
type unwritable struct{ kernel.Machine }

func (unwritable) Write(kernel.Tensor, []byte) error { return errFault }

// If a page from a tier cannot be stored on the device, the prompt is computed from that page on, and the reason is in
// the trace.
func TestPagesThatCannotBeWrittenAreComputed(t *testing.T) {
	alone(t, "the device of one rank fails")
	e := still(t, testmodel.V32(t), tiered("", 8, 64, tier.Options{HostBytes: 1 << 26}))
	emptied(t, e)
	_, run := running(t, e)
	prompt := tokens(1, 150)
	held(t, e, prompt, prompt)
	e.loop.tiers.dev = unwritable{e.loop.tiers.dev}
	run()
	r := generate(t, e, Request{Prompt: prompt, Sampling: greedy(), MaxTokens: 2, IgnoreEOS: true, Trace: true})
	if stop := r.Trace.Restored.Stop; r.Usage.CachedTokens != 0 || r.Trace.Restored.Tokens != 0 ||
		!strings.Contains(stop, errFault.Error()) || len(r.Choices[0].Tokens) != 2 {
		t.Errorf("%d tokens are cached, %+v; %d tokens", r.Usage.CachedTokens, r.Trace.Restored,
			len(r.Choices[0].Tokens))
	}
}

// If the loop breaks while sequences wait for their pages, every fetch ends.
func TestABrokenLoopEndsFetches(t *testing.T) {
	store := respserver.Start(t)
	store.Set(respserver.Hangs)
	t.Cleanup(func() { store.Set(respserver.Works) })
	e := still(t, testmodel.V32(t), tiered("", 16, 64, tier.Options{StoreURL: store.URL()}))
	fetches := queuedJob(t, e, Request{Prompt: tokens(1, 400), Sampling: greedy(), MaxTokens: 1})
	computes := queuedJob(t, e, Request{Prompt: tokens(2, 9), Sampling: greedy(), MaxTokens: 1})
	e.cfg.Observe = func(bool) {
		if len(e.loop.tiers.restoring) != 1 {
			t.Errorf("%d sequences wait for pages", len(e.loop.tiers.restoring))
		}
		panic("broken invariant")
	}
	e.Run()
	collect(computes)
	if _, last := collect(fetches); !errors.Is(last.Err, ErrClosed) {
		t.Errorf("it ended with %+v", last)
	}
	_, left := e.loop.tiers.stack.Held()
	if n := len(e.loop.tiers.restoring); n != 0 || left != 0 || fetches.choices[0].restore != nil {
		t.Errorf("%d sequences still wait for pages, of %d fetches", n, left)
	}
}

// The weights are read once to identify pages on other machines, unless their identity is given.
func TestWeightsAreIdentified(t *testing.T) {
	for _, given := range []bool{false, true} {
		reads := 0
		c := tiered("", 8, 64, tier.Options{HostBytes: 1 << 26})
		if c.Weights = (tier.Weights{}); given {
			c.Weights.Whole = &tier.Fingerprint{1}
		}
		c.Weights.Read = func(context.Context) (tier.Fingerprint, error) {
			reads++
			return tier.Fingerprint{2}, nil
		}
		e := startTiered(t, testmodel.V32(t), c)
		await.True(t, "weights that are identified", func() bool { return e.Stats().Tiers.Identified })
		e.Close(t.Context())
		if (reads == 0) != given || reads > 1 {
			t.Errorf("the identity is given: %v; the weights were read %d times", given, reads)
		}
	}
}

// peeking is a device that calls a function before each operation.
type peeking struct {
	kernel.Device
	look func()
}

func (p *peeking) Do(op kernel.Op) error {
	p.look()
	return p.Device.Do(op)
}

// If the last stream ends between the operations of a prompt, no wait of streams is measured during the remaining
// operations.
func TestNobodyWaitsAfterTheLastStream(t *testing.T) {
	alone(t, "models on several ranks are not divided")
	clock := &paced{}
	p := &peeking{clock, func() {}}
	e, err := buildOver(t, testmodel.V32(t), Config{NoReuse: true, MaxStall: time.Millisecond, Clock: clock},
		kernel.Options{Workers: 1}, func(d kernel.Device) kernel.Device {
			clock.Device = d
			return p
		})
	if err != nil {
		t.Fatal(err)
	}
	running(t, e)
	stream := open(t, e, Request{Prompt: tokens(1, 8), Sampling: greedy(), MaxTokens: 5, IgnoreEOS: true})
	e.iterations(3)
	open(t, e, Request{Prompt: tokens(7, 150), Sampling: greedy(), MaxTokens: 1})
	looked, waits, batches := 0, 0, 0
	p.look = func() {
		if !stream.choices[0].ended {
			batches = e.loop.inner.batches
		} else if e.loop.inner.batches == batches { // the batch during which it ended
			if looked++; !e.loop.waiting.IsZero() {
				waits++
			}
		}
	}
	for range 3 {
		e.iterations(1)
	}
	if looked == 0 || waits != 0 || e.Stats().Between == 0 {
		t.Errorf("in %d of %d operations after the last stream somebody waits; %d batches between operations", waits,
			looked, e.Stats().Between)
	}
}
