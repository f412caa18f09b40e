package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"sparrow/engine"
	"sparrow/internal/sim/clock"
	"sparrow/internal/sim/formula"
	"sparrow/internal/spec"
	"sparrow/sample"
)

// compare checks that the tokens, scores and ends of streams equal those of lone runs on an engine without faults,
// drafts, prefix reuse or lack of pages. A stream that was cancelled or failed must have a prefix of the tokens of the
// lone run.
func (w *world) compare() (err error) {
	failures := 0
	lone, err := newLone(w.shape, w.engine.Info().ContextTokens)
	if err != nil {
		return fmt.Errorf("sim: opening an engine for one request: %w", err)
	}
	defer func() { err = errors.Join(err, lone.close()) }()
	for _, s := range w.streams {
		want, err := lone.run(s.request)
		if err != nil {
			return fmt.Errorf("sim: running %s alone: %w", s.request.ID, err)
		}
		for i := range s.choices {
			c := &s.choices[i]
			if err := c.matches(&want[i]); err != nil {
				return fmt.Errorf("sim: choice %d of %s: %w", i, s.request.ID, err)
			}
			if c.finish == engine.FinishError {
				if failures++; !w.allowed(c.err) {
					return fmt.Errorf("sim: choice %d of %s failed although no fault was injected into it: %w", i,
						s.request.ID, c.err)
				}
			}
		}
		if err := w.checkCached(s); err != nil {
			return err
		}
		if err := w.checkWait(s); err != nil {
			return err
		}
	}
	if most := w.report.Faults + w.nan*w.config.MaxRunning; w.report.Lost == 0 && !w.halts && failures > most {
		return fmt.Errorf("sim: %d choices failed, but %d injected faults explain at most %d", failures,
			w.report.Faults, most)
	}
	return nil
}

// matches returns an error if the results of a choice differ from those of a lone run.
func (c *outcome) matches(want *outcome) error {
	n := min(len(c.tokens), len(want.tokens))
	ended := c.finish == engine.FinishStop || c.finish == engine.FinishLength
	switch {
	case !slices.Equal(c.tokens[:n], want.tokens[:n]) || len(c.tokens) > n:
		return fmt.Errorf("the tokens are %v, but %v when the request runs alone", c.tokens, want.tokens)
	case len(c.scores) > len(want.scores) || !slices.EqualFunc(c.scores, want.scores[:len(c.scores)],
		func(a, b sample.Scored) bool { return reflect.DeepEqual(a, b) }):
		return fmt.Errorf("the scores are %v, but %v when the request runs alone", c.scores, want.scores)
	case ended && (len(want.tokens) != n || want.finish != c.finish || len(c.scores) != len(want.scores)):
		return fmt.Errorf("it ended with %d tokens and %d scores (%s); alone with %d and %d (%s)", n, len(c.scores),
			c.finish, len(want.tokens), len(want.scores), want.finish)
	}
	for i := range n {
		got, alone := c.events[i], want.events[i]
		if got.Logprob != alone.Logprob || !slices.Equal(got.Top, alone.Top) {
			return fmt.Errorf("token %d has log probability %v and alternatives %v, but %v and %v when the request "+
				"runs alone", i, got.Logprob, got.Top, alone.Logprob, alone.Top)
		}
	}
	return nil
}

// checkCached checks that cached tokens of a prompt were computed by another request of its tenant.
func (w *world) checkCached(s *stream) error {
	cached, most := s.job.Usage().CachedTokens, 0
	if cached == 0 {
		return nil
	}
	for _, o := range w.streams {
		if o == s || o.engine != s.engine || o.request.Tenant != s.request.Tenant ||
			o.request.Salt != s.request.Salt {
			continue
		}
		for i := range o.choices {
			whole := slices.Concat(o.request.Prompt, o.choices[i].tokens)
			if sc := o.request.Score; sc != nil && sc.Continuations != nil {
				whole = slices.Concat(o.request.Prompt, sc.Continuations[i])
			}
			most = max(most, common(whole, s.request.Prompt))
		}
	}
	if cached > most {
		return fmt.Errorf("sim: %s found %d tokens of its prompt in the cache, but its tenant has computed %d of them",
			s.request.ID, cached, most)
	}
	return nil
}

// common returns the length of the longest common prefix of a and b.
func common(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// lone runs requests one after another on an otherwise idle engine.
type lone struct {
	clock  *clock.Virtual
	engine *engine.Engine
}

// newLone returns an engine for lone runs of sequences up to the given length.
func newLone(shape formula.Shape, context int) (*lone, error) {
	l := &lone{clock: clock.New(time.Unix(1e9, 0))}
	var err error
	l.engine, err = open(shape, formula.NewDevice(formula.Settings{}), engine.Config{
		CacheTokens: 8 * shape.Context, ContextTokens: context, StepTokens: 256, MaxRunning: 8, MaxQueue: 8,
		PlanHistory: 1, NoReuse: true, Draft: spec.Off(), EOS: []int32{eos}, Clock: l.clock,
		Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		l.clock.Go(l.engine.Run)
	}
	return l, err
}

// run runs a request to its end and returns the outcome of each choice.
func (l *lone) run(r engine.Request) (out []outcome, err error) {
	none := 0
	r.Draft = &none
	stuck := l.clock.Run(func() {
		var job *engine.Job
		if job, err = l.engine.Submit(r); err != nil {
			return
		}
		out = make([]outcome, job.Choices())
		for idle := 0; idle < 10; {
			ev, ok := job.Poll()
			if !ok {
				idle++ // passes take no time, so the request has ended by the time this process continues
				l.clock.Sleep(time.Millisecond)
				continue
			}
			if out[ev.Choice].add(ev); ev.Last {
				return
			}
		}
		err = fmt.Errorf("the request has not ended after many waits")
	})
	return out, errors.Join(stuck, err)
}

// close ends the engine.
func (l *lone) close() error {
	return l.clock.Run(func() { l.engine.Close(context.Background()) })
}
