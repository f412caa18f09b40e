package engine

import (
	"fmt"
	"runtime/debug"
	"slices"

	"sparrow/model"
	"sparrow/plan"
	"sparrow/sample"
	"sparrow/sched"
	"sparrow/step"
)

// runner carries out passes; a step.Runner does.
type runner interface {
	// Start enqueues a forward pass. At most one other is not waited for.
	Start([]step.Work) (step.Pending, error)
	// Wait waits for the oldest pass that was started.
	Wait(step.Pending) (step.Result, error)
	Draft(works []step.Draft, chained bool) (step.Result, error)
	Bytes() int64
	Graphs() step.Graphs
	Close()
}

// passes runs forward and draft passes and keeps the memory of their descriptions.
type passes struct {
	runner runner
	works  []step.Work
	drafts []step.Draft
}

func newPasses(m model.Model, cfg plan.Config, l step.Limits) (passes, error) {
	r, err := step.New(m, cfg, l)
	return passes{runner: steps{r}}, err
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
		Held: g.Held, Bytes: g.Bytes}
}

// logits are rows of logits of one pass, [rows, vocabulary], from the row first on.
type logits struct {
	result step.Result
	first  int
}

// logitRow is one row of logits: whole, or where nothing reads it whole its best token.
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
	f.launched, f.behind = e.now(), e.flight != nil
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
	defer e.recoverTo(&err, "a forward pass panicked")
	p := &e.passes
	p.works = p.works[:0]
	for i := range f.items {
		p.works = append(p.works, workOf(&f.items[i]))
	}
	f.pending, err = p.runner.Start(p.works)
	return err
}

// wait waits for the pass of a batch. A panic in it is returned as an error.
func (e *Engine) wait(f *flight) (rows logits, err error) {
	defer e.watchdog.end()
	defer e.recoverTo(&err, "a forward pass panicked")
	rows.result, err = e.passes.runner.Wait(f.pending)
	took := e.took(f.launched)
	e.notePass(took, err)
	if err == nil {
		e.tiers.notePrefill(rows.plan(), took)
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
	if c.recording != nil {
		w.Record, w.RecordFrom, w.RecordTo = c.recording.What, it.Record.From, it.Record.To
	}
	w.Replay = c.job.replay
	if it.Unknown {
		w.Sampled = c.sampled
	}
	switch {
	case it.Drafts > 0:
		w.Kind = plan.ModeVerify
	case it.Decode:
		w.Kind = plan.ModeDecode
	}
	return w
}

// draftRows adds the rows of an item that were kept to the next draft pass: the hidden states are those that the
// forward pass computed for item number from of its batch. It returns the number of the work.
func (p *passes) draftRows(it *sched.Item, from int, wantLogits bool) int {
	c := ownerOf(it)
	w := step.Draft{Kind: plan.ModeExtend, Tokens: c.seq.Tokens[it.Cached+1 : it.Cached+it.Kept()+1], Cached: it.Cached,
		Rank: it.Rank, Pages: c.seq.Pages(), State: c.state, Logits: wantLogits, Best: !c.needsLogits(), From: from}
	if it.Decode {
		w.Kind = plan.ModeDraft
	}
	p.drafts = append(p.drafts, w)
	return len(p.drafts) - 1
}

// draftNext adds the row after the latest draft of a choice to the next draft pass: it continues from the output of
// work number from of the pass before. The row lies where the draft's own row will be; the target's hidden states
// replace it when the draft is accepted.
func (p *passes) draftNext(c *choice, from int) int {
	q := &c.seq
	n := len(q.Drafts)
	p.drafts = append(p.drafts, step.Draft{Kind: plan.ModeDraft, Tokens: q.Drafts[n-1:], Cached: len(q.Tokens) + n - 2,
		Rank: q.Rank(), Pages: q.Pages(), State: c.state, Logits: true, Best: !c.needsLogits(), From: from})
	return len(p.drafts) - 1
}

// draftPass runs the drafting layer over the rows that were added. A panic in it is returned as an error.
func (e *Engine) draftPass(chained bool) (rows logits, err error) {
	defer e.recoverTo(&err, "a draft pass panicked")
	p := &e.passes
	n, prompts := 0, false
	for i := range p.drafts {
		n += len(p.drafts[i].Tokens)
		prompts = prompts || p.drafts[i].Kind != plan.ModeDraft
	}
	begun := e.now()
	e.watchdog.begin(begun)
	defer e.watchdog.end()
	rows.result, err = p.runner.Draft(p.drafts, chained)
	e.notePass(e.since(begun), err)
	if err == nil && rows.plan() != nil && !prompts {
		e.drafter.control.DraftPass(n, e.since(begun).Seconds())
	}
	p.drafts = p.drafts[:0]
	return rows, err
}

// recoverTo turns a panic into an error and logs it.
func (e *Engine) recoverTo(err *error, message string) {
	if v := recover(); v != nil {
		e.cfg.Log.Error(message, "value", v, "stack", string(debug.Stack()))
		*err = fmt.Errorf("panic: %v", v)
	}
}
