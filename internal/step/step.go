// Package step runs forward passes. Sequences with their new tokens and pages come in; the package makes a plan, fills
// its input block, copies it to the device and enqueues the model's operations; it returns logits in host memory. It
// contains no policy: the scheduler chooses the sequences of a pass, and the planner decides how they run.
package step

import (
	"errors"
	"fmt"

	"sparrow/internal/model"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/record"
	"sparrow/sample"
)

// Work describes the new tokens of one sequence in a pass.
type Work struct {
	// Kind is plan.ModeExtend, ModeDecode, ModeVerify or ModeDraft.
	Kind plan.Mode
	// Tokens are the new tokens. ModeDecode has exactly one token.
	Tokens []int32
	// Sampled, if above 0, replaces the first of Tokens on the device by the best or sampled token of requested row
	// Sampled-1 of the previous pass. That pass must be a pass of the target that returns only the token of that row.
	Sampled int
	// Drafted, if above 0, replaces all of Tokens except the first, which are drafts. The new values are the token of
	// requested row Drafted-1 of the previous pass, or the tokens of the block that begins there. That pass must be a
	// pass of the drafting layer whose own tokens came from the device.
	Drafted int
	// Cached is the number of tokens before Tokens that are in the cache.
	Cached int
	// Before holds the last cached tokens before Tokens if the model is model.Remembering: as many tokens as the model
	// needs, or all cached tokens.
	Before []int32
	// Rank is the rank that holds the pages if ranks share attention by requests, otherwise 0.
	Rank int
	// Pages holds the pages of all Cached + len(Tokens) tokens.
	Pages []int32
	// Windows are the window pages of all Cached + len(Tokens) tokens if the model is model.Windowed; nil if they have
	// the same numbers as the pages.
	Windows []int32
	// Logits is the number of new tokens, counted from the end, whose logits are computed.
	Logits int
	// Best requests only a token of each row with logits: the sampled one if Draws is not nil, otherwise the best one.
	Best  bool
	Draws []sample.Draw
	// State is the sequence's state if the model is model.Stateful, otherwise nil.
	State model.State
	// Record selects the data that is recorded for the new tokens in [RecordFrom, RecordTo).
	Record               plan.Record
	RecordFrom, RecordTo int
	// Replay holds the choices for replayed rows, by position; nil for none.
	Replay *record.Replay
}

// Runner turns works into logits. One goroutine uses it at a time.
type Runner struct {
	model  model.Model
	work   model.Workspace
	cfg    plan.Config
	limits Limits
	arena  *kernel.Arena
	bound  int64 // mark in the arena after the tensors that outlive a pass
	shapes plan.Shaper
	passes map[plan.Shape]*pass

	graphs graphs
	feed   feed
	picks  picks

	target, draft side
	ends          ends    // rows from which a chain can continue after the latest draft pass
	rows          []int32 // memory for the hidden rows of a draft
	padding       []int32 // zeros for the tokens and hidden rows of padding requests
}

// pass is a plan with its layout in the arena.
type pass struct {
	plan  *plan.Plan
	whole []int32 // result of wholeRows for the batches of this shape
	model.Pass
	captured   captured
	operations int // number of operations of the program
	// graph is the way in which the operations were last enqueued; shown holds a plan for each way, which explain
	// prints.
	graph plan.GraphMode
	shown [plan.GraphReplay + 1]*plan.Plan
}

// says returns the plan of the pass with the way in which it was last enqueued. Captured and replayed passes share the
// fields of the plan.
func (p *pass) says() *plan.Plan {
	if p.graph == plan.GraphNone {
		return p.plan
	}
	if p.shown[p.graph] == nil {
		shown := *p.plan
		shown.Graph = p.graph
		p.shown[p.graph] = &shown
	}
	return p.shown[p.graph]
}

// run enqueues the operations of a pass.
func (p *pass) run() error {
	program, err := p.program()
	if err != nil {
		return err
	}
	return program.Run(0, program.Len())
}

// program returns the operations of a pass, and stores their number.
func (p *pass) program() (kernel.Program, error) {
	program, err := p.Program()
	if err != nil {
		return nil, err
	}
	p.operations = program.Len()
	return program, nil
}

