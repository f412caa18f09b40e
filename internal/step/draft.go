package step

import (
	"errors"
	"fmt"
	"slices"

	"sparrow/internal/attn"
	"sparrow/internal/model"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/sample"
)

// Draft describes the rows of one sequence in a pass of the drafting layer; the previous pass has computed the hidden
// states of these rows. A drafter of blocks (plan.Model.Block) reads the data that passes of the target have stored for
// it, for all Cached + len(Tokens) tokens except the last. Its block begins with that last token, or with the token
// after the accepted drafts. A work without logits then computes nothing.
type Draft struct {
	// Kind is plan.ModeExtend for rows of a prompt and plan.ModeDraft for all others.
	Kind plan.Mode
	// Tokens holds the token after each row. The last token is newer than all tokens in the cache.
	Tokens []int32
	// Sampled, if above 0, replaces the last len(Right)+1 tokens on the device. The new values are the best or sampled
	// tokens of the requested rows of the target's previous pass, from row Sampled-1 on; that pass must return only
	// tokens for these rows. The host does not need to know the tokens.
	Sampled int
	// Right holds, for each draft among the replaced tokens, the range of target tokens that accept it. The row with
	// logits is then not the last one but the row after the accepted drafts, which the device finds. It is used
	// together with Sampled.
	Right []Range
	// Cached is the number of tokens before the first row.
	Cached int
	// Rank has the meaning of Work.Rank.
	Rank int
	// Pages holds the pages of all Cached + len(Tokens) tokens.
	Pages []int32
	// Windows are the window pages of the Cached + len(Tokens) tokens if the model drafts in blocks and is
	// model.Windowed; nil if they have the same numbers as the pages.
	Windows []int32
	// State is the sequence's state if the model is model.Stateful, otherwise nil.
	State model.State
	// Logits requests the logits of the last row. Other rows only store their keys, which later rows read.
	Logits bool
	// Best requests only the token of the row with logits, or of each row of a block: the sampled token if Draws is not
	// nil, otherwise the best one.
	Best bool
	// Draws holds sampling parameters. Entry i is for the token after i accepted drafts, so there are len(Right)+1
	// entries. A drafter of blocks uses one entry for each token of the block, starting at the entry whose index is the
	// number of accepted drafts, so there are len(Right) + plan.Model.Block entries.
	Draws []sample.Draw
	// From is the index of the sequence in the previous pass. After a Run, the rows belong to the first new tokens of
	// that Work. After a Draft, there is one row, which continues the row with logits of that Draft.
	From int
}

// Range holds the tokens from Least to Most.
type Range struct{ Least, Most int32 }

// Draft runs the drafting layer after a Run, or, if chained, after a Draft, and waits for the results, see StartDraft.
func (r *Runner) Draft(works []Draft, chained bool) (Result, error) {
	p, err := r.StartDraft(works, chained)
	if err != nil {
		return Result{}, err
	}
	return p.Wait()
}

// StartDraft enqueues a pass of the drafting layer after a Start, whose pass may not have ended, or, if chained, after
// a Draft. Rows whose outputs are not used only store their keys; then the last rows pass through the whole layer. If
// the tokens come from the previous pass on the device, all rows are stored, and then the drafting layer computes the
// row after the accepted drafts of each sequence. The result holds the rows with logits, in the order of the sequences,
// and is valid until the next Draft. Its plan is the plan of these rows, or nil if no logits are computed.
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
	fed := sampled(works)
	if fed {
		if err := r.saveChosen(); err != nil {
			return Pending{}, err
		}
	}
	store, last := r.collectOthers, r.startLast
	switch {
	case r.cfg.Model.Block > 0: // the target has stored the data that the drafting stages read
		store, last = nil, r.startPicked
	case fed:
		store, last = r.collectAll, r.startPicked
	}
	if store != nil {
		if err := store(works, chained); err != nil {
			return Pending{}, err
		}
		if len(r.draft.batch.Requests) > 0 {
			r.pad(&r.draft)
			if _, _, err := r.start(&r.draft); err != nil {
				return Pending{}, err
			}
		}
	}
	pending := Pending{event: kernel.Done{}}
	if slices.ContainsFunc(works, func(w Draft) bool { return w.Logits }) {
		p, block, err := last(works, chained)
		if err != nil {
			return Pending{}, err
		}
		if _, one := r.model.Device().(kernel.Device); one {
			r.feed.remember(p)
		}
		if pending, err = r.fetch(&r.draft, p, block); err != nil {
			return Pending{}, err
		}
	}
	r.endDrafts(works, pending.Plan())
	return pending, nil
}

