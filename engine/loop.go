package engine

import (
	"fmt"
	"runtime/debug"
	"time"

	"sparrow/internal/kv"
	"sparrow/internal/sched"
)

// loop forms and runs batches. Only the goroutine that calls Run uses it.
type loop struct {
	*setup
	inbox *inbox
	tally *tally

	sched    *sched.Scheduler
	pools    []*kv.Pool // one pool, or one pool for each rank
	passes   *passes
	inner    innerPasses
	watchdog watchdog
	last     *batch        // batch that is running or drafting while the next batch is formed; else nil
	batches  [2]batch      // memory for batches
	outcomes []outcome     // memory for the outcomes of one item
	stalled  time.Duration // longest stall above MaxStall that was logged so far
	waiting  time.Time     // time since which decoding sequences wait; zero if the next batch includes them
	drafter  *drafter      // nil if drafting is disabled
	tiers    *tiers        // nil if the prefix cache has no tiers
	experts  experts
}

// run runs iterations until the engine is closed.
func (l *loop) run() {
	defer close(l.inbox.stopped)
	defer l.shutDown()
	for {
		halt, closing := l.receive()
		if halt {
			return
		}
		restored := l.tiers.advance()
		if l.turn() {
			l.tiers.settle()
			l.readExperts(usageEvery)
			continue
		}
		if l.tiers.settle(); restored {
			continue
		}
		if closing && !l.sched.Restoring() {
			return
		}
		l.readExperts(usageIdle)
		l.cfg.Clock.Wait(l.inbox.wake, 0)
	}
}

// shutDown ends the loop: every remaining choice fails, and no request is accepted. A panic that reached the loop means
// that the state shared by all requests may be invalid; so the engine stops and the process continues.
func (l *loop) shutDown() {
	err := ErrClosed
	panicked := recover()
	// The results of the last batch are not needed, but the device must have finished it.
	if last := l.last; last != nil {
		if last.stage == stageRunning {
			_, _ = l.wait(last)
		}
		l.drafter.forget(last)
		l.last = nil
	}
	if panicked != nil {
		l.cfg.Log.Error("the engine's loop panicked; the engine stops", "value", panicked, "stack",
			string(debug.Stack()))
		err = fmt.Errorf("%w: its loop panicked: %v", ErrClosed, panicked)
	}
	if panicked == nil {
		l.readExperts(0)
	}
	l.tally.Lock()
	defer l.tally.Unlock()
	l.inbox.closing, l.inbox.gone = true, true
	for _, q := range l.sched.All() {
		c := q.Owner.(*choice)
		if panicked == nil {
			l.end(c, FinishError, err)
		} else {
			l.conclude(c, FinishError, err) // the scheduler and the pages are not updated: their state may be invalid
		}
	}
	for _, j := range l.inbox.jobs {
		for _, c := range j.choices {
			l.conclude(c, FinishError, err)
		}
	}
	l.inbox.jobs, l.inbox.cancels = nil, nil
	l.tiers.close()
	l.passes.runner.Close()
	if inner := l.inner.passes; inner != nil {
		inner.runner.Close()
	}
	l.tally.stats.Running, l.tally.stats.Waiting = 0, 0
}

// receive reads arrivals and cancellations from the inbox.
func (l *loop) receive() (halt, closing bool) {
	l.tally.Lock()
	defer l.tally.Unlock()
	for i, j := range l.inbox.jobs {
		for _, c := range j.choices {
			if err := l.sched.Add(&c.seq); err != nil {
				l.end(c, FinishError, fmt.Errorf("%w: %w", ErrStep, err))
			} else {
				l.tiers.seek(c)
			}
		}
		l.inbox.jobs[i] = nil
	}
	l.inbox.jobs = l.inbox.jobs[:0]
	for i, j := range l.inbox.cancels {
		for _, c := range j.choices {
			l.end(c, FinishCancelled, nil)
		}
		l.inbox.cancels[i] = nil
	}
	l.inbox.cancels = l.inbox.cancels[:0]
	for _, done := range l.inbox.settles { // all pages computed before this iteration are stored in the tiers now
		close(done)
	}
	l.inbox.settles = nil
	if len(l.inbox.flushes) > 0 {
		for _, p := range l.pools {
			p.Reset()
		}
		l.tiers.clear()
		for _, done := range l.inbox.flushes {
			close(done)
		}
		l.inbox.flushes = nil
	}
	l.publish()
	return l.inbox.halt, l.inbox.closing
}

// readExperts reads the counts of chosen experts, at most once per interval.
func (l *loop) readExperts(every time.Duration) {
	if err := l.experts.read(every); err != nil {
		l.lose(err)
	}
}

func (l *loop) fail(c *choice, err error) {
	err = l.cfg.diagnose(err)
	l.tally.Lock()
	defer l.tally.Unlock()
	l.failLocked(c, err)
}

// failLocked ends a choice with an error, like fail, for callers that hold the lock.
func (l *loop) failLocked(c *choice, err error) {
	l.cfg.Log.Error("request failed", "id", c.job.request.ID, "choice", c.index, "error", err)
	l.end(c, FinishError, fmt.Errorf("%w: %w", ErrStep, err))
}

// end finishes a choice and releases its pages. The caller holds the lock.
func (l *loop) end(c *choice, why Finish, err error) {
	if c.ended {
		return
	}
	l.sched.Remove(&c.seq)
	l.tiers.release(c)
	l.publish()
	l.conclude(c, why, err)
}

// conclude updates the counters of a finished choice and notifies its reader. The caller holds the lock.
func (l *loop) conclude(c *choice, why Finish, err error) {
	if c.ended {
		return
	}
	c.ended = true
	if !c.ran {
		l.inbox.leaveQueue(c.job)
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
		l.inbox.records -= j.records
		switch {
		case j.failed:
			l.tally.stats.Failed++
		case j.cancelled:
			l.tally.stats.Aborted++
		default:
			l.tally.stats.Finished++
		}
		if j.admitted.IsZero() {
			l.inbox.waits.leave(j.turnKey)
		}
		j.complete(l.now())
		if release := j.request.Guide.Release; release != nil {
			release()
		}
		ev.Last = true
	}
	j.queue.push(ev)
}