// side is the runner's state for passes of the target, or of the drafting layer.
type side struct {
	batch plan.Batch
	input model.Input
	// Two input blocks and two result buffers are used alternately, because the device may still use those of the
	// previous pass. Blocks are page-locked if the device reads them while the host continues.
	blocks  [2]kernel.Words
	results [2][]float32
	turn    int
}

// New prepares passes of a model whose cache was allocated for cfg. It allocates the memory of the largest pass within
// the limits; later, no memory is allocated.
func New(m model.Model, cfg plan.Config, l Limits) (*Runner, error) {
	r := &Runner{model: m, cfg: cfg, limits: l.withDefaults(&cfg), passes: map[plan.Shape]*pass{}}
	need, err := Measure(m, cfg, l)
	if err != nil {
		return nil, err
	}
	if r.arena, err = kernel.NewArena(m.Device(), need); err != nil {
		return nil, fmt.Errorf("step: allocating %d bytes for passes of %d rows: %w", need, r.limits.Rows, err)
	}
	r.work, r.feed, r.picks = r.limits.bind(m, r.arena, &cfg)
	r.bound = r.arena.Mark()
	if err := r.reserve(); err != nil {
		r.Close()
		return nil, err
	}
	r.graphs = newGraphs(m.Device(), r.limits.GraphBytes)
	return r, nil
}

// reserve allocates the memory that operations of the largest passes use outside the arena, so that no pass allocates
// memory later.
func (r *Runner) reserve() error {
	dev, ok := r.model.Device().(kernel.Reserver)
	if !ok {
		return nil
	}
	return r.limits.bounds(r.model, &r.cfg, func(p *plan.Plan) error {
		r.arena.Reset(r.bound)
		laid, err := r.work.Arrange(p, &r.cfg, r.arena)
		if err != nil {
			return err
		}
		if err := dev.Reserve((&pass{plan: p, Pass: laid}).run); err != nil {
			return fmt.Errorf("step: reserving memory for the operations of %d rows: %w", p.Rows, err)
		}
		return nil
	})
}

// Close frees the memory of the runner.
func (r *Runner) Close() {
	// If the driver cannot release memory, the device reports the error at its next use.
	_ = r.graphs.close()
	for _, list := range [][2]kernel.Words{r.target.blocks, r.draft.blocks, r.picks.words} {
		for i := range list {
			_ = list[i].Free(r.model.Device())
		}
	}
	r.feed.free(r.model.Device())
	r.arena.Free(r.model.Device())
}

// Graphs returns the counters of captured graphs.
func (r *Runner) Graphs() Graphs { return r.graphs.count }

// Config returns the configuration from which every plan is made.
func (r *Runner) Config() *plan.Config { return &r.cfg }

// Bytes returns the size of the arena.
func (r *Runner) Bytes() int64 { return r.arena.Bytes() }

// Limits of the passes that are kept for later batches with the same shape. Shapes of decode batches repeat; shapes of
// prompt chunks hardly ever do. Captured passes do not count for maxPassBytes.
const (
	maxPasses      = 256
	maxPassBytes   = 64 << 20 // bytes of plans and operations of kept passes
	operationBytes = 400      // approximate bytes of one operation
)

// Start enqueues one pass of the target. The device may not have finished when it returns, but the caller may change
// works and the slices in them. At most one earlier pass may still be in flight.
func (r *Runner) Start(works []Work) (Pending, error) {
	s, err := r.Begin(works)
	if err != nil {
		return Pending{}, err
	}
	return s.End()
}

// Run executes one pass of the target and waits for it.
func (r *Runner) Run(works []Work) (Result, error) {
	p, err := r.Start(works)
	if err != nil {
		return Result{}, err
	}
	return p.Wait()
}

// start prepares and enqueues the batch of a side. It returns the pass and the input block, which one copy transfers to
// the device.
func (r *Runner) start(s *side) (*pass, []int32, error) {
	p, block, err := r.ready(s)
	if err != nil {
		return nil, nil, err
	}
	return p, block, r.launch(s, p, block)
}

// ready prepares the batch of a side.
func (r *Runner) ready(s *side) (*pass, []int32, error) {
	p, err := r.pass(&s.batch)
	if err != nil {
		return nil, nil, err
	}
	block, err := r.block(s, p)
	if err != nil {
		return nil, nil, err
	}
	return p, block, r.prepare(s, p, block)
}