// sampled reports whether any work reads tokens of the previous pass on the device.
func sampled(works []Draft) bool {
	return slices.ContainsFunc(works, func(w Draft) bool { return w.Sampled > 0 })
}

// last returns the index, among the tokens, of the row with logits after the given number of accepted drafts.
func (w *Draft) last(right int) int { return len(w.Tokens) - 1 - len(w.Right) + right }

// draws returns the sampling parameters of n tokens after the given number of accepted drafts.
func (w *Draft) draws(right, n int) []sample.Draw {
	if w.Draws == nil {
		return nil
	}
	return w.Draws[right : right+n]
}

func (r *Runner) checkDrafts(works []Draft, chained bool) error {
	for i := range works {
		w := &works[i]
		check := r.checkRows
		if chained {
			check = r.checkChained
		}
		err := r.checkDraft(w)
		if err == nil {
			err = check(w)
		}
		if err == nil {
			err = r.checkSampled(w)
		}
		if err != nil {
			return fmt.Errorf("step: draft %d: %w", i, err)
		}
	}
	return nil
}

// checkDraft checks what a draft must have in any pass.
func (r *Runner) checkDraft(w *Draft) error {
	n, positions := len(w.Tokens), r.model.Config().MaxPositions
	switch {
	case n == 0:
		return errors.New("it has no tokens; want at least one")
	case w.Cached < 0:
		return fmt.Errorf("%d tokens before the first row; want 0 or more", w.Cached)
	case w.Cached+n > positions:
		return fmt.Errorf("%d rows after %d tokens, but the model has %d positions", n, w.Cached, positions)
	case w.Kind != plan.ModeExtend && w.Kind != plan.ModeDraft:
		return fmt.Errorf("the drafting layer does not support mode %v", w.Kind)
	}
	return nil
}

// checkRows checks that the rows of a draft follow rows of the target's previous pass.
func (r *Runner) checkRows(w *Draft) error {
	works := r.target.input.Tokens
	switch {
	case w.From < 0 || w.From >= len(works):
		return fmt.Errorf("it follows work %d, but the previous pass had %d works, counted from 0", w.From, len(works))
	case len(w.Tokens) > len(works[w.From]):
		return fmt.Errorf("%d rows, but the previous pass computed only %d rows of work %d", len(w.Tokens),
			len(works[w.From]), w.From)
	}
	return nil
}

// checkChained checks that a draft continues a draft of the previous pass.
func (r *Runner) checkChained(w *Draft) error {
	drafts := r.ends.requests
	switch {
	case r.cfg.Model.Block > 0:
		return errors.New("a block is drafted in one pass; it cannot continue the previous draft")
	case w.From < 0 || w.From >= len(drafts):
		return fmt.Errorf("it continues draft %d, but the previous pass had %d drafts, counted from 0", w.From,
			len(drafts))
	case drafts[w.From] < 0:
		return fmt.Errorf("it continues draft %d, which computed no logits", w.From)
	case len(w.Tokens) != 1:
		return fmt.Errorf("%d rows; a draft that continues another has one row", len(w.Tokens))
	case !w.Logits:
		return errors.New("a draft that continues another must request logits")
	case w.Sampled > 0:
		return errors.New("a draft that continues another cannot read tokens of the target (Sampled)")
	}
	return nil
}

// checkSampled checks the tokens that the device replaces, and the sampling parameters.
func (r *Runner) checkSampled(w *Draft) error {
	drafts, block := len(w.Right), r.cfg.Model.Block
	switch {
	case w.Sampled > 0 && !w.Logits:
		return errors.New("a draft that reads tokens of the target (Sampled) must request logits")
	case drafts > 0 && w.Sampled == 0:
		return fmt.Errorf("%d drafts in Right, but no token is read from the target (Sampled)", drafts)
	case drafts >= len(w.Tokens):
		return fmt.Errorf("%d drafts in Right for %d tokens; want fewer drafts than tokens", drafts,
			len(w.Tokens))
	case drafts > r.picks.most:
		return fmt.Errorf("%d drafts in Right; the configuration verifies at most %d", drafts, r.picks.most)
	}
	if want := drafts + max(block, 1); w.Draws != nil && len(w.Draws) != want {
		return fmt.Errorf("%d sampling parameters for %d drafts; want %d", len(w.Draws), drafts, want)
	}
	return nil
}

