package verify

import (
	"fmt"
	"slices"

	"sparrow/internal/model"
	"sparrow/internal/step"
	"sparrow/plan"
	"sparrow/record"
)

// outcome holds the results of a model for one case.
type outcome struct {
	logits  [][]float32 // one row for each prompt position
	decoded [][]float32 // one row for each greedy token except the last
	greedy  []int32
	record  *recorded
	plans   []*plan.Plan
	chosen  []record.Row // the choices of every row, if requested
}

// options states how a case is run.
type options struct {
	chunk  int     // prompt tokens per pass; 0 means all
	given  []int32 // tokens that are decoded instead of the model's own
	rows   bool    // whether the choices of rows are recorded
	replay []record.Row
}

// run computes one case: the prompt whole or in chunks, then greedy decoding with the cache.
func run(m model.Model, cfg plan.Config, g *Golden, by options) (*outcome, error) {
	n := len(g.Input)
	total := n + len(g.Greedy)
	pages := (total + cfg.Page - 1) / cfg.Page
	if err := m.Allocate(&cfg, pages+1); err != nil {
		return nil, err
	}
	o := &outcome{record: newRecorded(n, m.Config().Layers)}
	o.record.pool = cfg.Model.PoolTokens()
	what := plan.Record{Hidden: true, Selections: true, Experts: true}
	copies := copiesOf(&cfg)
	k := len(copies)
	limits := step.Limits{Rows: k * n, Requests: k, Prompts: k, Context: total, PromptLogits: k * n, Record: what}
	var replay *record.Replay
	if by.replay != nil {
		var err error
		if replay, err = record.NewReplay(by.replay, cfg.Model.Choices()); err != nil {
			return nil, fmt.Errorf("verify: case %s: %w", g.Name, err)
		}
		limits.Replay = plan.Replay{Selections: replay.Selections, Experts: replay.Experts}
	}
	r, err := step.New(m, cfg, limits)
	if err != nil {
		return nil, err
	}
	keep := func(res step.Result, at, n int) {
		x := step.Recording{What: what, Shape: cfg.Model.Choices()}
		x.Layers = slices.Repeat([]bool{true}, len(x.Shape.Layers))
		for i := 0; by.rows && i < n; i++ {
			o.chosen = append(o.chosen, x.Row(res, i, at+i))
		}
	}
	defer r.Close()
	for i := range copies {
		c := &copies[i]
		for p := range pages {
			// Pages are not in order, and page 0 is unused, so that a kernel that ignores the page table gives wrong
			// results.
			c.table = append(c.table, int32(c.rank*(pages+1)+pages-p))
		}
		if s, ok := m.(model.Stateful); ok {
			var err error
			if c.state, err = s.NewState(); err != nil {
				return nil, err
			}
			defer c.state.Release()
		}
	}
	chunk := by.chunk
	if chunk <= 0 {
		chunk = n
	}
	for at := 0; at < n; at += chunk {
		part := g.Input[at:min(at+chunk, n)]
		res, err := copies.run(r, m.Config().Layers, step.Work{Kind: plan.ModeExtend, Tokens: part, Cached: at,
			Before: g.Input[:at], Logits: len(part), Record: what, RecordTo: len(part), Replay: replay})
		if err != nil {
			return nil, fmt.Errorf("verify: case %s: prompt from position %d: %w", g.Name, at, err)
		}
		o.keep(res.Plan)
		o.record.keep(res, at, len(part))
		keep(res, at, len(part))
		for i := range part {
			o.logits = append(o.logits, slices.Clone(res.Row(i)))
		}
	}
	next := argmax(o.logits[n-1])
	var fed []int32
	for i := range g.Greedy {
		o.greedy = append(o.greedy, next)
		if by.given != nil {
			next = by.given[i]
		}
		before := slices.Concat(g.Input, fed)
		fed = append(fed, next)
		if i+1 == len(g.Greedy) {
			break
		}
		res, err := copies.run(r, m.Config().Layers, step.Work{Kind: plan.ModeDecode, Tokens: []int32{next},
			Cached: n + i, Before: before, Logits: 1, Record: what, RecordTo: 1, Replay: replay})
		if err != nil {
			return nil, fmt.Errorf("verify: case %s: greedy token %d: %w", g.Name, i, err)
		}
		o.keep(res.Plan)
		keep(res, n+i, 1)
		o.decoded = append(o.decoded, slices.Clone(res.Row(0)))
		next = argmax(res.Row(0))
	}
	return o, nil
}

// copies has the sequences as which a case is computed: one or, if ranks share attention by requests, one on the
// first and one on the last rank, with none on the ranks between them.
type copies []sequence

// sequence is one sequence: the rank that has it, its pages and its state.
type sequence struct {
	rank  int
	table []int32
	state model.State
}

func copiesOf(cfg *plan.Config) copies {
	if !cfg.Model.ByRequests() {
		return make(copies, 1)
	}
	return copies{{}, {rank: cfg.Model.Ranks - 1}}
}

// run runs a pass of all copies, whose logits and records must be bitwise equal. The result begins with the rows of
// the first copy.
func (c copies) run(r *step.Runner, layers int, w step.Work) (step.Result, error) {
	var works []step.Work
	for i := range c {
		w.Rank, w.Pages, w.State = c[i].rank, c[i].table, c[i].state
		works = append(works, w)
	}
	res, err := r.Run(works)
	if err != nil {
		return res, err
	}
	for i := 1; i < len(c); i++ {
		for row := range w.Logits {
			if !slices.Equal(res.Row(row), res.Row(i*w.Logits+row)) {
				return res, fmt.Errorf("row %d of logits on rank %d differs from that on rank %d", row, c[i].rank,
					c[0].rank)
			}
		}
		for row := range w.RecordTo {
			for l := range layers {
				if a, b := res.Selected(l, row), res.Selected(l, i*w.RecordTo+row); !slices.Equal(a, b) {
					return res, fmt.Errorf("row %d of layer %d selects %v on rank %d and %v on rank %d", row, l, b,
						c[i].rank, a, c[0].rank)
				}
			}
		}
	}
	return res, nil
}

// keep records a plan that differs from the last one.
func (o *outcome) keep(p *plan.Plan) {
	if n := len(o.plans); n == 0 || o.plans[n-1] != p {
		o.plans = append(o.plans, p)
	}
}

// argmax returns the lowest index of the largest value.
func argmax(v []float32) int32 {
	best := 0
	for i := range v {
		if v[i] > v[best] {
			best = i
		}
	}
	return int32(best)
}
