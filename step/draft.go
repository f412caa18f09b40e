package step

import (
	"fmt"

	"sparrow/attn"
	"sparrow/model"
	"sparrow/plan"
)

// Draft is one sequence's part of a pass of the drafting layer: rows whose hidden states the pass before has computed.
type Draft struct {
	// Kind is plan.ModeExtend for rows of a prompt and plan.ModeDraft for all others.
	Kind plan.Mode
	// Tokens are the tokens that follow the rows: one for each row, the last of them newer than anything in the cache.
	Tokens []int32
	// Cached is how many tokens lie before the first row.
	Cached int
	// Pages holds the pages of all Cached + len(Tokens) tokens.
	Pages []int32
	// State is the sequence's state where the model is model.Stateful, and nil elsewhere.
	State model.State
	// Logits says that the logits of the last row are wanted.
	Logits bool
	// From is the place of the sequence in the pass before. After a Run the rows are the first new tokens of that Work; after a Draft there is
	// one row, which goes on after the last row of that Draft.
	From int
}

// drafts is what the runner keeps for the drafting layer.
type drafts struct {
	batch  plan.Batch
	input  model.DraftInput
	rows   []int32 // memory behind input.Hidden
	ends   []int32 // last row of each sequence in the latest Draft
	logits []float32
}

// Draft runs the drafting layer after a Run, or, chained, after a Draft. Result holds the wanted rows, sequence after sequence, and is valid
// until the next Draft. Its plan belongs to the drafting layer alone.
func (r *Runner) Draft(works []Draft, chained bool) (Result, error) {
	m, ok := r.model.(model.Drafter)
	if !ok {
		return Result{}, fmt.Errorf("step: models of family %s have no drafting layer", r.model.Config().Family)
	}
	d := &r.draft
	if err := r.collectDrafts(works, chained); err != nil {
		return Result{}, err
	}
	p, err := r.plan(&d.batch)
	if err != nil {
		return Result{}, err
	}
	d.input.Step = attn.Step{Plan: p, Config: &r.cfg, Batch: &d.batch, Tables: d.input.Tables, PageTokens: r.cfg.Page}
	t, err := m.Draft(d.input)
	if err != nil {
		return Result{}, err
	}
	d.ends = d.ends[:0]
	for i := range works {
		row, err := model.RowOf(&d.input.Step, model.Pick{Request: i, Token: len(works[i].Tokens) - 1})
		if err != nil {
			return Result{}, err
		}
		d.ends = append(d.ends, row)
	}
	return r.read(p, t, len(d.input.Logits), &d.logits)
}

// collectDrafts describes the works as a batch and finds the rows that hold their hidden states.
func (r *Runner) collectDrafts(works []Draft, chained bool) error {
	d := &r.draft
	b, in := &d.batch, &d.input
	b.Mode, b.Requests = plan.ModeIdle, b.Requests[:0]
	in.States = in.States[:0]
	in.Tokens, in.Tables, in.Hidden, in.Logits, in.Chained = in.Tokens[:0], in.Tables[:0], in.Hidden[:0], in.Logits[:0], chained
	rows := 0
	for i := range works {
		rows += len(works[i].Tokens)
	}
	if cap(d.rows) < rows {
		d.rows = make([]int32, 0, rows)
	}
	d.rows = d.rows[:0]
	for i := range works {
		w := &works[i]
		n := len(w.Tokens)
		if n == 0 || w.Cached < 0 || w.Cached+n > r.model.Config().MaxPositions {
			return fmt.Errorf("step: draft %d: %d rows after %d tokens, the model has %d positions", i, n, w.Cached, r.model.Config().MaxPositions)
		}
		q := plan.DraftRequest(n, w.Cached+n)
		if w.Kind == plan.ModeExtend {
			q = plan.ExtendRequest(n, w.Cached)
		} else if w.Kind != plan.ModeDraft {
			return fmt.Errorf("step: draft %d: the drafting layer cannot %v", i, w.Kind)
		}
		if i == 0 {
			b.Mode = w.Kind
		} else if b.Mode != w.Kind {
			b.Mode = plan.ModeMixed
		}
		first := len(d.rows)
		if err := r.sources(w, chained); err != nil {
			return fmt.Errorf("step: draft %d: %w", i, err)
		}
		b.Requests = append(b.Requests, q)
		in.Tokens = append(in.Tokens, w.Tokens)
		in.Tables = append(in.Tables, w.Pages)
		in.States = append(in.States, w.State)
		in.Hidden = append(in.Hidden, d.rows[first:])
		if w.Logits {
			in.Logits = append(in.Logits, model.Pick{Request: i, Token: n - 1})
		}
	}
	return nil
}

// sources appends where the hidden states of one draft's rows lie.
func (r *Runner) sources(w *Draft, chained bool) error {
	d := &r.draft
	if chained {
		if w.From < 0 || w.From >= len(d.ends) || len(w.Tokens) != 1 {
			return fmt.Errorf("%d rows after draft %d of %d; a chain goes on with one row", len(w.Tokens), w.From, len(d.ends))
		}
		d.rows = append(d.rows, d.ends[w.From])
		return nil
	}
	if w.From < 0 || w.From >= len(r.input.Tokens) || len(w.Tokens) > len(r.input.Tokens[w.From]) {
		return fmt.Errorf("%d rows of work %d, which the step before did not compute", len(w.Tokens), w.From)
	}
	for t := range w.Tokens {
		row, err := model.RowOf(&r.input.Step, model.Pick{Request: w.From, Token: t})
		if err != nil {
			return err
		}
		d.rows = append(d.rows, row)
	}
	return nil
}
