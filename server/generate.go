package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"sparrow"
	"sparrow/internal/wire"
)

// sink receives the events of a request and writes a response.
type sink interface {
	// event handles one event of one prompt.
	event(prompt int, ev *sparrow.Event) error
	// idle sends a keep-alive comment if nothing was sent for the time limit. It returns the time until the next call.
	// Tokens that produce no text do not reset the timer.
	idle(limit time.Duration) (time.Duration, error)
	// end is called after the last event, unless an error occurred.
	end(r *result) error
}

// result holds the usage and traces of all prompts.
type result struct {
	usage  sparrow.Usage // usage of all prompts together
	traces []promptTrace // [prompts] traces, if requested
}

// starter is a sink that needs the lengths of the prompts before the first event.
type starter interface {
	start(promptTokens int)
}

// generate runs engine requests and passes their events to a sink. To w it writes only headers.
func (s *service) generate(w http.ResponseWriter, r *http.Request, requests []sparrow.Request, to sink) error {
	x := exchangeOf(r)
	ctx, stop := s.bound(r.Context())
	defer stop()
	use, err := s.quotas.begin(x.tenant, x.background)
	if err != nil {
		return err
	}
	defer use.end()
	if use != nil {
		for i := range requests {
			requests[i].Admit, requests[i].Places = use.prompt, use.places
		}
	}
	var spans *stages
	wanted := make([]bool, len(requests)) // [prompts] whether the answer contains a trace
	for i := range requests {
		wanted[i] = requests[i].Trace
	}
	if x.traced() {
		spans = &stages{}
		defer s.addStages(x, spans) // called after the flow was closed
		for i := range requests {
			requests[i].Trace = true
		}
	}
	f, err := openFlow(ctx, s.engine, requests, func(prompt int, ev *sparrow.Event) {
		s.metrics.Finished(ev.Finish)
		spans.note(prompt, ev)
	})
	if err != nil {
		use.refused()
		if ended := cause(ctx); ended != nil {
			return ended
		}
		return err
	}
	defer f.close()
	x.memory.settle()
	noteIgnored(w, x, x.dialect.keywords(f.ignored))
	if st, ok := to.(starter); ok {
		st.start(f.promptTokens)
	}
	reports := newReports(to, f)
	defer reports.stop()
	g := &generation{s: s, x: x, use: use, requests: requests, wanted: wanted, to: to, last: map[choiceKey]time.Time{}}
	idle := time.NewTimer(s.options.KeepAlive)
	defer idle.Stop()
	for {
		select {
		case it, open := <-f.items:
			if !open {
				return s.late(g.finish(ctx), f)
			}
			if len(it.event.Tokens) > 0 {
				reports.stop()
			}
			if err := g.take(ctx, &it); err != nil {
				return s.late(err, f)
			}
		case <-reports.due:
			if err := reports.send(); err != nil {
				return err
			}
		case <-idle.C:
			again, err := to.idle(s.options.KeepAlive)
			if err != nil {
				return err
			}
			idle.Reset(again)
		}
	}
}

// bound returns a context that ends when the client disconnects, at the request timeout, or at the end of a shutdown's
// grace period. Its cause is the reason.
func (s *service) bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	detach := context.AfterFunc(s.halted, func() { cancel(ErrDraining) })
	release := func() {}
	if d := s.options.RequestTimeout; d > 0 {
		ctx, release = context.WithTimeoutCause(ctx, d, ErrDeadline)
	}
	return ctx, func() {
		release()
		detach()
		cancel(nil)
	}
}

// late returns the error of a request that timed out, with the limit and its time in the queue.
func (s *service) late(err error, f *flow) error {
	if !errors.Is(err, ErrDeadline) {
		return err
	}
	limit, waited := s.options.RequestTimeout, f.waited()
	advice := "request fewer tokens or send a shorter prompt"
	if waited > limit/2 {
		advice = "send it again when fewer requests wait, or to another server"
	}
	told := wire.NewError(wire.CodeDeadline, "", "the request took longer than the %v that this server allows "+
		"(--request-timeout); it waited in the queue for %v of that; %s", limit, waited.Round(time.Millisecond), advice)
	return fmt.Errorf("%w: %w", ErrDeadline, told)
}

type choiceKey struct{ prompt, choice int }

// generation is a running request.
type generation struct {
	s        *service
	x        *exchange
	use      *quotaUse
	requests []sparrow.Request
	wanted   []bool // [prompts] whether the answer contains a trace
	to       sink

	last   map[choiceKey]time.Time // time of the last token of each choice
	ended  int                     // number of prompts whose last event was received
	result result
}

// take records metrics for an event and passes it to the sink.
func (g *generation) take(ctx context.Context, it *item) error {
	ev := &it.event
	g.measure(it)
	g.use.output(len(ev.Tokens))
	if ev.Usage != nil {
		g.ended++
		addUsage(&g.result.usage, ev.Usage)
		g.x.usage = g.result.usage
		if ev.TraceLog != nil && g.wanted[it.prompt] {
			g.result.traces = append(g.result.traces,
				promptTrace{it.prompt, g.requests[it.prompt].Sampling.Seed, ev.TraceLog, g.x.effort, g.x.leftOut})
		}
	}
	switch ev.Finish {
	case sparrow.FinishError:
		if ev.Err == nil {
			return sparrow.ErrStep
		}
		return ev.Err
	case sparrow.FinishCancelled:
		if err := cause(ctx); err != nil {
			return err
		}
		return sparrow.ErrClosed
	}
	return g.to.event(it.prompt, ev)
}

// measure records the time to the first token and the gaps between tokens.
func (g *generation) measure(it *item) {
	if len(it.event.Tokens) == 0 {
		return
	}
	now := time.Now()
	key := choiceKey{it.prompt, it.event.Choice}
	if g.x.background { // no client waits for the tokens of a batch
		return
	}
	if before, ok := g.last[key]; ok {
		g.s.metrics.Gap(now.Sub(before), len(it.event.Tokens))
	} else if len(g.last) == 0 {
		g.x.firstToken = now.Sub(g.x.arrived)
		g.s.metrics.FirstToken(g.x.firstToken)
	}
	g.last[key] = now
}

// finish ends the response, or returns the reason why the request failed.
func (g *generation) finish(ctx context.Context) error {
	if err := cause(ctx); err != nil && g.ended < len(g.requests) {
		return err
	}
	if g.ended < len(g.requests) {
		return ErrCutShort
	}
	if !g.x.background {
		g.s.metrics.Request(time.Since(g.x.arrived), g.result.usage)
	}
	return g.to.end(&g.result)
}

func addUsage(sum, u *sparrow.Usage) {
	sum.PromptTokens += u.PromptTokens
	sum.CachedTokens += u.CachedTokens
	sum.CompletionTokens += u.CompletionTokens
	sum.ReasoningTokens += u.ReasoningTokens
	sum.DraftedTokens += u.DraftedTokens
	sum.AcceptedTokens += u.AcceptedTokens
}
