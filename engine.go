package sparrow

import (
	"context"
	"errors"
	"fmt"
	"sync"

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
	inWords sample.Mask     // every token but the markers of tool calls; nil where calls have none
	reuse   bool            // pages are kept for later prompts
	scratch *sample.Scratch // vocabulary size for callers; contents for the loop

	mu      sync.Mutex
	inbox   []*job
	cancels []*job
	queued  int  // accepted sequences that have not run yet
	closing bool // nothing is accepted any more
	halt    bool // stop now, failing what runs
	gone    bool // the loop has ended
	stats   Stats
	plans   []PlanRecord // ring
	planAt  int

	wake     chan struct{} // capacity 1
	stopped  chan struct{} // closed when the loop has ended
	once     sync.Once
	closeErr error // of the release, set inside once

	// ---- owned by the step loop ----
	source *family.Source
	dev    kernel.Device
	memory memory // of the device
	model  model.Model
	// stateful is the model where it keeps a state of every sequence, else nil.
	stateful model.Stateful
	windowed model.Windowed // the same where its window rows have pages of their own, else nil
	runner   runner
	pool     *kv.Pool
	sched    *sched.Scheduler
	works    []step.Work
	drafter  *drafter // nil when nothing is drafted
	steps    int64
	after    func() // a test's look at everything after each step
}

// runner carries out a step; a step.Runner does.
type runner interface {
	Run([]step.Work) (step.Result, error)
	Draft(works []step.Draft, chained bool) (step.Result, error)
}

// Info describes the engine.
func (e *Engine) Info() Info { return e.info }

// Stats is a snapshot of counters. What a request's last event told is in it.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	for _, j := range e.inbox {
		s.Waiting += len(j.choices)
	}
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
// Every call returns once the engine is stopped and its memory is given back, with the error of that.
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
	e.once.Do(func() { e.closeErr = errors.Join(e.dev.Close(), e.source.Close()) })
	return e.closeErr
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
	if e.queued+len(j.choices) > e.cfg.MaxQueue {
		e.stats.Refused++
		return fmt.Errorf("%w: %d sequences wait, at most %d may", ErrQueueFull, e.queued, e.cfg.MaxQueue)
	}
	e.queued += len(j.choices)
	e.stats.Requests++
	e.inbox = append(e.inbox, j)
	e.signal()
	return nil
}

// cancel asks the loop to drop a job.
func (e *Engine) cancel(j *job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		return // every job has ended
	}
	e.cancels = append(e.cancels, j)
	e.signal()
}
