package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"sparrow/kv"
	"sparrow/kv/tier"
	"sparrow/model"
	"sparrow/plan"
	"sparrow/sample"
	"sparrow/sched"
	"sparrow/spec"
)

// Config is what New needs beside a model. Every size is set; package sparrow has the defaults.
type Config struct {
	Policy        plan.Policy
	Draft         spec.Setting
	CacheTokens   int // 0 sizes the cache by memory
	ContextTokens int // bounds one sequence; 0 means the model's own limit, or the cache's where that is smaller
	StepTokens    int // bounds the new tokens of one batch
	MaxRunning    int // bounds the sequences in a batch
	MaxQueue      int // bounds the sequences that wait
	PlanHistory   int // how many plans are kept for inspection
	NoReuse       bool
	NoGraphs      bool    // passes are not captured, on devices that could
	EOS           []int32 // tokens that end a sequence
	WeightBytes   int64   // memory that the weights take beside the cache
	ReservedBytes int64   // memory of a device that its operations take beside weights, cache and passes
	Packed        bool    // the weights are a copy in memory of their own
	SelfTest      SelfTest
	Watchdog      time.Duration // how long a pass may take before it is reported; 0 is for ever
	Log           *slog.Logger
	Tiers         tier.Options     // where pages are kept outside the device
	Weights       tier.Fingerprint // identifies the weights there
	// Diagnose may add to the error of a pass or of sampling what is known of its cause; nil adds nothing.
	Diagnose func(error) error
}

// Engine serves one model. Its exported methods may be called from any goroutine; the loop owns everything below the
// line.
type Engine struct {
	cfg     Config
	info    Info
	reuse   bool            // pages are kept for later prompts
	scratch *sample.Scratch // its size is read by callers, its contents are used by the loop

	mu      sync.Mutex
	inbox   []*Job
	cancels []*Job
	flushes []chan struct{} // closed once the loop has come around
	queued  backlog
	closing bool  // nothing is accepted any more
	halt    bool  // stop now, failing what runs
	gone    bool  // the loop has ended
	lost    error // why the device can no longer be used; nil while it can
	stats   Stats
	plans   []PlanRecord // ring
	planAt  int

	watchdog watchdog
	wake     chan struct{} // capacity 1
	stopped  chan struct{} // closed when the loop has ended

	// ---- owned by the loop ----
	model  model.Model
	memory deviceMemory
	// stateful is the model where it keeps a state of every sequence, else nil.
	stateful model.Stateful
	windowed model.Windowed // the same where its window rows have pages of their own, else nil
	passes   passes
	pool     *kv.Pool
	sched    *sched.Scheduler
	outcomes []outcome // memory for those of one item
	drafter  *drafter  // nil when nothing is drafted
	tiers    *tiers    // nil without tiers of the prefix cache

	afterIteration func() // called by tests
}

// Run is the loop. It returns when the engine is closed.
func (e *Engine) Run() {
	go e.watch() // ends with the loop
	e.loop()
}

// Info describes the engine.
func (e *Engine) Info() Info { return e.info }

// Stats is a snapshot of counters. It includes everything up to the last event that a job's reader has seen.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	for _, j := range e.inbox {
		s.Waiting += len(j.choices)
	}
	s.Plans = append([]PlanCount(nil), s.Plans...)
	if e.tiers != nil {
		s.Tiers.Tiers = e.tiers.counts()
	}
	return s
}

// Plans lists recent forward passes, oldest first.
func (e *Engine) Plans() []PlanRecord {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := append([]PlanRecord(nil), e.plans[e.planAt:]...)
	return append(out, e.plans[:e.planAt]...)
}

// Close stops the loop: no request is accepted any more, those in flight run to their end. When ctx ends first they
// fail with ErrClosed. Every call returns once the loop has ended; the model is not used after that.
func (e *Engine) Close(ctx context.Context) {
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
}

// signal wakes the loop.
func (e *Engine) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Submit checks a request and queues it.
func (e *Engine) Submit(r Request) (*Job, error) {
	j, err := e.prepare(r)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return nil, ErrClosed
	}
	if e.lost != nil {
		return nil, e.lost
	}
	if err := e.queued.add(r.Tenant, len(j.choices)); err != nil {
		e.stats.Refused++
		return nil, err
	}
	e.stats.Requests++
	e.inbox = append(e.inbox, j)
	e.signal()
	return j, nil
}

// cancel queues a job for the loop to end.
func (e *Engine) cancel(j *Job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		return // every job has ended
	}
	e.cancels = append(e.cancels, j)
	e.signal()
}
