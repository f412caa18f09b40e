package sparrow

import (
	"fmt"
	"runtime/debug"
	"time"
)

// loop is the life of the engine: take what arrived, form a step, run it.
func (e *Engine) loop() {
	defer close(e.stopped)
	defer e.leave()
	for {
		halt, closing := e.receive()
		if halt {
			return
		}
		if items := e.sched.Next(); len(items) > 0 {
			e.step(items)
			continue
		}
		if closing {
			return
		}
		<-e.wake
	}
}

// leave ends the loop: every choice that is left fails, and nothing is accepted any more. A panic that reached the loop means that the state shared by all requests
// can no longer be trusted; the engine stops, the process goes on.
func (e *Engine) leave() {
	err := ErrClosed
	broken := recover()
	if broken != nil {
		e.cfg.Log.Error("the step loop panicked; the engine stops", "value", broken, "stack", string(debug.Stack()))
		err = fmt.Errorf("%w: its step loop panicked: %v", ErrClosed, broken)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closing, e.gone = true, true
	for _, q := range e.sched.All() {
		c := q.Owner.(*choice)
		if broken == nil {
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
	e.publish()
	return e.halt, e.closing
}

// finish ends a choice from inside a step.
func (e *Engine) finish(c *choice, why Finish, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.end(c, why, err)
}

// end finishes a choice: its pages go back, its stream learns why. The caller holds mu.
func (e *Engine) end(c *choice, why Finish, err error) {
	if c.ended {
		return
	}
	e.sched.Remove(&c.seq)
	e.publish()
	e.conclude(c, why, err)
}

// conclude does the books of a choice that has ended and tells its stream. The caller holds mu.
func (e *Engine) conclude(c *choice, why Finish, err error) {
	if c.ended {
		return
	}
	c.ended = true
	if !c.ran {
		e.queued--
	}
	j := c.job
	j.open--
	switch why {
	case FinishCancelled:
		j.cancelled = true
	case FinishError:
		j.failed = true
	}
	ev := rawEvent{choice: c.index, token: -1, finish: why, err: err, matched: c.matched}
	if j.open == 0 {
		switch {
		case j.failed:
			e.stats.Failed++
		case j.cancelled:
			e.stats.Aborted++
		default:
			e.stats.Finished++
		}
		j.finish(time.Now())
		ev.last = true
	}
	j.queue.push(ev)
}
