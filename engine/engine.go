package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"sparrow/kv"
	"sparrow/kv/prefix"
	"sparrow/kv/tier"
	"sparrow/model"
	"sparrow/model/placement"
	"sparrow/model/usage"
	"sparrow/plan"
	"sparrow/sample"
	"sparrow/sched"
	"sparrow/spec"
)

// Config is what New needs beside a model. Every size is set; package sparrow has the defaults.
type Config struct {
	Policy        plan.Policy
	Draft         spec.Setting
	DraftAccept   float64 // for benchmarks: the share of drafts that count as right, whatever they are; 0 compares them
	CacheTokens   int     // 0 sizes the cache by memory
	ContextTokens int     // bounds one sequence; 0 means the model's own limit, or the cache's where that is smaller
	StepTokens    int     // bounds the new tokens of one batch
	MaxRunning    int     // bounds the sequences in a batch
	MaxQueue      int     // bounds the sequences that wait
	PlanHistory   int     // how many plans are kept for inspection
	// MaxStall bounds how long prompts hold up sequences that decode; 0 is no bound.
	MaxStall      time.Duration
	NoReuse       bool
	NoGraphs      bool            // passes are not captured, on devices that could
	NoOverlap     bool            // batches are formed when the one before has ended and the host has sampled
	PadStates     bool            // step.Limits.PadStates
	CacheEvents   prefix.Listener // told of the prefix cache's changes; nil is nobody
	EOS           []int32         // tokens that end a sequence
	WeightBytes   int64           // memory that the weights take beside the cache
	ReservedBytes int64           // memory of a device that its operations take beside weights, cache and passes
	Packed        bool            // the weights are a copy in memory of their own
	// RecordBytes bounds the recorded choices of a request; 0 is DefaultRecordBytes, below 0 nothing is
	// recorded.
	RecordBytes int64
	SelfTest    SelfTest
	Watchdog    time.Duration // how long a pass may take before it is reported; 0 is for ever
	Log         *slog.Logger
	Tiers       tier.Options     // where pages are kept outside the device
	Weights     tier.Fingerprint // identifies the weights there
	Clock       Clock            // nil is the machine's
	// Usage takes the counts of chosen experts, those of engines before it included; nil counts nothing. The engine
	// owns it until its loop has ended.
	Usage *usage.Table
	// Moves is where experts are, of a model whose experts may move: those that are chosen most come to the device
	// between steps, by Usage, which must be given. nil moves none. The engine changes it until its loop has ended.
	Moves *placement.Placement
	// Observe is called by the loop after every iteration, and after every batch between the operations of another;
	// it may call Check. nil observes nothing.
	Observe func(between bool)
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
	discard bool            // tiers give up all pages when the engine closes
	settles []chan struct{} // closed once the loop has come around
	flushes []chan struct{} // closed when the cache is empty
	queued  backlog
	records int64 // bytes that jobs in flight may record
	waits   waits
	closing bool  // nothing is accepted any more
	halt    bool  // stop now, failing what runs
	gone    bool  // the loop has ended
	lost    error // why the device can no longer be used; nil while it can
	stats   Stats
	gaps    gaps
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
	passes   *passes
	inner    innerPasses
	pools    []*kv.Pool // one, or one of each rank
	sched    *sched.Scheduler
	overlap  bool          // the next batch is formed while a pass runs
	draws    bool          // the device draws tokens
	flight   *flight       // the pass that runs, while the next batch is formed; else nil
	flights  [2]flight     // memory
	outcomes []outcome     // memory for those of one item
	stalled  time.Duration // the stall above MaxStall that was reported
	waiting  time.Time     // since when sequences that decode wait; zero where the next batch has them
	drafter  *drafter      // nil when nothing is drafted
	tiers    *tiers        // nil without tiers of the prefix cache
	counted  time.Time     // when counts of experts were read
	recent   *usage.Table  // choices of late, by which experts move
}

// Run is the loop. It returns when the engine is closed.
func (e *Engine) Run() {
	e.cfg.Clock.Go(e.watch) // ends with the loop
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
	s.LongestGap = e.gaps.longest(e.now())
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
	e.stop(ctx.Err() != nil)
	end := context.AfterFunc(ctx, func() { e.stop(true) })
	defer end()
	e.cfg.Clock.Wait(e.stopped, 0)
}

// stop tells the loop to end, at once or when everything that was accepted has ended.
func (e *Engine) stop(halt bool) {
	e.mu.Lock()
	e.closing, e.halt = true, e.halt || halt
	e.mu.Unlock()
	e.signal()
}

// Flush empties the prefix cache between two iterations and waits for that.
func (e *Engine) Flush(ctx context.Context) error {
	e.mu.Lock()
	closing := e.closing
	e.mu.Unlock()
	if closing {
		return ErrClosed
	}
	return e.await(ctx, &e.flushes)
}

// await adds a channel to a list and waits until the loop closes it.
func (e *Engine) await(ctx context.Context, list *[]chan struct{}) error {
	done := make(chan struct{})
	e.mu.Lock()
	*list = append(*list, done)
	e.mu.Unlock()
	e.signal()
	select {
	case <-done:
		return nil
	case <-e.stopped:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
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
	if r.Admit != nil {
		if err := r.Admit(r.givenTokens()); err != nil {
			return nil, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return nil, ErrClosed
	}
	if e.lost != nil {
		return nil, e.lost
	}
	if err := e.admitRecords(j); err != nil {
		e.stats.Refused++
		return nil, err
	}
	if err := e.queued.add(j.party, len(j.choices)); err != nil {
		e.records -= j.records
		e.stats.Refused++
		return nil, err
	}
	e.stats.Requests++
	e.waits.queue(j.party, j.arrived)
	e.inbox = append(e.inbox, j)
	e.signal()
	return j, nil
}

// Wait estimates how long a request of a tenant, or without one from a source, would wait before it runs.
func (e *Engine) Wait(tenant, source string) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waits.estimate(party(tenant, source), e.now())
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
