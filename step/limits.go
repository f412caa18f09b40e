package step

import (
	"slices"

	"sparrow/kernel"
	"sparrow/model"
	"sparrow/plan"
)

// Limits bound passes; a zero takes the default.
type Limits struct {
	Rows     int // new tokens of a pass; 512
	Requests int // sequences of a pass; 64, and at most Rows
	Prompts  int // of them prompts; 4
	Context  int // tokens of a sequence; the model's
	// Decodes says that every sequence of a pass has one row, which decodes or, of the drafting layer, follows such a
	// row.
	Decodes bool
	// PromptLogits is for how many tokens of prompts a pass computes logits beside the last one of each prompt.
	PromptLogits int
	// Draws says that the device draws tokens, and that the drafting layer may follow the target before the host has
	// seen what that chose.
	Draws bool
	// GraphBytes is the device memory that captured graphs may take; negative for no graphs.
	GraphBytes int64
	// PadStates pads batches of a model.Stateful as it does those of other models.
	PadStates bool
	// Record is what passes of the target may record, and Replay what they may be given, of RecordRows rows each; 0 is
	// every row.
	Record     plan.Record
	Replay     plan.Replay
	RecordRows int
}

func (l Limits) withDefaults(cfg *plan.Config) Limits {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&l.Rows, 512)
	set(&l.Requests, 64)
	set(&l.Prompts, 4)
	set(&l.Context, cfg.Model.Context)
	l.Context = max(l.Context, 1)
	l.Rows = min(l.Rows, l.Prompts*l.Context+l.Requests*max(cfg.N, 1))
	l.Requests = min(l.Requests, l.Rows)
	set(&l.RecordRows, l.Rows)
	return l
}

// Measure is the memory of the largest pass within limits: it is laid out on an arena without memory.
func Measure(m model.Model, cfg plan.Config, l Limits) (int64, error) {
	high, bound, err := l.withDefaults(&cfg).measure(m, &cfg)
	if err != nil {
		return 0, err
	}
	// Smaller shapes may round and slice differently and need a little more; an eighth more covers them.
	return high + (high-bound)/8, nil
}

// measure is the memory of the passes of worst, and the part of it that outlives a pass.
func (l Limits) measure(m model.Model, cfg *plan.Config) (high, bound int64, err error) {
	a := kernel.MeasureArena()
	work, _, _ := l.bind(m, a, cfg)
	bound = a.Mark()
	err = l.largest(m, cfg, func(p *plan.Plan) error {
		a.Reset(bound)
		_, err := work.Arrange(p, cfg, a)
		return err
	})
	return a.High(), bound, err
}

// bind takes from an arena what outlives a pass.
func (l *Limits) bind(m model.Model, a *kernel.Arena, cfg *plan.Config) (model.Workspace, feed, picks) {
	drafts := 0
	if l.Draws && follows(m, cfg) {
		drafts = cfg.N - 1
	}
	return m.Bind(a, l.Rows), newFeed(a, l.Rows), bindPicks(a, l.Requests, drafts)
}

// follows reports whether there is a drafting layer whose rows can be picked when they are stored: states of sequences
// keep what was accepted.
func follows(m model.Model, cfg *plan.Config) bool {
	d, ok := m.(model.Drafter)
	_, stateful := m.(model.Stateful)
	return ok && cfg.N > 1 && d.DraftHead() == nil && !stateful
}

