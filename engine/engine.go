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

// Config holds the parameters of New other than the model. Package sparrow sets the defaults; New does not.
type Config struct {
	Policy plan.Policy
	Draft  spec.Setting
	// DraftAccept is used by benchmarks: it is the probability with which a draft counts as accepted, independent of
	// the model's tokens. 0 means that drafts are compared with the target's tokens.
	DraftAccept float64
	CacheTokens int // size of the cache in tokens; 0 chooses a size by the free memory
	// ContextTokens is the maximum length of a sequence; 0 means the model's limit, or the size of the cache if that is
	// smaller.
	ContextTokens int
	StepTokens    int // maximum number of new tokens in one batch
	MaxRunning    int // maximum number of sequences in a batch
	MaxQueue      int // maximum number of waiting sequences
	PlanHistory   int // number of plans kept for inspection
	// MaxStall is the maximum time that prompts delay decoding sequences; 0 means no limit.
	MaxStall time.Duration
	NoReuse  bool
	NoGraphs bool // disables captured graphs
	// NoOverlap disables overlap: a batch is formed after the previous batch has ended and the host has its tokens.
	NoOverlap     bool
	PadStates     bool            // value of step.Limits.PadStates
	CacheEvents   prefix.Listener // called for changes of the prefix cache; may be nil
	EOS           []int32         // tokens that end a sequence
	WeightBytes   int64           // bytes of memory for the weights
	ReservedBytes int64           // bytes of device memory for operations, in addition to weights, cache and passes
	Packed        bool            // the weights were copied to memory, so that they are not mapped files
	// RecordBytes is the maximum size of the recorded rows of a request; 0 means DefaultRecordBytes, a negative value
	// disables recording.
	RecordBytes int64
	SelfTest    SelfTest
	Watchdog    time.Duration // time after which a pass that has not ended is reported; 0 disables this
	Log         *slog.Logger
	Tiers       tier.Options // storage of pages outside the device
	Weights     tier.Weights // identities of the weights, by which pages in tiers are found
	Clock       Clock        // clock of the engine; nil means the system clock
	// Usage is the table to which the engine adds the numbers of chosen experts; it may hold counts of earlier engines.
	// nil disables counting. Only the engine may use the table until its loop has ended.
	Usage *usage.Table
	// Moves is the current placement of experts, for a model whose experts can move: the experts chosen most often, by
	// Usage, move to the device between steps. Usage must be set. nil disables moving. The engine changes the placement
	// until its loop has ended.
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

// Run forms and runs batches until the engine is closed.
func (e *Engine) Run() {
	e.cfg.Clock.Go(func() { e.loop.watchdog.watch(e.inbox.stopped) })
	e.loop.run()
}

// Info returns the description of the engine.
func (e *Engine) Info() Info { return e.info }

// Stats returns a snapshot of the counters. It includes all work up to the latest event that any reader has received.
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

// Close stops the loop: no new request is accepted, and requests in flight run to their end. If ctx ends first, these
// requests fail with ErrClosed. Close returns when the loop has ended and the model is no longer used.
func (e *Engine) Close(ctx context.Context) {
	e.inbox.stop(ctx.Err() != nil)
	end := context.AfterFunc(ctx, func() { e.inbox.stop(true) })
	defer end()
	e.cfg.Clock.Wait(e.inbox.stopped, 0)
}

// Flush empties the prefix cache between two iterations of the loop. It returns when the cache is empty, or with an
// error if ctx or the engine ends first.
func (e *Engine) Flush(ctx context.Context) error {
	e.tally.Lock()
	closing := e.inbox.closing
	e.tally.Unlock()
	if closing {
		return ErrClosed
	}
	return e.inbox.await(ctx, &e.inbox.flushes)
}

// Submit checks a request and queues it. The job returns the request's events.
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

// Wait estimates how long a request would wait before it runs. A request without a tenant waits in the queue of its
// source.
func (e *Engine) Wait(tenant, source string) time.Duration {
	e.tally.Lock()
	defer e.tally.Unlock()
	return e.inbox.waits.estimate(turnKey(tenant, source, false), e.now())
}
