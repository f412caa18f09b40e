package verify

import (
	"fmt"
	"slices"

	"sparrow/model"
	"sparrow/plan"
	"sparrow/step"
)

// outcome is what a model gave for one case.
type outcome struct {
	logits  [][]float32 // one row for each prompt position
	decoded [][]float32 // one for each greedy token but the last
	greedy  []int32
	record  *record
	plans   []*plan.Plan
}

// run computes one case: the prompt whole or in chunks, then greedy decoding with the cache. Where tokens are given,
// they are decoded in place of the model's own.
func run(m model.Model, cfg plan.Config, g *Golden, chunk int, given []int32) (*outcome, error) {
	n := len(g.Input)
	total := n + len(g.Greedy)
	pages := (total + cfg.Page - 1) / cfg.Page
	if err := m.Allocate(&cfg, pages+1); err != nil {
		return nil, err
	}
	table := make([]int32, pages)
	for i := range table {
		table[i] = int32(pages - i) // not in order, and page 0 unused: a kernel that ignored the table would be caught
	}
	o := &outcome{record: newRecord(n, m.Config().Layers)}
	what := plan.Record{Hidden: true, Selections: true}
	r, err := step.New(m, cfg, step.Limits{Rows: n, Requests: 1, Prompts: 1, Context: total, PromptLogits: n,
		Record: what})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var state model.State
	if s, ok := m.(model.Stateful); ok {
		var err error
		if state, err = s.NewState(); err != nil {
			return nil, err
		}
		defer state.Release()
	}
	if chunk <= 0 {
		chunk = n
	}
	for at := 0; at < n; at += chunk {
		part := g.Input[at:min(at+chunk, n)]
		res, err := r.Run([]step.Work{{Kind: plan.ModeExtend, Tokens: part, Cached: at, Pages: table,
			Logits: len(part), State: state, Record: what, RecordTo: len(part)}})
		if err != nil {
			return nil, fmt.Errorf("verify: case %s: prompt from position %d: %w", g.Name, at, err)
		}
		o.keep(res.Plan)
		o.record.keep(res, at, len(part))
		for i := range part {
			o.logits = append(o.logits, slices.Clone(res.Row(i)))
		}
	}
	next := argmax(o.logits[n-1])
	for i := range g.Greedy {
		o.greedy = append(o.greedy, next)
		if given != nil {
			next = given[i]
		}
		if i+1 == len(g.Greedy) {
			break
		}
		res, err := r.Run([]step.Work{
			{Kind: plan.ModeDecode, Tokens: []int32{next}, Cached: n + i, Pages: table, Logits: 1, State: state}})
		if err != nil {
			return nil, fmt.Errorf("verify: case %s: greedy token %d: %w", g.Name, i, err)
		}
		o.keep(res.Plan)
		o.decoded = append(o.decoded, slices.Clone(res.Row(0)))
		next = argmax(res.Row(0))
	}
	return o, nil
}

// keep notes a plan that differs from the last one.
func (o *outcome) keep(p *plan.Plan) {
	if n := len(o.plans); n == 0 || o.plans[n-1] != p {
		o.plans = append(o.plans, p)
	}
}

// argmax is the lowest index of the largest value.
func argmax(v []float32) int32 {
	best := 0
	for i := range v {
		if v[i] > v[best] {
			best = i
		}
	}
	return int32(best)
}
