package step

import (
	"fmt"
	"slices"

	"sparrow/attn"
	"sparrow/kernel"
	"sparrow/model"
	"sparrow/plan"
	"sparrow/sample"
)

// Draft is one sequence's part of the drafting layer's work: rows whose hidden states the pass before has computed.
type Draft struct {
	// Kind is plan.ModeExtend for rows of a prompt and plan.ModeDraft for all others.
	Kind plan.Mode
	// Tokens are the tokens that follow the rows: one for each row, the last of them newer than anything in the cache.
	Tokens []int32
	// Sampled, above 0, replaces the tokens of the rows with logits on the device: by the tokens, best or drawn, of
	// wanted rows from Sampled-1 on of the pass of the target before, whose rows do not come back whole. The host need
	// not have seen them.
	Sampled int
	// Cached is how many tokens lie before the first row.
	Cached int
	// Rank is Work.Rank.
	Rank int
	// Pages holds the pages of all Cached + len(Tokens) tokens.
	Pages []int32
	// State is the sequence's state where the model is model.Stateful, and nil elsewhere.
	State model.State
	// Logits requests the logits of the last row, with Every of all rows. Other rows only store their keys, which later
	// rows read.
	Logits, Every bool
	// Best requests only a token of these rows: the best one, or where Draws is not nil the one that it draws.
	Best  bool
	Draws []sample.Draw
	// From is the index of the sequence in the pass before. After a Run the rows are the first new tokens of that
	// Work; after a Draft there is one row, which continues row FromRow of those of that Draft whose logits were
	// computed.
	From, FromRow int
}

// wanted is how many of the last rows have logits.
func (w *Draft) wanted() int {
	switch {
	case !w.Logits:
		return 0
	case w.Every:
		return len(w.Tokens)
	}
	return 1
}

// Draft runs the drafting layer after a Run, or, chained, after a Draft, and waits for it: see StartDraft.
func (r *Runner) Draft(works []Draft, chained bool) (Result, error) {
	p, err := r.StartDraft(works, chained)
	if err != nil {
		return Result{}, err
	}
	return p.Wait()
}

// StartDraft enqueues the drafting layer behind a Start, whose pass may not have ended, or, chained, behind a Draft.
// Rows whose outputs are not used only store their keys; then the last rows pass through the whole layer. The result
// holds the rows with logits, sequence after sequence, and is valid until the next Draft. Its plan is that of the last
// rows, nil where no logits are computed.
func (r *Runner) StartDraft(works []Draft, chained bool) (Pending, error) {
	m, ok := r.model.(model.Drafter)
	if !ok {
		return Pending{}, fmt.Errorf("step: models of family %s have no drafting layer", r.model.Config().Family)
	}
	if err := m.DraftHead(); err != nil {
		return Pending{}, err
	}
	if err := r.checkDrafts(works, chained); err != nil {
		return Pending{}, err
	}
	dev, one := r.model.Device().(kernel.Device)
	if one && sampled(works) {
		if err := r.feed.save(dev); err != nil {
			return Pending{}, err
		}
	}
	pending := Pending{event: kernel.Done{}}
	for _, last := range [2]bool{false, true} {
		if err := r.collectDrafts(works, last, chained); err != nil {
			return Pending{}, err
		}
		if len(r.draft.batch.Requests) == 0 {
			continue
		}
		r.pad(&r.draft)
		p, block, err := r.start(&r.draft)
		if err != nil {
			return Pending{}, err
		}
		if !last {
			continue
		}
		if one {
			r.feed.remember(p)
		}
		if pending, err = r.fetch(&r.draft, p, block); err != nil {
			return Pending{}, err
		}
	}
	r.endDrafts(works, pending.Plan())
	return pending, nil
}

// sampled reports whether tokens of a draft are those of the pass before.
func sampled(works []Draft) bool {
	return slices.ContainsFunc(works, func(w Draft) bool { return w.Sampled > 0 })
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
		case chained && (n != 1 || !w.Logits || w.From < 0 || w.From >= len(r.ends.works) || w.FromRow < 0 ||
			w.FromRow >= r.ends.works[w.From].rows):
			return fmt.Errorf("step: draft %d: %d rows after row %d of draft %d of %d; a chain continues with one "+
				"row, after one whose logits were wanted", i, n, w.FromRow, w.From, len(r.ends.works))
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
	in.Draws, b.Draws, r.feed.wants = in.Draws[:0], false, r.feed.wants[:0]
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
		from, to := 0, len(w.Tokens)-w.wanted()
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
		var draws []sample.Draw
		if q.Rank = w.Rank; last {
			q.Logits, q.Best, draws = to-from, w.Best, w.Draws
			for t := range q.Logits {
				if err := r.feed.want(len(b.Requests), t, next(w.Sampled, t), plan.PassTarget); err != nil {
					return fmt.Errorf("step: draft %d: %w", i, err)
				}
			}
		}
		b.Draws = b.Draws || draws != nil
		in.Draws = append(in.Draws, draws)
		b.Add(q)
		in.Tokens = append(in.Tokens, w.Tokens[from:to])
		in.Tables = append(in.Tables, w.Pages)
		in.States = append(in.States, w.State)
		in.Hidden = append(in.Hidden, r.rows[first:])
	}
	return nil
}

// next is the t-th row from one that is counted from 1, 0 where there is none.
func next(row, t int) int {
	if row == 0 {
		return 0
	}
	return row + t
}

// source is the row that holds the hidden state of row t of a draft.
func (r *Runner) source(w *Draft, t int, chained bool) (int32, error) {
	if chained {
		return attn.RowOf(r.ends.plan, r.ends.works[w.From].request, w.FromRow)
	}
	return attn.RowOf(r.target.input.Plan, w.From, t)
}

// ends is where a chain can continue after a draft pass.
type ends struct {
	plan  *plan.Plan
	works []end
}

// end is the request of the pass that a Draft became, and how many of its rows had logits.
type end struct{ request, rows int }

// endDrafts records the rows after which a chain can continue.
func (r *Runner) endDrafts(works []Draft, p *plan.Plan) {
	r.ends.plan, r.ends.works = p, r.ends.works[:0]
	at := 0
	for i := range works {
		e := end{at, works[i].wanted()}
		if e.rows > 0 {
			at++
		}
		r.ends.works = append(r.ends.works, e)
	}
}
