package step

import (
	"fmt"

	"sparrow/attn"
	"sparrow/model"
	"sparrow/plan"
)

// Draft is one sequence's part of the drafting layer's work: rows whose hidden states the pass before has computed.
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
	// Logits says that the logits of the last row are wanted. Of all other rows only what later ones see of them is computed.
	Logits bool
	// From is the place of the sequence in the pass before. After a Run the rows are the first new tokens of that Work; after a Draft there is
	// one row, which goes on after the last row of that Draft, whose logits were wanted.
	From int
}

// drafts is what the runner keeps for the drafting layer.
type drafts struct {
	batch  plan.Batch
	input  model.DraftInput
	rows   []int32 // memory behind input.Hidden
	ends   []int32 // row of each Draft of the latest call whose logits were wanted, else -1
	logits []float32
}

// Draft runs the drafting layer after a Run, or, chained, after a Draft: rows whose outputs nobody wants leave their keys first, then the last rows
// pass the whole layer. Result holds the wanted rows, sequence after sequence, and is valid until the next Draft. Its plan, nil where no
// logits are wanted, is that of the last rows.
func (r *Runner) Draft(works []Draft, chained bool) (Result, error) {
	m, ok := r.model.(model.Drafter)
	if !ok {
		return Result{}, fmt.Errorf("step: models of family %s have no drafting layer", r.model.Config().Family)
	}
	if err := r.checkDrafts(works, chained); err != nil {
		return Result{}, err
	}
	var res Result
	for _, last := range [2]bool{false, true} {
		if err := r.collectDrafts(works, last, chained); err != nil {
			return Result{}, err
		}
		d := &r.draft
		if len(d.batch.Requests) == 0 {
			continue
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
		if !last {
			continue
		}
		if res, err = r.read(p, t, len(d.input.Logits), &d.logits); err != nil {
			return Result{}, err
		}
	}
	return res, r.endDrafts(works)
}

func (r *Runner) checkDrafts(works []Draft, chained bool) error {
	for i := range works {
		w := &works[i]
		n := len(w.Tokens)
		switch {
		case n == 0 || w.Cached < 0 || w.Cached+n > r.model.Config().MaxPositions:
			return fmt.Errorf("step: draft %d: %d rows after %d tokens, the model has %d positions", i, n, w.Cached, r.model.Config().MaxPositions)
		case w.Kind != plan.ModeExtend && w.Kind != plan.ModeDraft:
			return fmt.Errorf("step: draft %d: the drafting layer cannot %v", i, w.Kind)
		case chained && (n != 1 || !w.Logits || w.From < 0 || w.From >= len(r.draft.ends) || r.draft.ends[w.From] < 0):
			return fmt.Errorf("step: draft %d: %d rows after draft %d of %d; a chain goes on with one row, after one whose logits were wanted", i, n, w.From, len(r.draft.ends))
		case !chained && (w.From < 0 || w.From >= len(r.input.Tokens) || n > len(r.input.Tokens[w.From])):
			return fmt.Errorf("step: draft %d: %d rows of work %d, which the step before did not compute", i, n, w.From)
		}
	}
	return nil
}

// collectDrafts describes the last rows of the works, or all the others, as a batch, and finds the rows that hold their hidden states.
func (r *Runner) collectDrafts(works []Draft, last, chained bool) error {
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
		from, to := 0, len(w.Tokens)
		if w.Logits {
			to--
		}
		kind := w.Kind
		if last {
			from, to, kind = to, len(w.Tokens), plan.ModeDraft
		}
		if from == to {
			continue
		}
		first := len(d.rows)
		for t := from; t < to; t++ {
			row, err := r.source(w, t, chained)
			if err != nil {
				return fmt.Errorf("step: draft %d: %w", i, err)
			}
			d.rows = append(d.rows, row)
		}
		q := plan.DraftRequest(to-from, w.Cached+to)
		if kind == plan.ModeExtend {
			q = plan.ExtendRequest(to-from, w.Cached+from)
		}
		if len(b.Requests) == 0 {
			b.Mode = kind
		} else if b.Mode != kind {
			b.Mode = plan.ModeMixed
		}
		if last {
			in.Logits = append(in.Logits, model.Pick{Request: len(b.Requests)})
		}
		b.Requests = append(b.Requests, q)
		in.Tokens = append(in.Tokens, w.Tokens[from:to])
		in.Tables = append(in.Tables, w.Pages)
		in.States = append(in.States, w.State)
		in.Hidden = append(in.Hidden, d.rows[first:])
	}
	return nil
}

// source is where the hidden state of row t of a draft lies.
func (r *Runner) source(w *Draft, t int, chained bool) (int32, error) {
	if chained {
		return r.draft.ends[w.From], nil
	}
	return model.RowOf(&r.input.Step, model.Pick{Request: w.From, Token: t})
}

// endDrafts notes where a chain can go on.
func (r *Runner) endDrafts(works []Draft) error {
	d := &r.draft
	d.ends = d.ends[:0]
	at := 0
	for i := range works {
		row := int32(-1)
		if works[i].Logits {
			var err error
			if row, err = model.RowOf(&d.input.Step, model.Pick{Request: at}); err != nil {
				return err
			}
			at++
		}
		d.ends = append(d.ends, row)
	}
	return nil
}
