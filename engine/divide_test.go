package engine

import (
	"errors"
	"testing"
	"time"

	"sparrow/internal/step"
	"sparrow/internal/testmodel"
	"sparrow/sample"
)

// holdsAt returns a hook that stops the n-th batch until the returned channel is closed. Requests that are submitted
// before then are in one batch, even on a slow machine.
func holdsAt(n int) (hook func(*Engine), free chan struct{}) {
	free = make(chan struct{})
	return before(func([]step.Work) error {
		if n--; n == 0 {
			<-free
		}
		return nil
	}), free
}

// Decoding streams run between the operations of long prompts, with and without drafts. All answers equal those of lone
// runs, and after every batch the page tables are valid.
func TestStreamsRunBetweenOperations(t *testing.T) {
	alone(t, "models on several ranks are not divided")
	for name, dir := range map[string]string{"V3.2": testmodel.V32Draft(t), "V4": testmodel.V4Draft(t)} {
		t.Run(name, func(t *testing.T) {
			if raceEnabled && name != "V3.2" {
				t.Skip("another checkpoint runs the same loop")
			}
			stream := func(i int) Request {
				p := []sample.Params{greedy(), seeded(7), greedy()}[i]
				return Request{Prompt: tokens(1+i, 8+i), Sampling: p, MaxTokens: 60, IgnoreEOS: true}
			}
			prompt := func(i int) Request {
				return Request{Prompt: tokens(7+i, 150+i), Sampling: greedy(), MaxTokens: 4, IgnoreEOS: true}
			}
			lone := start(t, dir, Config{NoReuse: true})
			hold, arrived := holdsAt(4) // by the fourth batch the streams decode
			e := start(t, dir, Config{NoReuse: true, MaxStall: time.Microsecond, Draft: drafts(t, 2)}, hold, checked(t))
			var jobs []*Job
			var want []answer
			for i := range 3 {
				want = append(want, generate(t, lone, stream(i)).Choices[0])
				jobs = append(jobs, open(t, e, stream(i)))
			}
			first := jobs[0].Next()
			for i := range 2 {
				want = append(want, generate(t, lone, prompt(i)).Choices[0])
				jobs = append(jobs, open(t, e, prompt(i)))
			}
			close(arrived)
			for i, j := range jobs {
				got, err := j.whole()
				if err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					got.Choices[0].Tokens = append([]int32{first.Token}, got.Choices[0].Tokens...)
					got.Choices[0].Text = first.Text + got.Choices[0].Text
				}
				sameTokens(t, "request", got.Choices[0], want[i])
			}
			if st := e.Stats(); st.Between == 0 || st.Drafted == 0 {
				t.Errorf("%d batches ran between the operations of others, %d tokens were drafted", st.Between,
					st.Drafted)
			}
		})
	}
}

// If a batch that runs between operations fails, its items run again one by one; the batch in progress continues.
func TestFailuresBetweenOperations(t *testing.T) {
	alone(t, "models on several ranks are not divided")
	failures := 0
	hold, arrived := holdsAt(4)
	e, run := prepared(t, testmodel.V32(t), Config{MaxStall: time.Microsecond}, hold, func(e *Engine) {
		e.loop.inner.passes.runner = &tap{runner: e.loop.inner.passes.runner, before: func(works []step.Work) error {
			if failures < 3 && len(works) > 1 {
				failures++
				return errors.New("broken")
			}
			return nil
		}}
	})
	var streams []*Job
	for i := range 2 {
		streams = append(streams, open(t, e, Request{Prompt: tokens(1+i, 8), Sampling: greedy(), MaxTokens: 400,
			IgnoreEOS: true}))
	}
	run()
	for _, j := range streams {
		j.Next()
	}
	prompt := open(t, e, Request{Prompt: tokens(7, 600), Sampling: greedy(), MaxTokens: 2})
	close(arrived)
	for _, j := range append(streams, prompt) {
		if _, last := collect(j); last.Err != nil {
			t.Error(last.Err)
		}
	}
	if st := e.Stats(); failures != 3 || st.Isolated != 3 {
		t.Errorf("%d batches failed, %d batches were run item by item", failures, st.Isolated)
	}
}

// Decoding sequences wait for at most the bound less the time of their own batch and of one operation. If that leaves
// no time, prompts still get half of the bound.
func TestWaitLimit(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ took, operation, want time.Duration }{
		{0, 0, 100 * ms}, {20 * ms, 10 * ms, 70 * ms}, {20 * ms, 60 * ms, 50 * ms}, {80 * ms, 10 * ms, 80 * ms},
	} {
		i := innerPasses{took: c.took, tookBefore: c.took, most: c.took}
		if got := i.waitLimit(100*ms, c.operation); got != c.want {
			t.Errorf("batches of %v, operations of %v: streams wait for %v, want %v", c.took, c.operation, got, c.want)
		}
	}
	var i innerPasses
	for _, took := range []time.Duration{10 * ms, 50 * ms, 10 * ms} {
		i.note(took)
	}
	if got := i.waitLimit(100*ms, 5*ms); got != 55*ms {
		t.Errorf("after batches of 10, 50 and 10 ms streams wait for %v, want 55ms", got)
	}
	i.note(700 * ms)
	if got := i.waitLimit(100*ms, 5*ms); got != 50*ms {
		t.Errorf("after one batch of 700 ms streams wait for %v, want 50ms", got)
	}
	i.note(700 * ms)
	if got := i.waitLimit(100*ms, 5*ms); got != 700*ms {
		t.Errorf("if batches take 700 ms streams wait for %v, want 700ms", got)
	}
}

// The warning about the bound depends on the usual wait of streams after some batches. It does not depend on one slow
// batch, nor on streams that are slow by themselves while prompts add at most half of the bound.
func TestUsualStall(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		took, before, usual time.Duration
		batches             int
		want                time.Duration
	}{
		// Streams wait for 70 ms; with 20 ms for an operation and 10 ms for their own batch the sum is 100 ms.
		{10 * ms, 10 * ms, 20 * ms, 20, 0},
		// Streams wait for 50 ms, an operation takes 90 ms and their own batch 10 ms.
		{10 * ms, 10 * ms, 90 * ms, 20, 150 * ms},
		{10 * ms, 10 * ms, 90 * ms, 7, 0},          // too few batches were measured
		{10 * ms, 10 * ms, 90 * ms, 8, 150 * ms},   // eight batches are enough
		{900 * ms, 10 * ms, 90 * ms, 20, 150 * ms}, // one slow batch, the latest, does not count
		{10 * ms, 900 * ms, 90 * ms, 20, 150 * ms}, // one slow batch before the latest does not count
		{10 * ms, 10 * ms, 39 * ms, 20, 0},         // the sum 51 + 39 + 10 ms is within the bound
		{10 * ms, 10 * ms, 41 * ms, 20, 101 * ms},  // the sum 50 + 41 + 10 ms exceeds the bound
		{200 * ms, 200 * ms, 5 * ms, 20, 405 * ms}, // streams take 200 ms per batch and wait for 200 ms
		{200 * ms, 200 * ms, 0, 20, 400 * ms},
	} {
		i := innerPasses{took: c.took, tookBefore: c.before, most: min(c.took, c.before), usual: c.usual,
			batches: c.batches}
		if got := i.stall(100 * ms); got != c.want {
			t.Errorf("batches of %v and %v, operations of %v: %v after %d batches, want %v", c.before, c.took, c.usual,
				got, c.batches, c.want)
		}
	}
}
