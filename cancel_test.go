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

	"sparrow/internal/testkit/await"
	"sparrow/internal/testmodel"
)

// Invariants of this file: a request ends with its context, its deadline or Close, with FinishCancelled for every
// choice that had not ended, and leaves no goroutine behind. What happens inside the engine is tested in package
// engine.

func TestCancelledRequestsLeakNothing(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	e := start(t, Config{Model: testmodel.V32(t), CacheTokens: 4 * 64, StepTokens: 64, MaxRunning: 16, MaxQueue: 4096})
	var wait sync.WaitGroup
	var accepted, late atomic.Int64
	for w := range 8 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 7))
			for i := range 25 {
				if giveUp(t, e, random, w*25+i) {
					accepted.Add(1)
				} else {
					late.Add(1)
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
	t.Logf("%d requests: %d finished, %d aborted; %d steps, %d preemptions", st.Requests, st.Finished, st.Aborted,
		st.Steps, st.Preempted)
	// How many requests end before they are cancelled depends on the load and the processors of the machine.
	if n := accepted.Load(); st.Requests != n || st.Aborted+late.Load() < 25 || st.Failed != 0 {
		t.Errorf("%d requests, %d aborted, %d failed; want %d requests, many of them aborted, none failed", st.Requests,
			st.Aborted, st.Failed, n)
	}
	await.Goroutines(t, goroutines)
}

// giveUp starts a request and, after a few events or a short time, abandons it by closing the stream, cancelling the
// context, or waiting for the deadline. accepted reports whether the engine accepted the request: the deadline may end
// before the engine does.
func giveUp(t *testing.T, e *Engine, random *rand.Rand, i int) (accepted bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	way := random.IntN(4)
	if way == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(5000))*time.Microsecond)
		defer cancel()
	}
	r := Request{Tokens: tokens(i%9, 1+random.IntN(50)), Sampling: seeded(int64(i)), MaxTokens: 1 + random.IntN(24),
		IgnoreEOS: true}
	r.Sampling.N = 1 + random.IntN(2)
	if way == 1 || way == 2 { // ended long before its last token, however late this goroutine runs
		r.MaxTokens = 150
	}
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
		return true // the remaining events are not read
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

func TestGenerateReturnsTheCauseOfACancellation(t *testing.T) {
	e := start(t, Config{Model: testmodel.V32(t)})
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
	cancel(errCause)
	if err := <-done; !errors.Is(err, errCause) {
		t.Errorf("error %v", err)
	}
	for range s.All() {
	}
	short, stop := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer stop()
	if _, err := e.Generate(short, Request{Tokens: tokens(2, 10), Sampling: greedy(), MaxTokens: 8000,
		IgnoreEOS: true}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the deadline: error %v", err)
	}
	if _, err := e.Generate(short, Request{Tokens: tokens(2, 10), Sampling: greedy()}); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Errorf("a request that comes after its deadline: error %v", err)
	}
}

// Close detaches a request from its context and ends it.
func TestClosingAStream(t *testing.T) {
	e := start(t, Config{Model: testmodel.V32(t)})
	s := open(t, e, Request{Tokens: tokens(1, 10), Sampling: greedy(), MaxTokens: 8000, IgnoreEOS: true})
	s.Close()
	if s.stop() {
		t.Error("Close left the request attached to its context")
	}
	var last Event
	for ev := range s.All() {
		last = ev
	}
	if last.Finish != FinishCancelled || last.Usage == nil || last.Usage.PromptTokens != 10 {
		t.Errorf("the last event is %+v", last)
	}
}
