package engine

import (
	"context"
	"log/slog"
	"time"

	"sparrow/internal/kv/prefix"
	"sparrow/internal/kv/tier"
	"sparrow/internal/model"
	"sparrow/internal/model/placement"
	"sparrow/internal/model/usage"
	"sparrow/internal/spec"
	"sparrow/plan"
)

// Config holds the parameters of New other than the model. Every size is set; package sparrow has the defaults.
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
	// MaxStall bounds how long prompts delay decoding sequences; 0 means no bound.
	MaxStall      time.Duration
	NoReuse       bool
	NoGraphs      bool            // passes are not captured, on devices that could
	NoOverlap     bool            // batches are formed when the one before has ended and the host has sampled
	PadStates     bool            // step.Limits.PadStates
	CacheEvents   prefix.Listener // called for changes of the prefix cache; nil means none
	EOS           []int32         // tokens that end a sequence
	WeightBytes   int64           // memory of the weights
	ReservedBytes int64           // memory of a device for its operations, in addition to weights, cache and passes
	Packed        bool            // the weights are a copy in memory of their own
	// RecordBytes bounds the recorded rows of a request; 0 means DefaultRecordBytes, a negative value disables
	// recording.
	RecordBytes int64
	SelfTest    SelfTest
	Watchdog    time.Duration // how long a pass may take before it is reported; 0 is forever
	Log         *slog.Logger
	Tiers       tier.Options // where pages are kept outside the device
	Weights     tier.Weights // name the weights there
	Clock       Clock        // nil is the machine's
	// Usage counts the chosen experts; it may hold counts of earlier engines. nil counts nothing. The engine owns it
	// until its loop has ended.
	Usage *usage.Table
	// Moves is the current placement of experts for a model whose experts may move: the experts chosen most often, by
	// Usage, move to the device between steps. Usage must be set. nil moves none. The engine changes it until its loop
	// has ended.
	Moves *placement.Placement
	// Observe is called by the loop after every iteration, and after every batch between the operations of another; it
	// may call Check. It may be nil.
	Observe func(between bool)
	// Diagnose may add a known cause to the error of a pass or of sampling. It may be nil.
	Diagnose func(error) error
}

// Engine serves one model. Its methods may be called from any goroutine.
type Engine struct {
	*setup
	intake *intake
	inbox  *inbox
	tally  *tally
	loop   *loop
}

// Run runs the loop. It returns when the engine is closed.
func (e *Engine) Run() {
	e.cfg.Clock.Go(func() { e.loop.watchdog.watch(e.inbox.stopped) })
	e.loop.run()
}

// Info returns the description of the engine.
func (e *Engine) Info() Info { return e.info }

// Stats returns a snapshot of the counters. It includes everything up to the last event that a job's reader has
// received.
func (e *Engine) Stats() Stats {
	e.tally.Lock()
	defer e.tally.Unlock()
	s := e.tally.stats
	for _, j := range e.inbox.jobs {
		s.Waiting += len(j.choices)
	}
	s.Plans = append([]PlanCount(nil), s.Plans...)
	s.LongestGap = e.tally.gaps.longest(e.now())
	if t, ok := e.loop.model.(model.Tabled); ok {
		s.Tables = t.Tables()
	}
	if e.loop.tiers != nil {
		s.Tiers.Tiers, s.Tiers.Identified = e.loop.tiers.counts(), e.loop.tiers.stack.Identified()
	}
	return s
}

// Plans returns the recent forward passes, oldest first.
func (e *Engine) Plans() []PlanRecord {
	e.tally.Lock()
	defer e.tally.Unlock()
	return e.tally.plans.all()
}

// Close stops the loop: no new request is accepted, and requests in flight run to their end. If ctx ends first they
// fail with ErrClosed. Every call returns after the loop has ended; the model is not used after that.
func (e *Engine) Close(ctx context.Context) {
	e.inbox.stop(ctx.Err() != nil)
	end := context.AfterFunc(ctx, func() { e.inbox.stop(true) })
	defer end()
	e.cfg.Clock.Wait(e.inbox.stopped, 0)
}

// Flush empties the prefix cache between two iterations and returns when that is done.
func (e *Engine) Flush(ctx context.Context) error {
	e.tally.Lock()
	closing := e.inbox.closing
	e.tally.Unlock()
	if closing {
		return ErrClosed
	}
	return e.inbox.await(ctx, &e.inbox.flushes)
}

// Submit checks a request and queues it.
func (e *Engine) Submit(r Request) (*Job, error) {
	j, err := e.intake.prepare(r)
	if err != nil {
		return nil, err
	}
	if r.Admit != nil {
		if err := r.Admit(r.givenTokens()); err != nil {
			return nil, err
		}
	}
	if err := e.inbox.add(j); err != nil {
		return nil, err
	}
	return j, nil
}

// Wait estimates how long a request would wait before it runs. Requests without a tenant are identified by their
// source.
func (e *Engine) Wait(tenant, source string) time.Duration {
	e.tally.Lock()
	defer e.tally.Unlock()
	return e.inbox.waits.estimate(turnKey(tenant, source, false), e.now())
}
