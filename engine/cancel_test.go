package engine

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"sparrow/internal/step"
	"sparrow/internal/testkit/await"
	"sparrow/internal/testmodel"
)

// Invariants of this file: a job can be cancelled at any moment; it then ends before the next batch with
// FinishCancelled for every choice that had not ended, releases its pages and leaves no goroutine behind; other jobs
// are not affected.

func TestCancelledJobsLeakNothing(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	t.Cleanup(func() { await.Goroutines(t, goroutines) }) // after the engine is closed
	e := start(t, testmodel.V32(t), Config{CacheTokens: 4 * 64, StepTokens: 64, MaxRunning: 16, MaxQueue: 4096},
		checked(t))
	each := 125
	if raceEnabled {
		each = 30
	}
	var wait sync.WaitGroup
	for w := range 8 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 7))
			for i := range each {
				giveUp(t, e, random, w*each+i)
			}
		})
	}
	wait.Wait()
	e.Close(context.Background())
	st := e.Stats()
	t.Logf("%d requests: %d finished, %d aborted; %d steps, %d preemptions", st.Requests, st.Finished, st.Aborted,
		st.Steps, st.Preempted)
	// The number of requests that end before they are cancelled depends on the load and the processors of the machine.
	if all := int64(8 * each); st.Requests != all || st.Aborted < all/8 || st.Failed != 0 {
		t.Errorf("%d requests, %d aborted, %d failed; want %d requests, many aborted, none failed", st.Requests,
			st.Aborted, st.Failed, all)
	}
}

// Cancelled requests leak nothing in models with a state for each sequence, and window pages or snapshots. start checks
// that none of these is left.
func TestCancelledRequestsOfAStatefulModelLeakNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		dir  func(*testing.T) string
	}{{"window pages", func(t *testing.T) string { return testmodel.V4(t) }}, {"snapshots", nextModel}} {
		t.Run(c.name, func(t *testing.T) {
			e := start(t, c.dir(t), Config{CacheTokens: 3 * 256, StepTokens: 96, MaxRunning: 8}, checked(t))
			random := rand.New(rand.NewPCG(3, 7))
			for i := range 30 {
				giveUp(t, e, random, i)
			}
			if st := e.Stats(); st.Failed != 0 {
				t.Errorf("%d requests failed", st.Failed)
			}
		})
	}
}

// giveUp starts a request and abandons it in one of several ways after a few events or a moment.
func giveUp(t *testing.T, e *Engine, random *rand.Rand, i int) {
	way := random.IntN(4)
	r := Request{Prompt: tokens(i%9, 1+random.IntN(50)), Sampling: seeded(int64(i)), MaxTokens: 1 + random.IntN(24),
		IgnoreEOS: true}
	r.Sampling.N = 1 + random.IntN(2)
	if way == 1 || way == 2 { // cancelled long before its last token, however late this goroutine runs
		r.MaxTokens = 150
	}
	j := open(t, e, r)
	if way == 0 {
		defer time.AfterFunc(time.Duration(random.IntN(5000))*time.Microsecond, j.Cancel).Stop()
	}
	ended := map[int]Finish{}
	last := false
	note := func(ev Event) {
		if ev.Finish != "" {
			ended[ev.Choice] = ev.Finish
		}
		last = last || ev.Last
	}
	for range random.IntN(12) {
		if !last {
			note(j.Next())
		}
	}
	switch way {
	case 1:
		j.Cancel()
	case 2:
		j.Cancel()
		return // the remaining events are not read
	case 3:
		go j.Cancel()
	}
	for !last {
		note(j.Next())
	}
	if len(ended) != r.Sampling.N {
		t.Errorf("request %d: %d of %d choices sent a last event", i, len(ended), r.Sampling.N)
	}
	for c, why := range ended {
		if !slices.Contains([]Finish{FinishCancelled, FinishLength}, why) {
			t.Errorf("request %d choice %d ended with %q", i, c, why)
		}
	}
}

// gate returns a hook that makes each step wait until the test sends to leave. What the test does in the meantime takes
// effect at the next step boundary.
func gate() (hook func(*Engine), entered <-chan int, leave chan<- struct{}) {
	in, out := make(chan int), make(chan struct{})
	return before(func(works []step.Work) error {
		in <- len(works)
		<-out
		return nil
	}), in, out
}

// Reading counters or plans does not wait for the end of a step, because routers read metrics every 50 ms.
func TestReadersDoNotWaitForAStep(t *testing.T) {
	hook, entered, leave := gate()
	e := start(t, testmodel.V32(t), Config{}, hook)
	j := open(t, e, Request{Prompt: tokens(1, 10), Sampling: greedy(), MaxTokens: 2, IgnoreEOS: true})
	for range 2 {
		<-entered
		if st, plans := e.Stats(), e.Plans(); st.Requests != 1 || st.Finished != 0 || len(plans) > 2 {
			t.Errorf("%+v and %d plans in the middle of a step", st, len(plans))
		}
		leave <- struct{}{}
	}
	if _, err := j.whole(); err != nil {
		t.Error(err)
	}
}

func TestCancellationTakesEffectAtTheNextStep(t *testing.T) {
	hook, entered, leave := gate()
	e := start(t, testmodel.V32(t), Config{}, hook)
	dropped := open(t, e, Request{Prompt: tokens(1, 10), Sampling: greedy(), MaxTokens: 50, IgnoreEOS: true})
	<-entered
	stays := open(t, e, Request{Prompt: tokens(2, 10), Sampling: greedy(), MaxTokens: 2, IgnoreEOS: true})
	dropped.Cancel()
	leave <- struct{}{}
	for range 2 {
		if n := <-entered; n != 1 {
			t.Errorf("%d sequences in a step; want only the one that stays", n)
		}
		leave <- struct{}{}
	}
	events := slices.Collect(dropped.events())
	last, usage := events[len(events)-1], dropped.Usage()
	if len(events) != 2 || last.Finish != FinishCancelled || !last.Last || usage.PromptTokens != 10 ||
		usage.CompletionTokens != 1 {
		t.Errorf("got %+v, usage %+v; want one token, then FinishCancelled", events, usage)
	}
	for ev := range stays.events() {
		if ev.Finish != "" && ev.Finish != FinishLength {
			t.Errorf("the other request ended with %q", ev.Finish)
		}
	}
}

// A request that is cancelled while it waits never runs, and still reports the number of its prompt tokens.
func TestCancellingAWaitingRequest(t *testing.T) {
	hook, entered, leave := gate()
	e := start(t, testmodel.V32(t), Config{MaxRunning: 1}, hook)
	first := open(t, e, Request{Prompt: tokens(1, 10), Sampling: greedy(), MaxTokens: 2, IgnoreEOS: true})
	<-entered
	p := greedy()
	p.N = 2
	waiting := open(t, e, Request{Prompt: tokens(2, 30), Sampling: p, Trace: true})
	leave <- struct{}{}
	<-entered // the second step has begun: the waiting request was received and has no room
	if st := e.Stats(); st.Running != 1 || st.Waiting != 2 {
		t.Errorf("%d sequences run, %d wait; want 1 and 2", st.Running, st.Waiting)
	}
	waiting.Cancel()
	leave <- struct{}{}
	events, usage := slices.Collect(waiting.events()), waiting.Usage()
	last := events[len(events)-1]
	if len(events) != 2 || last.Finish != FinishCancelled || usage.PromptTokens != 30 || usage.CompletionTokens != 0 ||
		waiting.Trace().Steps != 0 {
		t.Errorf("got %+v, usage %+v, trace %+v", events, usage, waiting.Trace())
	}
	for range first.events() {
	}
}
