package sparrow

import (
	"fmt"
	"runtime/debug"
	"time"

	"sparrow/plan"
	"sparrow/sched"
	"sparrow/step"
)

// step runs the items of one step and hands out what they gave. A step that fails is run again item by item, so that only the requests that
// fail by themselves are lost.
func (e *Engine) step(items []sched.Item) {
	begun := time.Now()
	e.admitted(items, begun)
	items = e.equip(items)
	if len(items) == 0 {
		return
	}
	e.works = e.works[:0]
	for i := range items {
		e.works = append(e.works, work(&items[i]))
	}
	ran := time.Now()
	res, err := e.run(e.works)
	switch {
	case err == nil:
		e.measure(res.Plan, time.Since(ran))
		e.deliver(items, res)
		e.draft(items)
		e.record(res.Plan, begun, len(items))
	case len(items) == 1:
		e.fail(items[0].Seq.Owner.(*choice), err)
	default:
		e.cfg.Log.Warn("a step failed; its sequences run one by one", "sequences", len(items), "error", err)
		e.apart(items, begun)
	}
	if e.after != nil {
		e.after()
	}
}

// apart runs the items of a failed step alone.
func (e *Engine) apart(items []sched.Item, begun time.Time) {
	e.mu.Lock()
	e.stats.Apart++
	e.mu.Unlock()
	for i := range items {
		if e.spoilt(&items[i]) {
			continue
		}
		res, err := e.run(e.works[i : i+1])
		if err != nil {
			e.fail(items[i].Seq.Owner.(*choice), err)
			continue
		}
		e.deliver(items[i:i+1], res)
		e.draft(items[i : i+1])
		e.record(res.Plan, begun, 1)
	}
}

// work describes an item to the step runner.
func work(it *sched.Item) step.Work {
	w := step.Work{Kind: plan.ModeExtend, Tokens: it.Tokens, Cached: it.Cached, Pages: it.Pages, Windows: it.Windows, State: it.Seq.Owner.(*choice).rows}
	switch {
	case it.Drafts > 0:
		w.Kind = plan.ModeVerify
	case it.Decode:
		w.Kind = plan.ModeDecode
	}
	if it.Last {
		w.Logits = 1 + it.Drafts
	}
	return w
}

// run carries out works; a panic below becomes an error of this step.
func (e *Engine) run(works []step.Work) (res step.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			e.cfg.Log.Error("a step panicked", "value", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return e.runner.Run(works)
}

// admitted notes when choices and jobs first ran and what the prefix cache gave them.
func (e *Engine) admitted(items []sched.Item, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.publish() // the scheduler has moved sequences since
	for i := range items {
		c := items[i].Seq.Owner.(*choice)
		if c.ran {
			continue
		}
		c.ran, c.match = true, c.seq.Match
		c.draft = e.drafting(c)
		e.queued--
		if j := c.job; j.admitted.IsZero() {
			j.admitted = now
			j.usage.CachedTokens = c.match.Tokens
			e.stats.PromptTokens += int64(len(j.prompt))
			e.stats.CachedTokens += int64(c.match.Tokens)
		}
	}
}

// fail ends a choice whose step failed.
func (e *Engine) fail(c *choice, err error) {
	e.cfg.Log.Error("request failed", "id", c.job.request.ID, "choice", c.index, "error", err)
	e.finish(c, FinishError, fmt.Errorf("%w: %w", ErrStep, err))
}

// deliver commits what was computed and continues every sequence whose tokens are all computed.
func (e *Engine) deliver(items []sched.Item, res step.Result) {
	row := 0
	for i := range items {
		e.settle(&items[i], res, row)
		if items[i].Last {
			row += 1 + items[i].Drafts
		}
	}
}

// settle commits one item and, where its tokens are all computed, samples from its rows of logits, which begin at row. A panic here is a failure of
// this request alone.
func (e *Engine) settle(it *sched.Item, res step.Result, row int) {
	c := it.Seq.Owner.(*choice)
	defer func() {
		if v := recover(); v != nil {
			e.cfg.Log.Error("sampling panicked", "value", v, "stack", string(debug.Stack()))
			e.fail(c, fmt.Errorf("panic: %v", v))
		}
	}()
	c.job.ran(res.Plan)
	if err := e.sched.Done(it); err != nil {
		e.fail(c, err)
		return
	}
	switch {
	case it.Drafts > 0:
		e.verify(c, it, res, row)
	case it.Last:
		e.next(c, res.Row(row), draftRow{})
	}
}
