package engine

import (
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"sparrow/model"
	"sparrow/plan"
	"sparrow/sample"
	"sparrow/sched"
	"sparrow/step"
)

// runner carries out passes; a step.Runner does.
type runner interface {
	// Begin begins to enqueue a forward pass. At most one other is not waited for.
	Begin([]step.Work) (step.Started, error)
	// Wait waits for the oldest pass that was started.
	Wait(step.Pending) (step.Result, error)
	Draft(works []step.Draft, chained bool) (step.Result, error)
	// StartDraft enqueues a pass of the drafting layer behind a forward pass that may not have ended.
	StartDraft(works []step.Draft, chained bool) (step.Pending, error)
	Bytes() int64
	Graphs() step.Graphs
	Close()
}

// passes runs forward and draft passes and keeps the memory of their descriptions.
type passes struct {
	runner   runner
	works    []step.Work
	drafts   []step.Draft
	finished time.Time // when the latest batch ended
}

func newPasses(m model.Model, cfg plan.Config, l step.Limits) (*passes, error) {
	r, err := step.New(m, cfg, l)
	return &passes{runner: steps{r}}, err
}

// steps is a step.Runner as a runner.
type steps struct{ *step.Runner }

// Wait waits for a pass.
func (steps) Wait(p step.Pending) (step.Result, error) { return p.Wait() }

// noteGraphs updates the counters of captured graphs and reports the first capture that failed. The caller holds mu.
func (e *Engine) noteGraphs() {
	g := e.passes.runner.Graphs()
	if g.Failed > 0 && e.stats.Graphs.Failed == 0 {
		e.cfg.Log.Warn("a captured graph could not be made; passes of its shape run with plain launches",
			"error", g.Failure)
	}
	e.stats.Graphs = GraphCount{Captured: g.Captured, Replayed: g.Replayed, Failed: g.Failed, Evicted: g.Evicted,
		Held: g.Held, Bytes: g.Bytes * int64(max(e.info.Config.Model.Ranks, 1))} // g has those of one rank
}

// logits are rows of logits of one pass, [rows, vocabulary], from the row first on.
type logits struct {
	result step.Result
	first  int
}

// logitRow is one row of logits: whole, or where nothing reads it whole its token, the best or the one that was drawn.
type logitRow struct {
	whole []float32 // [vocabulary], or nil
	best  sample.Candidate
}

func (l logits) row(i int) logitRow {
	r := logitRow{whole: l.result.Row(l.first + i)}
	if r.whole == nil {
		r.best.Token, r.best.Logit, r.best.LogSum = l.result.Best(l.first + i)
	}
	return r
}

func (l logits) plan() *plan.Plan { return l.result.Plan }

// take returns the rows of the next item of the batch.
func (l *logits) take(it *sched.Item) logits {
	own := *l
	l.first += it.Logits
	return own
}

// launch enqueues the pass of a batch. A panic in it is returned as an error.
func (e *Engine) launch(f *flight) (err error) {
	f.launched, f.behind, f.drafts = e.now(), e.flight != nil, e.runsUnseen()
	if !f.behind {
		e.watchdog.begin(f.launched)
	}
	defer func() {
		if err != nil {
			e.notePass(0, err)
			if !f.behind {
				e.watchdog.end()
			}
		}
	}()
	if err = e.begin(f); err == nil && f.load.Divided() {
		err = e.runDivided(f)
	}
	if err != nil {
		return err
	}
	return e.complete(f)
}

// begin begins to enqueue a batch. A panic in it is returned as an error.
func (e *Engine) begin(f *flight) (err error) {
	defer e.recoverTo(&err, "a forward pass panicked")
	p := f.on
	p.works = p.works[:0]
	for i := range f.items {
		p.works = append(p.works, workOf(&f.items[i]))
	}
	f.started, err = p.runner.Begin(p.works)
	return err
}

// complete enqueues what is left of a batch. A panic in it is returned as an error.
func (e *Engine) complete(f *flight) (err error) {
	defer e.recoverTo(&err, "a forward pass panicked")
	f.pending, err = f.started.End()
	return err
}

// wait waits for the pass of a batch. A panic in it is returned as an error.
func (e *Engine) wait(f *flight) (rows logits, err error) {
	defer e.watchdog.end()
	defer e.recoverTo(&err, "a forward pass panicked")
	rows.result, err = f.on.runner.Wait(f.pending)
	took := e.took(f, f.launched)
	e.notePass(took, err)
	if err == nil {
		e.tiers.noteBatch(took)
	}
	if err == nil && e.drafter != nil && decodesOnly(rows.plan()) {
		e.drafter.control.ForwardPass(rows.plan().Rows, took.Seconds())
	}
	return rows, err
}

// decodesOnly reports whether all rows of a plan decode or verify: those passes are compared with draft passes.
func decodesOnly(p *plan.Plan) bool {
	return !slices.ContainsFunc(p.Segments, func(s plan.Segment) bool { return !s.Row.DecodeLike() })
}

