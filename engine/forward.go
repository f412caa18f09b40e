package engine

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"sparrow/internal/model"
	"sparrow/internal/sched"
	"sparrow/internal/step"
	"sparrow/plan"
	"sparrow/sample"
)

// runner enqueues passes and waits for their results. Type steps implements it with a step.Runner.
type runner interface {
	// Begin begins to enqueue a forward pass. At most one other pass may be in flight.
	Begin([]step.Work) (step.Started, error)
	// End enqueues the remaining operations of the pass.
	End(*step.Started) (step.Pending, error)
	// Wait waits for the oldest pass that was started.
	Wait(step.Pending) (step.Result, error)
	Draft(works []step.Draft, chained bool) (step.Result, error)
	// StartDraft enqueues a pass of the drafting layer after a forward pass that may not have ended.
	StartDraft(works []step.Draft, chained bool) (step.Pending, error)
	Bytes() int64
	Graphs() step.Graphs
	Close()
}

// passes runs forward and draft passes. It holds reused memory for the arguments of these passes.
type passes struct {
	runner   runner
	works    []step.Work
	drafts   []step.Draft
	finished time.Time // time when the latest batch ended
}

func newPasses(m model.Model, cfg plan.Config, l step.Limits) (*passes, error) {
	r, err := step.New(m, cfg, l)
	return &passes{runner: steps{r}}, err
}

// steps implements runner with a step.Runner.
type steps struct{ *step.Runner }

func (steps) End(s *step.Started) (step.Pending, error) { return s.End() }

func (steps) Wait(p step.Pending) (step.Result, error) { return p.Wait() }

// logits holds rows of logits of one pass, [rows, vocabulary], starting with row first.
type logits struct {
	result step.Result
	first  int
}

