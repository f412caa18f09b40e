package sparrow

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sparrow/step"
)

// Invariants of this file: a request can be given up at any moment by its context, its deadline or Close; it then ends at the next step boundary
// with FinishCancelled for every choice that had not ended, gives its pages back and leaves no goroutine behind; nobody else notices.

func TestAThousandCancelledRequestsLeakNothing(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	e := still(t, Config{Model: speck(t), CacheTokens: 4 * 64, StepTokens: 64, MaxRunning: 16, MaxQueue: 4096})
	checked(t)(e)
	go e.loop()
	var wait sync.WaitGroup
	var accepted atomic.Int64
	for w := range 8 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 7))
			for i := range 125 {
				if giveUp(t, e, random, w*125+i) {
					accepted.Add(1)
				}
			}
		})
	}
	wait.Wait()
	if err := e.Close(context.Background()); err != nil {
		t.Error(err)
	}
	checkEmpty(t, e)
	st := e.Stats()
	t.Logf("%d requests: %d finished, %d aborted; %d steps, %d preemptions", st.Requests, st.Finished, st.Aborted, st.Steps, st.Preempted)
	if n := accepted.Load(); st.Requests != n || n < 900 || st.Aborted < 500 || st.Failed != 0 {
		t.Errorf("%d requests, %d aborted, %d failed; want %d, most of them aborted, none failed", st.Requests, st.Aborted, st.Failed, n)
	}
	settled(t, goroutines)
}

// The same with a model that keeps a state and window pages of every sequence: start checks that none is left.
func TestCancelledRequestsOfAStatefulModelLeakNothing(t *testing.T) {
	e := start(t, Config{Model: speckV4(t), CacheTokens: 3 * 256, StepTokens: 96, MaxRunning: 8}, checked(t))
	random := rand.New(rand.NewPCG(3, 7))
	for i := range 30 {
		giveUp(t, e, random, i)
	}
	if st := e.Stats(); st.Failed != 0 {
		t.Errorf("%d requests failed", st.Failed)
	}
}

// giveUp starts a request and abandons it in one of several ways after a few events or a moment. It reports whether the request was accepted: its
// deadline may come before.
func giveUp(t *testing.T, e *Engine, random *rand.Rand, i int) (accepted bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	way := random.IntN(4)
	if way == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(5000))*time.Microsecond)
		defer cancel()
	}
	r := Request{Tokens: tokens(i%9, 1+random.IntN(50)), Sampling: seeded(int64(i)), MaxTokens: 1 + random.IntN(24), IgnoreEOS: true}
	r.Sampling.N = 1 + random.IntN(2)
	s, err := e.Stream(ctx, r)
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		return false
	}
	for range random.IntN(12) {
		if _, ok := s.Next(); !ok {
			break
		}
	}
	switch way {
	case 1:
		cancel()
	case 2:
		s.Close()
		return true // nobody reads what is left
	case 3:
		go s.Close()
	}
	ended := map[int]Finish{}
	for ev := range s.All() {
		if ev.Finish != "" {
			ended[ev.Choice] = ev.Finish
		}
	}
	if !s.done.Load() {
		t.Error("the stream ended without a last event")
	}
	for c, why := range ended {
		if !slices.Contains([]Finish{FinishCancelled, FinishLength}, why) {
			t.Errorf("request %d choice %d ended with %q", i, c, why)
		}
	}
	return true
}

// A step is held up until the test lets it go; what happens in between takes effect at the boundary behind it.
func gate() (hook func(*Engine), entered <-chan int, leave chan<- struct{}) {
	in, out := make(chan int), make(chan struct{})
	return before(func(works []step.Work) error {
		in <- len(works)
		<-out
		return nil
	}), in, out
}

func TestCancellationTakesEffectAtTheNextStep(t *testing.T) {
	hook, entered, leave := gate()
	e := start(t, Config{Model: speck(t)}, hook)
	ctx, cancel := context.WithCancelCause(context.Background())
	dropped, err := e.Stream(ctx, Request{Tokens: tokens(1, 10), Sampling: greedy(), MaxTokens: 50, IgnoreEOS: true})
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	stays := open(t, e, Request{Tokens: tokens(2, 10), Sampling: greedy(), MaxTokens: 2, IgnoreEOS: true})
	cancel(errFault)
	for { // the cancellation reaches the engine on a goroutine of its own
		e.mu.Lock()
		n := len(e.cancels)
		e.mu.Unlock()
		if n > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	leave <- struct{}{}
	for range 2 {
		if n := <-entered; n != 1 {
			t.Errorf("%d sequences in a step; want only the one that stays", n)
		}
		leave <- struct{}{}
	}
	events := slices.Collect(dropped.All())
	last := events[len(events)-1]
	if len(events) != 2 || last.Finish != FinishCancelled || last.Usage == nil || last.Usage.PromptTokens != 10 || last.Usage.CompletionTokens != 1 {
		t.Errorf("got %+v; want one token, then the cancellation with usage", events)
	}
	for ev := range stays.All() {
		if ev.Finish != "" && ev.Finish != FinishLength {
			t.Errorf("the other request ended with %q", ev.Finish)
		}
	}
}

func TestGenerateReturnsTheCauseOfACancellation(t *testing.T) {
	e := start(t, Config{Model: speck(t)})
	ctx, cancel := context.WithCancelCause(context.Background())
	s, err := e.Stream(ctx, Request{Tokens: tokens(1, 10), Sampling: greedy(), MaxTokens: 8000, IgnoreEOS: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Next()
	done := make(chan error)
	go func() {
		_, err := e.Generate(ctx, Request{Tokens: tokens(2, 10), Sampling: greedy(), MaxTokens: 8000, IgnoreEOS: true})
		done <- err
	}()
	for e.Stats().Running < 2 {
		time.Sleep(time.Millisecond)
	}
	cancel(errFault)
	if err := <-done; !errors.Is(err, errFault) {
		t.Errorf("error %v", err)
	}
	for range s.All() {
	}
	short, stop := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer stop()
	if _, err := e.Generate(short, Request{Tokens: tokens(2, 10), Sampling: greedy(), MaxTokens: 8000, IgnoreEOS: true}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the deadline: error %v", err)
	}
	if _, err := e.Generate(short, Request{Tokens: tokens(2, 10), Sampling: greedy()}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a request that comes after its deadline: error %v", err)
	}
}

// A request that is cancelled while it waits never runs and still says what its prompt was.
func TestCancellingAWaitingRequest(t *testing.T) {
	hook, entered, leave := gate()
	e := start(t, Config{Model: speck(t), MaxRunning: 1}, hook)
	first := open(t, e, Request{Tokens: tokens(1, 10), Sampling: greedy(), MaxTokens: 2, IgnoreEOS: true})
	<-entered
	p := greedy()
	p.N = 2
	waiting := open(t, e, Request{Tokens: tokens(2, 30), Sampling: p, Trace: true})
	leave <- struct{}{}
	<-entered // the second step: the waiting one was received and has no room
	if st := e.Stats(); st.Running != 1 || st.Waiting != 2 {
		t.Errorf("%d run, %d wait; want 1 and 2", st.Running, st.Waiting)
	}
	waiting.Close()
	if waiting.stop() {
		t.Error("Close left the request attached to its context")
	}
	leave <- struct{}{}
	events := slices.Collect(waiting.All())
	last := events[len(events)-1]
	if len(events) != 2 || last.Finish != FinishCancelled || last.Usage.PromptTokens != 30 || last.Usage.CompletionTokens != 0 || last.TraceLog.Steps != 0 {
		t.Errorf("got %+v", events)
	}
	for range first.All() {
	}
}
