package engine

import (
	"context"
	"errors"
	"sync"
	"testing"

	"sparrow/internal/testkit/await"
	"sparrow/internal/testmodel"
)

// Invariants of this file: Close finishes or fails every job and may be called any number of times from anywhere.

func TestCloseLetsRequestsFinish(t *testing.T) {
	e := start(t, testmodel.V32(t), Config{MaxRunning: 2})
	var jobs []*Job
	for i := range 6 {
		jobs = append(jobs, open(t, e, Request{Prompt: tokens(i, 20), Sampling: greedy(), MaxTokens: 20,
			IgnoreEOS: true}))
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			e.Close(context.Background())
			if _, err := e.Submit(Request{Prompt: tokens(1, 2), Sampling: greedy()}); !errors.Is(err, ErrClosed) {
				t.Errorf("a request after Close: error %v", err)
			}
		})
	}
	for i, j := range jobs {
		got, last := collect(j)
		if len(got) != 20 || last.Finish != FinishLength {
			t.Errorf("job %d got %d tokens and ended with %q: %v", i, len(got), last.Finish, last.Err)
		}
	}
	wait.Wait()
	for _, j := range jobs {
		j.Cancel()
	}
	if n := len(e.inbox.cancels); n != 0 {
		t.Errorf("%d requests that have ended wait to be cancelled", n)
	}
}

// The context may end before Close is called or while Close waits.
func TestCloseFailsWhatIsLeftWhenItsContextEnds(t *testing.T) {
	for _, waits := range []bool{false, true} {
		e := start(t, testmodel.V32(t), Config{MaxRunning: 2})
		var jobs []*Job
		for i := range 5 {
			jobs = append(jobs, open(t, e, Request{Prompt: tokens(i, 20), Sampling: greedy(), MaxTokens: 6000,
				IgnoreEOS: true}))
		}
		jobs[0].Next()
		ctx, cancel := context.WithCancel(context.Background())
		var closed sync.WaitGroup
		if waits {
			closed.Go(func() { e.Close(ctx) })
			await.True(t, "an engine that closes", func() bool { return e.Flush(ctx) != nil })
		}
		cancel()
		if !waits {
			e.Close(ctx)
		}
		for i, j := range jobs {
			if _, last := collect(j); last.Finish != FinishError || !errors.Is(last.Err, ErrClosed) {
				t.Errorf("Close waits %v: job %d ended with %+v", waits, i, last)
			}
		}
		closed.Wait()
		if st := e.Stats(); st.Failed != 5 {
			t.Errorf("Close waits %v: %d requests failed, want 5", waits, st.Failed)
		}
	}
}
