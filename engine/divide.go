package engine

import (
	"fmt"
	"runtime/debug"
	"time"

	"sparrow/kernel"
	"sparrow/model"
	"sparrow/plan"
	"sparrow/step"
)

// Where the device computes while the host waits, a batch of prompts need not hold up sequences that decode until it
// ends: between two of its operations the loop runs whole batches of those, in a workspace of their own, whenever they
// have waited for as long as Config.MaxStall allows. So the longest gap of a stream does not depend on how well the
// time of a batch was predicted, but on its longest operation alone.
//
// The batch in progress goes on to write the pages of its sequences. Nothing that happens between takes pages from
// them: sched.Scheduler.Between does not preempt, and arrivals and cancellations wait for the end.

// innerPasses is what runs between the operations of a batch. Where batches are not divided its passes are nil.
type innerPasses struct {
	passes *passes   // whose workspace is free while another pass is in progress
	of     *flight   // the batch in progress between whose operations others may run; nil without
	flight flight    // memory of those
	inside bool      // one of those runs
	at     time.Time // when the operation in progress began
	// took is what the latest batch of sequences that decode alone took, tookBefore the one before it, most the recent
	// ones at most.
	took, tookBefore, most time.Duration
	// longest is the longest operation of the batch in progress, before of the one before it, usual of many.
	longest, before, usual time.Duration
	batches                int
	// broken is what a panic outside a pass said, which ends the loop once the batch in progress is given up.
	broken string
}

// divides reports whether batches of prompts are divided.
func (e *Engine) divides() bool {
	_, ok := e.model.(model.Divisible)
	return ok && e.cfg.MaxStall > 0 && !kernel.IsAsynchronous(e.model.Device())
}

// openInner takes the memory of passes that run between the operations of others.
func (e *Engine) openInner(cfg *plan.Config, context int) (err error) {
	if !e.divides() {
		return nil
	}
	if e.inner.passes, err = newPasses(e.model, *cfg, e.innerLimits(context)); err != nil {
		return err
	}
	e.model.(model.Divisible).Between(e.between)
	return nil
}

// innerLimits bound the passes between the operations of others.
func (e *Engine) innerLimits(context int) step.Limits {
	l := e.limits(context)
	l.Rows, l.Decodes = l.Requests, true
	return l
}

// divide lets others run between the operations of a batch, if it is a divided one, until the function that it returns
// is called.
func (e *Engine) divide(f *flight) (end func()) {
	if !f.load.Divided() {
		return func() {}
	}
	i := &e.inner
	if e.waiting.IsZero() { // else the time since the last operation of the batch before counts, too
		e.waiting, i.at = f.begun, e.now()
	}
	i.of, i.before, i.longest = f, i.longest, 0
	return func() {
		i.of = nil
		i.batches++
		i.usual += (i.longest - i.usual) / 8
	}
}

// between is called before every operation. It runs sequences that decode where they have waited for long enough.
func (e *Engine) between() error {
	i := &e.inner
	f := i.of
	if f == nil || e.waiting.IsZero() {
		return nil
	}
	now := e.now()
	i.longest, i.at = max(i.longest, now.Sub(i.at)), now
	if now.Sub(e.waiting) < i.waitLimit(e.cfg.MaxStall, max(i.longest, i.before)) {
		return nil
	}
	items, load := e.sched.Between()
	if len(items) == 0 { // no page is free
		e.waiting = now
		return nil
	}
	i.flight = flight{items: append(i.flight.items[:0], items...), load: load, begun: now}
	if err := e.runBetween(); err != nil {
		return err
	}
	i.at = e.now()
	f.interrupted += i.at.Sub(now)
	if e.waiting = i.at; !e.sched.Decoding() {
		e.waiting = time.Time{}
	}
	e.watchdog.begin(i.at)
	return e.lost
}

// runBetween runs the batch that was formed. What fails in it is its own; a panic outside a pass is not left to the
// pass in progress, which would return it as an error.
func (e *Engine) runBetween() (err error) {
	i, f, finished := &e.inner, e.inner.of, e.finished
	defer func() {
		if v := recover(); v != nil {
			i.broken = fmt.Sprintf("%v\n%s", v, debug.Stack())
			err = fmt.Errorf("panic: %v", v)
		}
		i.of, i.inside, i.passes, e.passes, e.finished = f, false, e.passes, i.passes, finished
	}()
	i.of, i.inside, i.passes, e.passes = nil, true, e.passes, i.passes
	e.carryOut(&i.flight)
	return nil
}

// note takes the time of a batch of sequences that decode alone. Those that take long come in groups, when the machine
// does something else: most forgets them slowly.
func (i *innerPasses) note(took time.Duration) {
	i.took, i.tookBefore = took, i.took
	i.most = max(took, i.most-(i.most-took)/4)
}

// waitLimit is how long sequences that decode wait until they run: what is left of the bound beside their own time and
// the operation that may just begin. Where that is little, prompts have half of the bound, and half of the time; one
// batch that took very long does not count for that.
func (i *innerPasses) waitLimit(bound, operation time.Duration) time.Duration {
	return max(bound-i.most-operation, bound/2, min(i.took, i.tookBefore))
}

// stall is how long sequences that decode usually wait at most, where that is above the bound or, where they take long
// by themselves, above half of it beside their own time. Otherwise it is 0.
func (i *innerPasses) stall(bound time.Duration) time.Duration {
	took := min(i.took, i.tookBefore)
	gap := i.waitLimit(bound, i.usual) + i.usual + took
	if i.batches < 8 || gap <= max(bound, took+bound/2) {
		return 0
	}
	return gap
}
