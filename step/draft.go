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
	// Rank is Work.Rank.
	Rank int
	// Pages holds the pages of all Cached + len(Tokens) tokens.
	Pages []int32
	// State is the sequence's state where the model is model.Stateful, and nil elsewhere.
	State model.State
	// Logits requests the logits of the last row. All other rows only store their keys, which later rows read.
	Logits bool
	// Best requests only the best token of that row.
	Best bool
	// From is the index of the sequence in the pass before. After a Run the rows are the first new tokens of that
	// Work; after a Draft there is one row, which continues the last row of that Draft, whose logits were computed.
	From int
}

// Draft runs the drafting layer after a Run, or, chained, after a Draft. Rows whose outputs are not used only store
// their keys; then the last rows pass through the whole layer. Result holds the rows with logits, sequence after
// sequence, and is valid until the next Draft. Its plan is that of the last rows, nil where no logits are computed.
func (r *Runner) Draft(works []Draft, chained bool) (Result, error) {
	m, ok := r.model.(model.Drafter)
	if !ok {
		return Result{}, fmt.Errorf("step: models of family %s have no drafting layer", r.model.Config().Family)
	}
	if err := m.DraftHead(); err != nil {
		return Result{}, err
	}
	if err := r.checkDrafts(works, chained); err != nil {
		return Result{}, err
	}
	var res Result
	for _, last := range [2]bool{false, true} {
		if err := r.collectDrafts(works, last, chained); err != nil {
			return Result{}, err
		}
		if len(r.draft.batch.Requests) == 0 {
			continue
		}
		r.pad(&r.draft)
		p, block, err := r.start(&r.draft)
		if err != nil {
			return Result{}, err
		}
		if !last {
			continue
		}
		pending, err := r.fetch(&r.draft, p, block)
		if err == nil {
			res, err = pending.Wait()
		}
		if err != nil {
			return Result{}, err
		}
	}
	return res, r.endDrafts(works, res.Plan)
}

func (r *Runner) checkDrafts(works []Draft, chained bool) error {
	for i := range works {
		w := &works[i]
		n := len(w.Tokens)
		switch {
		case n == 0 || w.Cached < 0 || w.Cached+n > r.model.Config().MaxPositions:
			return fmt.Errorf("step: draft %d: %d rows after %d tokens, the model has %d positions", i, n, w.Cached,
				r.model.Config().MaxPositions)
		case w.Kind != plan.ModeExtend && w.Kind != plan.ModeDraft:
			return fmt.Errorf("step: draft %d: the drafting layer cannot %v", i, w.Kind)
		case chained && (n != 1 || !w.Logits || w.From < 0 || w.From >= len(r.ends) || r.ends[w.From] < 0):
			return fmt.Errorf("step: draft %d: %d rows after draft %d of %d; a chain continues with one row, after "+
				"one whose logits were wanted", i, n, w.From, len(r.ends))
		case !chained && (w.From < 0 || w.From >= len(r.target.input.Tokens) || n > len(r.target.input.Tokens[w.From])):
			return fmt.Errorf("step: draft %d: %d rows of work %d, which the step before did not compute", i, n, w.From)
		}
	}
	return nil
}

// collectDrafts describes the last rows of the works, or all the others, as a batch, and finds the rows that hold
// their hidden states.
func (r *Runner) collectDrafts(works []Draft, last, chained bool) error {
	b, in := &r.draft.batch, &r.draft.input
	b.Mode, b.Requests, b.Pass = plan.ModeIdle, b.Requests[:0], plan.PassDraft
	if chained {
		b.Pass = plan.PassChain
	}
	in.Tokens, in.Tables, in.Hidden, in.States = in.Tokens[:0], in.Tables[:0], in.Hidden[:0], in.States[:0]
	rows := 0
	for i := range works {
		rows += len(works[i].Tokens)
	}
	if cap(r.rows) < rows {
		r.rows = make([]int32, 0, rows)
	}
	r.rows = r.rows[:0]
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
		first := len(r.rows)
		for t := from; t < to; t++ {
			row, err := r.source(w, t, chained)
			if err != nil {
				return fmt.Errorf("step: draft %d: %w", i, err)
			}
			r.rows = append(r.rows, row)
		}
		q := plan.DraftRequest(to-from, w.Cached+to)
		if kind == plan.ModeExtend {
			q = plan.ExtendRequest(to-from, w.Cached+from)
		}
		if q.Rank = w.Rank; last {
			q.Logits, q.Best = 1, w.Best
		}
		b.Add(q)
		in.Tokens = append(in.Tokens, w.Tokens[from:to])
		in.Tables = append(in.Tables, w.Pages)
		in.States = append(in.States, w.State)
		in.Hidden = append(in.Hidden, r.rows[first:])
	}
	return nil
}

// source is the row that holds the hidden state of row t of a draft.
func (r *Runner) source(w *Draft, t int, chained bool) (int32, error) {
	if chained {
		return r.ends[w.From], nil
	}
	return attn.RowOf(r.target.input.Plan, w.From, t)
}

// endDrafts records the rows after which a chain can continue.
func (r *Runner) endDrafts(works []Draft, p *plan.Plan) error {
	r.ends = r.ends[:0]
	at := 0
	for i := range works {
		row := int32(-1)
		if works[i].Logits {
			var err error
			if row, err = attn.RowOf(p, at, 0); err != nil {
				return err
			}
			at++
		}
		r.ends = append(r.ends, row)
	}
	return nil
}
