package sparrow

import (
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"sparrow/plan"
	"sparrow/sample"
	"sparrow/sched"
	"sparrow/step"
)

// step runs the items of one step and hands out what they gave. A step that fails is run again item by item, so that only the requests that
// fail by themselves are lost.
func (e *Engine) step(items []sched.Item) {
	begun := time.Now()
	e.admitted(items, begun)
	e.works = e.works[:0]
	for i := range items {
		e.works = append(e.works, work(&items[i]))
	}
	res, err := e.run(e.works)
	switch {
	case err == nil:
		e.deliver(items, res)
		e.record(res.Plan, begun, len(items))
	case len(items) == 1:
		e.fail(&items[0], err)
	default:
		for i := range items {
			if res, err := e.run(e.works[i : i+1]); err != nil {
				e.fail(&items[i], err)
			} else {
				e.deliver(items[i:i+1], res)
				e.record(res.Plan, begun, 1)
			}
		}
	}
	if e.check != nil {
		if err := e.check(); err != nil {
			panic(err)
		}
	}
}

// work describes an item to the step runner.
func work(it *sched.Item) step.Work {
	w := step.Work{Kind: plan.ModeExtend, Tokens: it.Tokens, Cached: it.Cached, Pages: it.Pages}
	if it.Decode {
		w.Kind = plan.ModeDecode
	}
	if it.Last {
		w.Logits = 1
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

// admitted notes when jobs first ran and what the prefix cache gave them.
func (e *Engine) admitted(items []sched.Item, now time.Time) {
	for i := range items {
		c := items[i].Seq.Owner.(*choice)
		if j := c.job; j.admitted.IsZero() {
			j.admitted = now
			j.usage.PromptTokens = len(j.prompt)
			j.usage.CachedTokens = c.seq.Match.Tokens
			e.mu.Lock()
			e.stats.PromptTokens += int64(len(j.prompt))
			e.stats.CachedTokens += int64(c.seq.Match.Tokens)
			e.mu.Unlock()
		}
	}
}

// fail ends the request an item belongs to.
func (e *Engine) fail(it *sched.Item, err error) {
	c := it.Seq.Owner.(*choice)
	e.cfg.Log.Error("request failed", "id", c.job.request.ID, "error", err)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.end(c, FinishError, fmt.Errorf("%w: %w", ErrStep, err))
}

// deliver commits what was computed and samples the next token of every sequence whose tokens are all computed.
func (e *Engine) deliver(items []sched.Item, res step.Result) {
	row := 0
	for i := range items {
		it := &items[i]
		c := it.Seq.Owner.(*choice)
		c.job.ran(res.Plan)
		if err := e.sched.Done(it); err != nil {
			e.fail(it, err)
		}
		if !it.Last {
			continue
		}
		logits := res.Row(row)
		row++
		if !c.ended {
			e.next(c, logits)
		}
	}
}

// next samples a token and tells the stream.
func (e *Engine) next(c *choice, logits []float32) {
	if c.job.request.IgnoreEOS || c.made < c.job.request.MinTokens {
		for _, id := range e.eos {
			logits[id] = float32(math.Inf(-1))
		}
	}
	mask := sample.Mask(nil)
	if c.state != nil {
		if err := c.state.Mask(c.mask); err != nil {
			e.finish(c, FinishError, fmt.Errorf("%w: %w", ErrStep, err))
			return
		}
		mask = c.mask
	}
	got, err := c.sampler.Sample(logits, mask)
	if err == nil {
		err = c.sampler.Accept(got.Token)
	}
	if err == nil && c.state != nil {
		err = c.state.Accept(got.Token)
	}
	if err != nil {
		e.finish(c, FinishError, fmt.Errorf("%w: %w", ErrStep, err))
		return
	}
	if c.job.first.IsZero() {
		c.job.first = time.Now()
	}
	c.made++
	c.job.usage.CompletionTokens++
	e.mu.Lock()
	e.stats.OutputTokens++
	e.mu.Unlock()
	e.emit(c, got)
}

// emit turns a token into text and decides whether the choice has ended.
func (e *Engine) emit(c *choice, got sample.Choice) {
	ev := rawEvent{choice: c.index, token: got.Token, logprob: got.Logprob}
	if len(got.Top) > 0 {
		ev.top = append(ev.top, got.Top...)
	}
	if slices.Contains(e.eos, got.Token) && !c.job.request.IgnoreEOS || c.stops.Token(got.Token) {
		ev.text = c.flush(false)
		c.job.queue.push(ev)
		e.finish(c, FinishStop, nil)
		return
	}
	stopped := false
	if c.decoder != nil {
		ev.text, stopped = c.stops.Push(c.decoder.Next(got.Token))
	}
	c.seq.Tokens = append(c.seq.Tokens, got.Token)
	switch {
	case stopped:
		c.matched, _ = c.stops.Matched()
		c.job.queue.push(ev)
		e.finish(c, FinishStop, nil)
	case c.made >= c.limit:
		ev.text += c.flush(true)
		c.job.queue.push(ev)
		e.finish(c, FinishLength, nil)
	default:
		c.job.queue.push(ev)
	}
}

// flush releases text that was held back for an incomplete character or stop string.
func (c *choice) flush(cut bool) string {
	if c.decoder == nil {
		return ""
	}
	text := ""
	if cut {
		text, _ = c.stops.Push(c.decoder.Flush())
	} else {
		c.decoder.Flush()
	}
	return text + c.stops.Flush()
}

// finish ends a choice from inside the loop.
func (e *Engine) finish(c *choice, why Finish, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.end(c, why, err)
}

// record keeps the plan and counts what ran.
func (e *Engine) record(p *plan.Plan, begun time.Time, requests int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.steps++
	r := PlanRecord{Step: e.steps, At: begun, Plan: p, Took: time.Since(begun), Requests: requests}
	if len(e.plans) < e.cfg.PlanHistory {
		e.plans = append(e.plans, r)
	} else {
		e.plans[e.planAt] = r
		e.planAt = (e.planAt + 1) % len(e.plans)
	}
	s := &e.stats
	s.Steps, s.Preempted, s.KV = e.steps, e.sched.Preemptions, e.pool.Stats()
	s.Running, s.Waiting = e.sched.Running(), e.sched.Waiting()
	for i := range p.Segments {
		seg := &p.Segments[i]
		s.count(seg)
		s.Slices += int64(len(seg.Launches) - 1)
		if seg.Convert != plan.ConvertNone {
			s.Conversions++
		}
	}
}

// count adds a segment to the kind it belongs to.
func (s *Stats) count(seg *plan.Segment) {
	for i := range s.Plans {
		k := &s.Plans[i]
		if k.Row == seg.Row && k.Form == seg.Form && k.Kernel == seg.Kernel && k.Convert == seg.Convert {
			k.Steps++
			k.Rows += int64(seg.Rows)
			return
		}
	}
	s.Plans = append(s.Plans, PlanCount{Row: seg.Row, Form: seg.Form, Kernel: seg.Kernel, Convert: seg.Convert, Steps: 1, Rows: int64(seg.Rows)})
}