// logitRow is one row of logits: the whole row, or only the token that the device chose from it.
type logitRow struct {
	whole []float32 // [vocabulary]; nil if only the token is known
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

// take removes and returns the rows of the next item of the batch.
func (l *logits) take(it *sched.Item) logits {
	own := *l
	l.first += it.Logits
	return own
}

// launch enqueues the pass of batch b after the pass of batch last; last is nil if no batch is in progress.
func (l *loop) launch(b, last *batch) {
	b.launched, b.behind = l.now(), stageFormed
	if last != nil {
		b.behind = last.stage
	}
	if b.behind != stageRunning { // otherwise the watchdog already watches the running pass
		l.watchdog.begin(b.launched)
	}
	err := l.start(b)
	if err == nil {
		b.to(stageEnqueued)
		l.drafter.launched(b)
		return
	}
	b.fail(err)
	l.tally.notePass(0, err)
	if b.behind != stageRunning {
		l.watchdog.end()
	}
}

// start enqueues the operations of a batch.
func (l *loop) start(b *batch) error {
	err := b.begin(l.cfg.Log)
	if err == nil && b.load.Divided() {
		err = l.runDivided(b)
	}
	if err != nil {
		return err
	}
	return b.complete(l.cfg.Log)
}

// begin prepares the pass of a batch and begins to enqueue it. A panic in it is returned as an error.
func (b *batch) begin(log *slog.Logger) (err error) {
	defer recoverTo(&err, log, "a forward pass panicked")
	p := b.passes
	p.works = p.works[:0]
	for i := range b.items {
		p.works = append(p.works, workOf(&b.items[i]))
	}
	b.started, err = p.runner.Begin(p.works)
	return err
}

// complete enqueues the remaining operations of a batch that was begun. A panic in it is returned as an error.
func (b *batch) complete(log *slog.Logger) (err error) {
	defer recoverTo(&err, log, "a forward pass panicked")
	b.pending, err = b.passes.runner.End(&b.started)
	return err
}

// wait waits for the pass of a batch. A panic in it is returned as an error.
func (l *loop) wait(b *batch) (rows logits, err error) {
	defer l.watchdog.end()
	defer recoverTo(&err, l.cfg.Log, "a forward pass panicked")
	rows.result, err = b.passes.runner.Wait(b.pending)
	took := l.took(b, b.launched)
	l.tally.notePass(took, err)
	if err == nil {
		l.tiers.noteBatch(took)
		l.drafter.noteForward(rows.plan(), took)
	}
	return rows, err
}

// took returns how long a batch that has just ended used the device: the time since it was formed or since the previous
// batch ended, whichever is later, minus the time of batches that ran between its operations.
func (l *loop) took(b *batch, since time.Time) time.Duration {
	if f := b.passes.finished; f.After(since) {
		since = f
	}
	return l.since(since) - b.interrupted
}

// decodesOnly reports whether all rows of a plan are decode or verify rows. Only such passes are compared with draft
// passes.
func decodesOnly(p *plan.Plan) bool {
	return !slices.ContainsFunc(p.Segments, func(s plan.Segment) bool { return !s.Row.DecodeLike() })
}

func workOf(it *sched.Item) step.Work {
	w := step.Work{Kind: plan.ModeExtend, Tokens: it.Tokens, Cached: it.Cached, Rank: it.Rank, Pages: it.Pages,
		Before: tokensBefore(it), Windows: it.Windows, State: ownerOf(it).state, Logits: it.Logits,
		Best: !ownerOf(it).needsLogits()}
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

// tokensBefore returns the tokens of the sequence before the item's tokens, or nil if the host does not have all of
// them yet.
func tokensBefore(it *sched.Item) []int32 {
	if t := ownerOf(it).seq.Tokens; it.Cached <= len(t) {
		return t[:it.Cached]
	}
	return nil
}

// draftRows adds the accepted rows of an item to the next draft pass. from is the index of the item in its batch, which
// selects the hidden states of the forward pass. It returns the index of the work that it added.
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

// draftOf returns a step.Draft of an item, without the fields that depend on the accepted tokens.
func draftOf(it *sched.Item, from int) step.Draft {
	c := ownerOf(it)
	w := step.Draft{Kind: plan.ModeExtend, Cached: it.Cached, Rank: it.Rank, Pages: c.seq.Pages(),
		Windows: c.seq.Windows(), State: c.state, Best: !c.needsLogits(), From: from}
	if it.Decode {
		w.Kind = plan.ModeDraft
	}
	return w
}

// draftBlock adds a block of drafts after the accepted rows of an item to the next draft pass. It returns the index of
// the work that it added.
func (p *passes) draftBlock(it *sched.Item, from, block int) int {
	c := ownerOf(it)
	w := draftOf(it, from)
	end := it.Cached + it.Kept() + 1
	w.Tokens, w.Cached, w.Logits, w.Best = c.seq.Tokens[end-1:end], end-2, true, true
	w.Draws = c.drawBlock(0, block)
	p.drafts = append(p.drafts, w)
	return len(p.drafts) - 1
}

// draftAhead adds all rows of an item to a draft pass before the host has the tokens sampled from its rows of logits.
// The item's first row of logits has the number first in its pass, counted from 1. The device inserts the sampled
// tokens and selects the last accepted row, after which it drafts. Rows of rejected drafts are overwritten later. A
// block does not read the item's earlier rows.
func (p *passes) draftAhead(it *sched.Item, from, first, block int) {
	c, w, n := ownerOf(it), draftOf(it, from), len(it.Tokens)
	if !it.Last {
		w.Tokens = c.seq.Tokens[it.Cached+1 : it.Cached+1+n]
		p.drafts = append(p.drafts, w)
		return
	}
	if block > 0 {
		w.Cached += n - it.Logits
		w.Draws = c.drawBlock(c.ahead(it)+1, it.Drafts+block)
	} else {
		w.Draws = c.draw(&c.guesses, c.ahead(it)+1, it.Logits)
	}
	c.follow = append(append(c.follow[:0], c.seq.Tokens[w.Cached+1:it.Cached+1+n-it.Logits]...),
		make([]int32, it.Logits)...)
	w.Tokens, w.Sampled, w.Logits, w.Right = c.follow, first, true, c.rightDrafts(it)
	p.drafts = append(p.drafts, w)
}

// draftNext adds the row after the latest draft of a chain to the next draft pass. The row is stored in the cache slot
// of the draft's position. If the draft is accepted, a row computed from the target's hidden states overwrites it.
func (p *passes) draftNext(k *chain) {
	c, q := k.c, &k.c.seq
	n := len(q.Drafts)
	p.drafts = append(p.drafts, step.Draft{Kind: plan.ModeDraft, Tokens: q.Drafts[n-1:], Cached: len(q.Tokens) + n - 2,
		Rank: q.Rank(), Pages: q.Pages(), State: c.state, Logits: true, Best: !c.needsLogits(),
		Draws: c.draw(&c.guesses, n, 1), From: k.work})
	k.work = len(p.drafts) - 1
}

// draftSize returns the number of rows of the next draft pass, and whether some of these rows belong to prompts.
func (p *passes) draftSize() (rows int, prompts bool) {
	for i := range p.drafts {
		rows += len(p.drafts[i].Tokens)
		prompts = prompts || p.drafts[i].Kind != plan.ModeDraft
	}
	return rows, prompts
}

// recoverTo turns a panic into an error and logs it.
func recoverTo(err *error, log *slog.Logger, message string) {
	if v := recover(); v != nil {
		log.Error(message, "value", v, "stack", string(debug.Stack()))
		*err = fmt.Errorf("panic: %v", v)
	}
}