func workOf(it *sched.Item) step.Work {
	w := step.Work{Kind: plan.ModeExtend, Tokens: it.Tokens, Cached: it.Cached, Rank: it.Rank, Pages: it.Pages,
		Windows: it.Windows, State: ownerOf(it).state, Logits: it.Logits, Best: !ownerOf(it).needsLogits()}
	c := ownerOf(it)
	if it.Last {
		w.Draws = c.draw(&c.draws, c.ahead(it), it.Logits)
	}
	if c.recording != nil {
		w.Record, w.RecordFrom, w.RecordTo = c.recording.What, it.Record.From, it.Record.To
	}
	w.Replay = c.job.replay
	if it.Unknown {
		w.Sampled = c.sampled
	}
	switch {
	case it.Drafts > 0:
		w.Kind, w.Drafted = plan.ModeVerify, c.drafted
	case it.Decode:
		w.Kind = plan.ModeDecode
	}
	return w
}

// draftRows adds the rows of an item that were kept to the next draft pass: the hidden states are those that the
// forward pass computed for item number from of its batch. It returns the number of the work.
func (p *passes) draftRows(it *sched.Item, from int, wantLogits bool) int {
	c := ownerOf(it)
	w := draftOf(it, from)
	w.Tokens, w.Logits = c.seq.Tokens[it.Cached+1:it.Cached+it.Kept()+1], wantLogits
	if wantLogits {
		w.Draws = c.draw(&c.guesses, 0, 1)
	}
	p.drafts = append(p.drafts, w)
	return len(p.drafts) - 1
}

// draftOf is what the draft of an item's rows has in any case.
func draftOf(it *sched.Item, from int) step.Draft {
	c := ownerOf(it)
	w := step.Draft{Kind: plan.ModeExtend, Cached: it.Cached, Rank: it.Rank, Pages: c.seq.Pages(), State: c.state,
		Best: !c.needsLogits(), From: from}
	if it.Decode {
		w.Kind = plan.ModeDraft
	}
	return w
}

// draftAhead adds all rows of an item to a draft pass before the host has seen the tokens that its rows of logits gave,
// the first of which is row number first, from 1: those are taken on the device, which finds the row that the next
// draft follows. Rows of drafts that turn out wrong are stored again later.
func (p *passes) draftAhead(it *sched.Item, from, first int) {
	c, w, n := ownerOf(it), draftOf(it, from), len(it.Tokens)
	if !it.Last {
		w.Tokens = c.seq.Tokens[it.Cached+1 : it.Cached+1+n]
	} else {
		c.follow = append(append(c.follow[:0], c.seq.Tokens[it.Cached+1:it.Cached+1+n-it.Logits]...),
			make([]int32, it.Logits)...)
		w.Tokens, w.Sampled, w.Logits, w.Right = c.follow, first, true, c.rightDrafts(it)
		w.Draws = c.draw(&c.guesses, c.ahead(it)+1, it.Logits)
	}
	p.drafts = append(p.drafts, w)
}

// draftNext adds the row after the latest draft of a chain to the next draft pass. The row lies where the draft's own
// row will be; the target's hidden states replace it when the draft is accepted.
func (p *passes) draftNext(k *chain) {
	c, q := k.c, &k.c.seq
	n := len(q.Drafts)
	p.drafts = append(p.drafts, step.Draft{Kind: plan.ModeDraft, Tokens: q.Drafts[n-1:], Cached: len(q.Tokens) + n - 2,
		Rank: q.Rank(), Pages: q.Pages(), State: c.state, Logits: true, Best: !c.needsLogits(),
		Draws: c.draw(&c.guesses, n, 1), From: k.work})
	k.work = len(p.drafts) - 1
}

// draftPass runs the drafting layer over the rows that were added. A panic in it is returned as an error.
func (e *Engine) draftPass(p *passes, chained bool) (rows logits, err error) {
	defer e.recoverTo(&err, "a draft pass panicked")
	n, prompts := p.draftSize()
	begun := e.now()
	e.watchdog.begin(begun)
	defer e.watchdog.end()
	rows.result, err = p.runner.Draft(p.drafts, chained)
	e.noteDraftPass(begun, err, rows.plan(), n, prompts)
	p.drafts = p.drafts[:0]
	return rows, err
}

// draftSize is how many rows the next draft pass has, and whether some are of prompts.
func (p *passes) draftSize() (rows int, prompts bool) {
	for i := range p.drafts {
		rows += len(p.drafts[i].Tokens)
		prompts = prompts || p.drafts[i].Kind != plan.ModeDraft
	}
	return rows, prompts
}

// noteDraftPass counts a draft pass that has taken the time since begun.
func (e *Engine) noteDraftPass(begun time.Time, err error, p *plan.Plan, rows int, prompts bool) {
	e.notePass(e.since(begun), err)
	if err == nil && p != nil && !prompts {
		e.drafter.control.DraftPass(rows, e.since(begun).Seconds())
	}
}

// recoverTo turns a panic into an error and logs it.
func (e *Engine) recoverTo(err *error, message string) {
	if v := recover(); v != nil {
		e.cfg.Log.Error(message, "value", v, "stack", string(debug.Stack()))
		*err = fmt.Errorf("panic: %v", v)
	}
}