// block returns memory for the inputs of the next pass of a side.
func (r *Runner) block(s *side, p *pass) ([]int32, error) {
	s.turn = 1 - s.turn
	return s.blocks[s.turn].Take(r.model.Device(), p.plan.InputWords)
}

// prepare fills the inputs of the batch of a side.
func (r *Runner) prepare(s *side, p *pass, block []int32) error {
	s.input.Plan, s.input.Config, s.input.Batch.Batch, s.input.PageTokens = p.plan, &r.cfg, &s.batch, r.cfg.Page
	return p.Prepare(&s.input, block)
}

// launch enqueues a pass that was prepared.
func (r *Runner) launch(s *side, p *pass, block []int32) error {
	err := r.attempt(p, func() error {
		if err := r.enter(s, p, block); err != nil {
			return err
		}
		return r.graphs.enqueue(p)
	})
	if err == nil {
		r.leave(s, p)
	}
	return err
}

// attempt enqueues a part of a pass. If the part fails, the pass is ended.
func (r *Runner) attempt(p *pass, part func() error) error {
	done := false
	defer r.feed.discardUnless(&done)
	if err := part(); err != nil {
		p.Ended(err)
		return failed(p.plan, err)
	}
	done = true
	return nil
}

// leave updates the state of a side after the operations of a pass were enqueued.
func (r *Runner) leave(s *side, p *pass) {
	if _, one := r.model.Device().(kernel.Device); one && s == &r.target {
		r.feed.remember(p)
	}
	p.Ended(nil)
	if c, ok := r.model.(model.Stateful); ok && p.plan.Pass == plan.PassTarget {
		c.Commit(&s.input)
	}
}

// enter enqueues the copy of the inputs of a pass.
func (r *Runner) enter(s *side, p *pass, block []int32) error {
	machine := r.model.Device()
	dev, one := machine.(kernel.Device) // only a single device can feed tokens of the previous pass to the next pass
	var err error
	if one {
		err = r.feed.enqueue(dev, p, block)
	} else {
		err = kernel.WriteI32(machine, p.Inputs(), block)
	}
	if err == nil && (p.plan.Pass == plan.PassPick || p.plan.Pass == plan.PassBlock) {
		err = r.picks.enqueue(dev, p, r.feed.chosen())
	}
	if s == &r.target || r.feed.from != nil {
		r.feed.forget()
	}
	return err
}

// failed adds the failed pass to an error of the device (E28). Errors of planning have their own codes and are returned
// unchanged.
func failed(p *plan.Plan, err error) error {
	var refusal *plan.Error
	if err == nil || errors.As(err, &refusal) {
		return err
	}
	return fmt.Errorf("%w: %w", plan.ErrKernelStatus(p.Mode, p.Rows), err)
}

// pass builds the plan of the batch and its layout in the arena, or returns the stored pass of the same shape.
func (r *Runner) pass(b *plan.Batch) (*pass, error) {
	shape, err := r.shapes.Of(&r.cfg, b)
	if err != nil {
		return nil, err
	}
	if p, ok := r.passes[shape]; ok {
		return p, nil
	}
	p, err := plan.Build(r.cfg, *b)
	if err != nil {
		return nil, err
	}
	if !p.Runnable {
		return nil,
			fmt.Errorf(
				"step: the %v catalogue describes kernels of other engines; only plans of the sparrow catalogue can "+
					"run", r.cfg.Catalog)
	}
	r.arena.Reset(r.bound)
	laid, err := r.work.Arrange(p, &r.cfg, r.arena)
	if err != nil {
		return nil, err
	}
	if !r.arena.Fits() {
		err := fmt.Errorf("step: a pass of %d rows, %d requests and pages of %d tokens needs %d bytes; the engine "+
			"allocated %d for passes of %d rows, %d sequences, %d prompts and %d tokens",
			p.Rows, p.Requests, p.TablePages*r.cfg.Page, r.arena.High(), r.arena.Bytes(), r.limits.Rows,
			r.limits.Requests, r.limits.Prompts, r.limits.Context)
		r.arena.Forget()
		return nil, err
	}
	if err := r.forgetPasses(); err != nil {
		return nil, err
	}
	r.passes[shape] = &pass{plan: p, whole: wholeRows(b, p), Pass: laid}
	return r.passes[shape], nil
}

