package engine

import (
	"fmt"
	"runtime/debug"
)

// loop runs iterations until the engine is closed.
func (e *Engine) loop() {
	defer close(e.stopped)
	defer e.shutDown()
	for {
		halt, closing := e.receive()
		if halt {
			return
		}
		restored := e.tiers.advance()
		e.noteWaiting()
		if items := e.sched.Schedule(); len(items) > 0 {
			e.iterate(items)
			e.tiers.settle()
			e.readExperts(usageEvery)
			continue
		}
		if e.flight != nil {
			e.finishFlight()
			e.tiers.settle()
			continue
		}
		if e.runsUnseen() {
			e.seeDrafts(nil)
		}
		if e.tiers.settle(); restored {
			continue
		}
		if closing && !e.sched.Restoring() {
			return
		}
		e.readExperts(usageIdle)
		e.cfg.Clock.Wait(e.wake, 0)
	}
}

// shutDown ends the loop: every choice that is left fails, and nothing is accepted any more. A panic that reached the
// loop means that the state shared by all requests can no longer be trusted; the engine stops, the process goes on.
func (e *Engine) shutDown() {
	err := ErrClosed
	panicked := recover()
	if f := e.flight; f != nil {
		e.flight = nil
		_, _ = e.wait(f) // nobody needs what it computes, but the device has to be done with it
	}
	if e.runsUnseen() {
		_, _ = e.waitAhead(e.passes, &e.drafter.unseen)
	}
	if panicked != nil {
		e.cfg.Log.Error("the engine's loop panicked; the engine stops", "value", panicked, "stack",
			string(debug.Stack()))
		err = fmt.Errorf("%w: its loop panicked: %v", ErrClosed, panicked)
	}
	if panicked == nil {
		e.readExperts(0)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closing, e.gone = true, true
	for _, q := range e.sched.All() {
		c := q.Owner.(*choice)
		if panicked == nil {
			e.end(c, FinishError, err)
		} else {
			e.conclude(c, FinishError, err) // the scheduler and the pool are left as they are
		}
	}
	for _, j := range e.inbox {
		for _, c := range j.choices {
			e.conclude(c, FinishError, err)
		}
	}
	e.inbox, e.cancels = nil, nil
	e.tiers.close()
	e.passes.runner.Close()
	if inner := e.inner.passes; inner != nil {
		inner.runner.Close()
	}
	e.stats.Running, e.stats.Waiting = 0, 0
}

// receive takes arrivals and cancellations.
func (e *Engine) receive() (halt, closing bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, j := range e.inbox {
		for _, c := range j.choices {
			if err := e.sched.Add(&c.seq); err != nil {
				e.end(c, FinishError, fmt.Errorf("%w: %w", ErrStep, err))
			} else {
				e.tiers.seek(c)
			}
		}
		e.inbox[i] = nil
	}
	e.inbox = e.inbox[:0]
	for i, j := range e.cancels {
		for _, c := range j.choices {
			e.end(c, FinishCancelled, nil)
		}
		e.cancels[i] = nil
	}
	e.cancels = e.cancels[:0]
	for _, done := range e.settles { // what was computed before is settled when the loop comes here again
		close(done)
	}
	e.settles = nil
	if len(e.flushes) > 0 {
		for _, p := range e.pools {
			p.Reset()
		}
		e.tiers.clear()
		for _, done := range e.flushes {
			close(done)
		}
		e.flushes = nil
	}
	e.publish()
	return e.halt, e.closing
}

// fail ends a choice that cannot be computed.
func (e *Engine) fail(c *choice, err error) {
	err = e.diagnose(err)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failLocked(c, err)
}

// diagnose adds the cause to an error, where it is known.
func (e *Engine) diagnose(err error) error {
	if e.cfg.Diagnose == nil {
		return err
	}
	return e.cfg.Diagnose(err)
}

// failLocked is fail for callers that hold mu.
func (e *Engine) failLocked(c *choice, err error) {
	e.cfg.Log.Error("request failed", "id", c.job.request.ID, "choice", c.index, "error", err)
	e.end(c, FinishError, fmt.Errorf("%w: %w", ErrStep, err))
}

// end finishes a choice and gives its pages back. The caller holds mu.
func (e *Engine) end(c *choice, why Finish, err error) {
	if c.ended {
		return
	}
	e.sched.Remove(&c.seq)
	e.tiers.release(c)
	e.publish()
	e.conclude(c, why, err)
}

// leaveQueue counts a choice of a job that waits for its first batch no longer. The caller holds mu.
func (e *Engine) leaveQueue(j *Job) {
	j.queued--
	e.queued.done(j.party, j.queued == 0)
}

// conclude updates the counters of a finished choice and notifies its reader. The caller holds mu.
func (e *Engine) conclude(c *choice, why Finish, err error) {
	if c.ended {
		return
	}
	c.ended = true
	if !c.ran {
		e.leaveQueue(c.job)
	}
	j := c.job
	j.open--
	switch why {
	case FinishCancelled:
		j.cancelled = true
	case FinishError:
		j.failed = true
	}
	ev := Event{Choice: c.index, Token: -1, Finish: why, Err: err, Matched: c.matched}
	if j.open == 0 {
		e.records -= j.records
		switch {
		case j.failed:
			e.stats.Failed++
		case j.cancelled:
			e.stats.Aborted++
		default:
			e.stats.Finished++
		}
		if j.admitted.IsZero() {
			e.waits.leave(j.party)
		}
		j.complete(e.now())
		ev.Last = true
	}
	j.queue.push(ev)
}
