package sparrow

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sparrow/chat"
	"sparrow/grammar"
	"sparrow/kernel"
	"sparrow/kv"
	"sparrow/model"
	"sparrow/model/family"
	"sparrow/sample"
	"sparrow/sched"
	"sparrow/step"
	"sparrow/tokenizer"
)

// Engine serves one model. Its methods may be called from any goroutine; the step loop owns everything below the line.
type Engine struct {
	cfg     Config
	info    Info
	tok     *tokenizer.Tokenizer // nil without one
	format  chat.Format          // nil without one
	grammar *grammar.Tokens      // nil without one
	eos     []int32
	scratch *sample.Scratch // vocabulary size for callers; contents for the loop

	mu      sync.Mutex
	inbox   []*job
	cancels []*job
	closing bool
	halt    bool // stop now, failing what runs
	stats   Stats
	plans   []PlanRecord // ring
	planAt  int

	wake    chan struct{} // capacity 1
	stopped chan struct{} // closed when the loop has ended
	once    sync.Once

	// ---- owned by the step loop ----
	source *family.Source
	dev    kernel.Device
	model  model.Model
	runner *step.Runner
	pool   *kv.Pool
	sched  *sched.Scheduler
	works  []step.Work
	steps  int64
	check  func() error // a test's look at everything after each step
}

// Info describes the engine.
func (e *Engine) Info() Info { return e.info }

// Stats is a snapshot of counters, taken after the latest step.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Plans = append([]PlanCount(nil), s.Plans...)
	return s
}

// Plans lists recent steps, oldest first.
func (e *Engine) Plans() []PlanRecord {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := append([]PlanRecord(nil), e.plans[e.planAt:]...)
	return append(out, e.plans[:e.planAt]...)
}

// Close stops the engine: no request is accepted any more, those in flight run to their end. When ctx ends first they fail with ErrClosed.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	e.closing = true
	e.mu.Unlock()
	e.signal()
	select {
	case <-e.stopped:
	case <-ctx.Done():
		e.mu.Lock()
		e.halt = true
		e.mu.Unlock()
		e.signal()
		<-e.stopped
	}
	var err error
	e.once.Do(func() {
		if err = e.dev.Close(); err == nil {
			err = e.source.Close()
		}
	})
	return err
}

// signal wakes the loop.
func (e *Engine) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// submit hands a prepared job to the loop.
func (e *Engine) submit(j *job) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return ErrClosed
	}
	waiting := e.stats.Waiting + len(j.choices)
	for _, q := range e.inbox {
		waiting += len(q.choices)
	}
	if waiting > e.cfg.MaxQueue {
		e.stats.Refused++
		return fmt.Errorf("%w: %d sequences wait, at most %d may", ErrQueueFull, waiting-len(j.choices), e.cfg.MaxQueue)
	}
	e.stats.Requests++
	e.inbox = append(e.inbox, j)
	e.signal()
	return nil
}

// cancel asks the loop to drop a job.
func (e *Engine) cancel(j *job) {
	e.mu.Lock()
	e.cancels = append(e.cancels, j)
	e.mu.Unlock()
	e.signal()
}

// loop is the life of the engine: take what arrived, form a step, run it.
func (e *Engine) loop() {
	defer close(e.stopped)
	for {
		halt, closing := e.receive()
		if halt {
			e.failAll()
			return
		}
		items := e.sched.Next()
		if len(items) > 0 {
			e.step(items)
			continue
		}
		if closing {
			return
		}
		<-e.wake
	}
}

// receive takes arrivals and cancellations.
func (e *Engine) receive() (halt, closing bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, j := range e.inbox {
		for _, c := range j.choices {
			if err := e.sched.Add(&c.seq); err != nil {
				e.end(c, FinishError, fmt.Errorf("%w: %w", ErrQueueFull, err))
			}
		}
		e.inbox[i] = nil
	}
	e.inbox = e.inbox[:0]
	for i, j := range e.cancels {
		for _, c := range j.choices {
			if !c.ended {
				e.end(c, FinishCancelled, nil)
			}
		}
		e.cancels[i] = nil
	}
	e.cancels = e.cancels[:0]
	e.stats.Running, e.stats.Waiting = e.sched.Running(), e.sched.Waiting()
	return e.halt, e.closing
}

// failAll ends every choice that is left.
func (e *Engine) failAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, q := range e.sched.All() {
		e.end(q.Owner.(*choice), FinishError, ErrClosed)
	}
	e.stats.Running, e.stats.Waiting = 0, 0
}

// end finishes a choice: its pages go back, its stream learns why. The caller holds mu.
func (e *Engine) end(c *choice, why Finish, err error) {
	if c.ended {
		return
	}
	c.ended = true
	e.sched.Remove(&c.seq)
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