// forgetPasses drops stored passes if there is no space for another pass. Captured passes are kept as long as they are
// at most half of the maximum, so that prompts, whose chunks all have different shapes, do not evict the graphs of
// decodes.
func (r *Runner) forgetPasses() error {
	bytes := 0
	for _, p := range r.passes {
		if !r.graphs.passes[p] {
			bytes += p.operations*operationBytes + p.plan.Bytes()
		}
	}
	if len(r.passes) < maxPasses && bytes < maxPassBytes {
		return nil
	}
	for shape, p := range r.passes {
		if !r.graphs.passes[p] {
			delete(r.passes, shape)
		}
	}
	if len(r.passes) <= maxPasses/2 {
		return nil
	}
	clear(r.passes)
	return r.graphs.close()
}

// collect fills the batch of the target from the works.
func (r *Runner) collect(works []Work) error {
	b, in := &r.target.batch, &r.target.input
	b.Mode, b.Requests, b.Record, b.Replay = plan.ModeIdle, b.Requests[:0], plan.Record{}, plan.Replay{}
	in.Tokens, in.Tables, in.States, in.Windows = in.Tokens[:0], in.Tables[:0], in.States[:0], in.Windows[:0]
	in.Replays, in.Draws, in.Before, b.Draws = in.Replays[:0], in.Draws[:0], in.Before[:0], false
	r.feed.wants = r.feed.wants[:0]
	for i := range works {
		w := &works[i]
		n := len(w.Tokens)
		if n == 0 || w.Cached < 0 || w.Logits > n || w.Logits < 0 {
			return fmt.Errorf("step: sequence %d has %d new tokens after %d cached ones and requests %d rows of "+
				"logits", i, n, w.Cached, w.Logits)
		}
		if end, most := w.Cached+n, r.model.Config().MaxPositions; end > most {
			return fmt.Errorf("step: sequence %d would have %d tokens, but the model has %d positions", i, end, most)
		}
		var q plan.Request
		switch w.Kind {
		case plan.ModeExtend:
			q = plan.ExtendRequest(n, w.Cached)
		case plan.ModeDecode:
			if n != 1 {
				return fmt.Errorf("step: sequence %d decodes %d tokens, want one token", i, n)
			}
			q = plan.DecodeRequest(w.Cached + 1)
		case plan.ModeVerify:
			q = plan.VerifyRequest(n, w.Cached)
		case plan.ModeDraft:
			q = plan.DraftRequest(n, w.Cached+n)
		default:
			return fmt.Errorf("step: sequence %d: mode %v is not supported", i, w.Kind)
		}
		q.Logits, q.Best, q.Rank = w.Logits, w.Best, w.Rank
		if err := errors.Join(w.choices(b, &q), r.feed.want(i, 0, w.Sampled, plan.PassTarget),
			r.feed.wantDrafts(i, n-1, w.Drafted)); err != nil {
			return fmt.Errorf("step: sequence %d: %w", i, err)
		}
		b.Add(q)
		in.Tokens = append(in.Tokens, w.Tokens)
		in.Tables = append(in.Tables, w.Pages)
		in.Windows = append(in.Windows, w.Windows)
		in.Before = append(in.Before, w.Before)
		in.States = append(in.States, w.State)
		in.Replays = append(in.Replays, w.Replay)
		in.Draws = append(in.Draws, w.Draws)
		b.Draws = b.Draws || w.Draws != nil
	}
	return nil
}

// choices adds the rows to record and to replay of a work to its batch and its request.
func (w *Work) choices(b *plan.Batch, q *plan.Request) error {
	n := len(w.Tokens)
	if w.Record != (plan.Record{}) && w.RecordFrom < w.RecordTo {
		if w.RecordFrom < 0 || w.RecordTo > n {
			return fmt.Errorf("new tokens %d to %d are to be recorded, but the work has %d", w.RecordFrom, w.RecordTo,
				n)
		}
		b.Record = b.Record.With(w.Record)
		q.RecordFrom, q.Records = w.RecordFrom, w.RecordTo-w.RecordFrom
	}
	if w.Replay == nil {
		return nil
	}
	from, to := max(w.Replay.First, w.Cached), min(w.Replay.First+w.Replay.Len(), w.Cached+n)
	if from < to {
		q.ReplayFrom, q.Replays = from-w.Cached, to-from
		b.Replay.Selections = b.Replay.Selections || w.Replay.Selections
		b.Replay.Experts = b.Replay.Experts || w.Replay.Experts
	}
	return nil
}