// beginDrafts begins the description of a pass of the drafting layer.
func (r *Runner) beginDrafts(works []Draft, pass plan.Pass) {
	b, in := &r.draft.batch, &r.draft.input
	b.Mode, b.Requests, b.Pass = plan.ModeIdle, b.Requests[:0], pass
	in.Tokens, in.Tables, in.Hidden, in.States = in.Tokens[:0], in.Tables[:0], in.Hidden[:0], in.States[:0]
	in.Draws, b.Draws, r.feed.wants = in.Draws[:0], false, r.feed.wants[:0]
	in.Windows = in.Windows[:0]
	rows := 0
	for i := range works {
		rows += len(works[i].Tokens)
	}
	if cap(r.rows) < rows {
		r.rows = make([]int32, 0, rows)
	}
	r.rows = r.rows[:0]
}

// addDraft adds rows of a work to a pass of the drafting layer, for tokens [from, to). Row t reads the hidden state in
// row source(t) of the previous pass. With logits there is one row, and draws holds its sampling parameters.
func (r *Runner) addDraft(w *Draft, kind plan.Mode, from, to int, source func(t int) (int32, error), logits bool,
	draws []sample.Draw) error {
	b, in := &r.draft.batch, &r.draft.input
	first := len(r.rows)
	for t := from; t < to; t++ {
		row, err := source(t)
		if err != nil {
			return err
		}
		r.rows = append(r.rows, row)
	}
	q := plan.DraftRequest(to-from, w.Cached+to)
	if kind == plan.ModeExtend {
		q = plan.ExtendRequest(to-from, w.Cached+from)
	}
	if q.Rank = w.Rank; logits {
		q.Logits, q.Best = 1, w.Best
	}
	b.Draws = b.Draws || draws != nil
	in.Draws = append(in.Draws, draws)
	b.Add(q)
	in.Tokens = append(in.Tokens, w.Tokens[from:to])
	in.Tables = append(in.Tables, w.Pages)
	in.States = append(in.States, w.State)
	in.Hidden = append(in.Hidden, r.rows[first:])
	return nil
}

// collectOthers adds the rows without logits to the batch.
func (r *Runner) collectOthers(works []Draft, chained bool) error {
	r.beginDrafts(works, plan.PassDraft)
	for i := range works {
		w := &works[i]
		to := len(w.Tokens)
		if w.Logits {
			to--
		}
		if to == 0 {
			continue
		}
		if err := r.addDraft(w, w.Kind, 0, to, r.source(w, chained), false, nil); err != nil {
			return fmt.Errorf("step: draft %d: %w", i, err)
		}
	}
	return nil
}

// startLast enqueues a pass over the rows with logits.
func (r *Runner) startLast(works []Draft, chained bool) (*pass, []int32, error) {
	pass := plan.PassDraft
	if chained {
		pass = plan.PassChain
	}
	r.beginDrafts(works, pass)
	for i := range works {
		w := &works[i]
		if n := len(w.Tokens); w.Logits {
			if err := r.addDraft(w, plan.ModeDraft, n-1, n, r.source(w, chained), true, w.Draws); err != nil {
				return nil, nil, fmt.Errorf("step: draft %d: %w", i, err)
			}
		}
	}
	r.pad(&r.draft)
	return r.start(&r.draft)
}

// source returns a function that returns, for row t of a draft, the row of the previous pass that holds its hidden
// state.
func (r *Runner) source(w *Draft, chained bool) func(t int) (int32, error) {
	return func(t int) (int32, error) {
		if chained {
			return attn.RowOf(r.ends.plan, r.ends.requests[w.From], 0)
		}
		return attn.RowOf(r.target.input.Plan, w.From, t)
	}
}

// ends holds the rows from which a chain can continue after a draft pass.
type ends struct {
	plan     *plan.Plan
	requests []int // index of the request in the pass, for each Draft; negative for a Draft without logits
}

// endDrafts records the rows after which a chain can continue.
func (r *Runner) endDrafts(works []Draft, p *plan.Plan) {
	r.ends.plan, r.ends.requests = p, r.ends.requests[:0]
	at := 0
	for i := range works {
		if !works[i].Logits {
			r.ends.requests = append(r.ends.requests, -1)
			continue
		}
		r.ends.requests = append(r.ends.requests, at)
		at++
	}
}
