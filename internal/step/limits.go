package step

import (
	"sparrow/internal/model"
	"sparrow/kernel"
	"sparrow/plan"
)

// Limits holds the maximum sizes of passes; zero means the default.
type Limits struct {
	Rows     int // new tokens of a pass; default 512
	Requests int // sequences of a pass; default 64, at most Rows
	Prompts  int // prompts among the sequences of a pass; default 4
	Context  int // tokens of a sequence; default is the model's maximum
	// Decodes reports that every sequence of a pass has one row: a decode or, in the drafting layer, the row after a
	// decode.
	Decodes bool
	// PromptLogits is the number of prompt tokens for which a pass computes logits, in addition to the last token of
	// each prompt.
	PromptLogits int
	// Draws reports that the device samples tokens, and that a draft pass may be enqueued before the host has the
	// target's tokens.
	Draws bool
	// GraphBytes is the maximum device memory of captured graphs; a negative value disables graphs.
	GraphBytes int64
	// PadStates enables padding of batches for models with sequence states (model.Stateful); for other models it is
	// always enabled.
	PadStates bool
	// Record selects the data that passes of the target may record, and Replay the data that they may replay, for
	// RecordRows rows each; 0 rows means every row.
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

// Measure returns the memory of passes within limits. It lays out the largest plans of each kind on an arena that
// counts bytes without allocating them.
func Measure(m model.Model, cfg plan.Config, l Limits) (int64, error) {
	l = l.withDefaults(&cfg)
	a := kernel.MeasureArena()
	work, _, _ := l.bind(m, a, &cfg)
	mark := a.Mark()
	err := l.bounds(m, &cfg, func(p *plan.Plan) error {
		a.Reset(mark)
		_, err := work.Arrange(p, &cfg, a)
		return err
	})
	return a.High(), err
}

// bind allocates the tensors that outlive a pass from an arena.
func (l *Limits) bind(m model.Model, a *kernel.Arena, cfg *plan.Config) (model.Workspace, feed, picks) {
	drafts := 0
	if l.Draws && follows(m, cfg) {
		drafts = cfg.N - 1
	}
	block := cfg.Model.Block
	return m.Bind(a, l.Rows), newFeed(a, max(l.Rows, block*l.Requests)), bindPicks(a, l.Requests, drafts, block)
}

// follows reports whether a draft pass may be enqueued before the host knows the accepted tokens: the drafting layer
// can pick the row after the accepted drafts on the device, or it drafts blocks. Models with sequence states cannot
// pick rows, because the states contain only accepted tokens.
func follows(m model.Model, cfg *plan.Config) bool {
	d, ok := m.(model.Drafter)
	_, stateful := m.(model.Stateful)
	return ok && cfg.N > 1 && d.DraftHead() == nil && (!stateful || cfg.Model.Block > 0)
}

// bounds calls visit with plans that need at least as much memory as any pass within the limits.
func (l *Limits) bounds(m model.Model, cfg *plan.Config, visit func(*plan.Plan) error) error {
	for _, most := range l.kinds(m, cfg) {
		for _, most := range withFewer(most, plan.JointRows(cfg.Hardware.Arch)) {
			// If some rows of logits are not returned, all rows are computed in memory next to the returned rows; both
			// cases are visited.
			for most.Whole = max(most.Logits-1, 0); most.Whole <= most.Logits; most.Whole++ {
				if err := visit(plan.Bound(*cfg, most)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// kinds returns the kinds of passes: of the target, with and without prompts, and of the drafting layer. Passes without
// prompts need no more arena memory than passes with prompts, but operations of fewer rows may use more scratch memory.
func (l *Limits) kinds(m model.Model, cfg *plan.Config) []plan.Most {
	width := max(cfg.N, 1)
	if l.Decodes {
		width = 1
	}
	var list []plan.Most
	for n := 1; n <= width; n++ {
		rows := min(l.Rows, l.Requests*n)
		list = append(list, plan.Most{Rows: rows, Width: n, Logits: rows})
	}
	if !l.Decodes {
		list = append(list, plan.Most{Rows: l.Rows, Prompts: l.Prompts, Width: width,
			Logits: min(l.Rows, l.Requests*width+l.PromptLogits)})
	}
	for i := range list {
		k := &list[i]
		if l.Record != (plan.Record{}) {
			k.Record, k.Recorded = l.Record, min(l.RecordRows, k.Rows)
		}
		if l.Replay != (plan.Replay{}) {
			k.Replay, k.Replayed = l.Replay, min(l.RecordRows, k.Rows)
		}
	}
	d, ok := m.(model.Drafter)
	switch n := cfg.Model.Block; {
	case !ok || cfg.N <= 1 || d.DraftHead() != nil:
	case n > 0:
		list = append(list, plan.Most{Pass: plan.PassBlock, Rows: n * l.Requests, Width: n, Logits: n * l.Requests})
	default:
		all := list[len(list)-1] // largest pass of the target
		last := plan.Most{Pass: plan.PassChain, Rows: l.Requests, Width: 1, Logits: l.Requests}
		list = append(list, last, plan.Most{Pass: plan.PassDraft, Rows: all.Rows, Prompts: all.Prompts,
			Width: all.Width, Logits: l.Requests})
		if l.Draws && follows(m, cfg) {
			last.Pass = plan.PassPick
			list = append(list, last)
		}
	}
	for i := range list {
		list[i].Requests, list[i].Context = l.Requests, l.Context
		list[i].Draws = l.Draws || list[i].Pass == plan.PassBlock // a pass of blocks samples tokens on any device
	}
	return list
}

// withFewer returns two kinds of passes: those with few enough rows to compute the indexer queries of all rows at once,
// and those with more rows.
func withFewer(most plan.Most, joint int) []plan.Most {
	if most.Pass == plan.PassBlock { // a pass of blocks has no indexer
		return []plan.Most{most}
	}
	few := most
	few.Joint, few.Rows = true, min(most.Rows, joint)
	few.Requests, few.Logits = min(few.Requests, few.Rows), min(few.Logits, few.Rows)
	few.Recorded, few.Replayed = min(few.Recorded, few.Rows), min(few.Replayed, few.Rows)
	if most.Rows <= joint {
		return []plan.Most{few}
	}
	return []plan.Most{few, most}
}