// largest calls visit with the plans of the largest passes.
func (l *Limits) largest(m model.Model, cfg *plan.Config, visit func(*plan.Plan) error) error {
	d, ok := m.(model.Drafter)
	for _, b := range l.worst(cfg, ok && cfg.N > 1 && d.DraftHead() == nil, l.Draws && follows(m, cfg)) {
		p, err := plan.Build(*cfg, b)
		if err == nil {
			err = visit(p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// worst are the batches that need the most memory: full contexts, as many rows and logits as a pass can have.
// Drafts says whether there are passes of a drafting layer, picks whether rows of them are picked.
func (l *Limits) worst(cfg *plan.Config, drafts, picks bool) []plan.Batch {
	list := l.full(cfg, drafts, picks)
	// A pass of fewer rows keeps the indexer queries of all of them.
	if n := plan.JointRows(cfg.Hardware.Arch); n < l.Rows {
		fewer := *l
		fewer.Rows, fewer.Requests = n, min(l.Requests, n)
		list = append(list, fewer.full(cfg, drafts, picks)...)
	}
	return list
}

// full are those batches of worst that have as many rows as the limits allow.
func (l *Limits) full(cfg *plan.Config, drafts, picks bool) []plan.Batch {
	var list []plan.Batch
	add := func(pass plan.Pass, requests ...plan.Request) {
		if len(requests) == 0 {
			return
		}
		b := plan.Batch{Pass: pass, Draws: l.Draws}
		if pass == plan.PassTarget {
			b.Record, b.Replay = l.Record, l.Replay
		}
		left, least := l.RecordRows, 0
		for i, q := range requests {
			if pass != plan.PassTarget && q.Kind == plan.ModeExtend {
				q.Logits = 1 // the drafting layer scores no prompt
			}
			n := min(max(q.Extend, q.N, 1), left)
			if b.Record != (plan.Record{}) {
				q.Records = n
			}
			if b.Replay != (plan.Replay{}) {
				q.Replays = n
			}
			left -= n
			b.Add(q)
			if q.Logits < b.Requests[least].Logits {
				least = i
			}
		}
		list = append(list, b)
		if len(requests) == 1 {
			return
		}
		// Where the best token is enough for some rows, logits are computed beside those that come back whole: twice
		// the memory where all others do.
		b.Requests = slices.Clone(b.Requests)
		b.Requests[least].Best = true
		list = append(list, b)
	}
	// Prompts that end where a full context does, one and several, alone and beside decodes of other sequences; at
	// its beginning, where a reserve of transient memory lets a launch have more rows; and at the last row of the dense
	// form, which expands all keys before it.
	promptsTo := func(n, rows, end int) (out []plan.Request) {
		logits := l.PromptLogits
		for i := range n {
			chunk := min(rows/n+(rows%n+n-1-i)/n, l.Context)
			if chunk > 0 {
				q := plan.ExtendRequest(chunk, max(end-chunk, 0))
				q.Logits = 1 + min(chunk-1, logits)
				logits -= q.Logits - 1
				out = append(out, q)
			}
		}
		return out
	}
	prompts := func(n, rows int) []plan.Request { return promptsTo(n, rows, l.Context) }
	// Decodes of up to n sequences, each of up to that many rows and all together of left. For each that is to come,
	// one leaves follow rows.
	decodes := func(n, each, left, follow int) (out []plan.Request) {
		for ; n > 0 && left > 0; n-- {
			rows := min(each, max(left-follow*(n-1), 1), l.Context)
			q := plan.DecodeRequest(l.Context)
			if rows > 1 {
				q = plan.VerifyRequest(rows, max(l.Context-rows, 0))
			}
			q.Logits = rows
			left -= rows
			out = append(out, q)
		}
		return out
	}
	last := make([]plan.Request, l.Requests)
	for i := range last {
		last[i] = plan.DraftRequest(1, l.Context)
		last[i].Logits = 1
	}
	if l.Decodes {
		add(plan.PassTarget, decodes(l.Requests, 1, l.Rows, 0)...)
		if drafts {
			add(plan.PassDraft, last...)
		}
		return list
	}
	several := min(l.Prompts, l.Rows)
	add(plan.PassTarget, prompts(1, l.Rows)...)
	add(plan.PassTarget, prompts(several, l.Rows)...)
	add(plan.PassTarget, promptsTo(1, l.Rows, 0)...)
	add(plan.PassTarget, promptsTo(several, l.Rows, 0)...)
	dense := 0
	if cfg.DenseOK {
		dense = min(cfg.T, l.Context)
		add(plan.PassTarget, promptsTo(1, l.Rows, dense)...)
		add(plan.PassTarget, promptsTo(several, l.Rows, dense)...)
	}
	most := max(cfg.N, 1)
	for n := 1; n <= most; n++ { // the width that divides the rows best has the largest launch
		add(plan.PassTarget, decodes(l.Requests, n, l.Rows, 0)...)
	}
	if most > 1 {
		add(plan.PassTarget, decodes(l.Requests, most, l.Rows, 1)...) // all sequences and all rows
	}
	// Prompts beside one decode, or as few as their contexts leave rows for: a row that scores makes a pass keep the
	// indexer queries of all rows, also of those at the beginning of prompts, which do not score and have the largest
	// launches. Prompts beside as many rows of decodes as leave each of them one: the most logits, and the keys of
	// several contexts.
	few, done := max(1, l.Rows-several*l.Context), 0
	for _, beside := range []struct{ rows, each int }{{few, (few + l.Requests - 1) / l.Requests}, {l.Requests, 1},
		{l.Requests * most, most}} {
		n := max(1, min(beside.rows, l.Rows-several))
		rest := l.Rows - n
		if rest < 1 || n == done {
			continue
		}
		done = n
		others := decodes(l.Requests, beside.each, n, 0)
		add(plan.PassTarget, append(prompts(min(several, rest), rest), others...)...)
		add(plan.PassTarget, append(promptsTo(min(several, rest), rest, 0), others...)...)
		if dense > 0 {
			add(plan.PassTarget, append(promptsTo(min(several, rest), rest, dense), others...)...)
		}
	}
	if drafts {
		add(plan.PassDraft, prompts(1, l.Rows)...)
		add(plan.PassDraft, prompts(several, l.Rows)...)
		if dense > 0 {
			add(plan.PassDraft, promptsTo(several, l.Rows, dense)...)
		}
		add(plan.PassDraft, last...)
		add(plan.PassChain, last...)
		if picks {
			add(plan.PassPick, last...)
		}
	}
	return list
}
