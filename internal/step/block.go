package step

import (
	"sparrow/kernel"
	"sparrow/plan"
)

// startBlocks enqueues a block of drafts for every work with logits. The result holds them work after work
// (Result.Drafted).
func (r *Runner) startBlocks(works []Draft) (Pending, error) {
	n := r.cfg.Model.Block
	r.beginDrafts(works, plan.PassBlock)
	b, in := &r.draft.batch, &r.draft.input
	for i := range works {
		w := &works[i]
		if !w.Logits {
			continue
		}
		q := plan.DraftRequest(n, w.Cached+len(w.Tokens)+n)
		q.Rank, q.Logits, q.Best = w.Rank, n, w.Best
		b.Draws = b.Draws || w.Draws != nil
		b.Add(q)
		in.Draws = append(in.Draws, w.Draws)
		in.Tokens = append(in.Tokens, w.Tokens[len(w.Tokens)-1:])
		in.Tables = append(in.Tables, w.Pages)
		in.Windows = append(in.Windows, w.Windows)
		in.States = append(in.States, w.State)
	}
	pending := Pending{event: kernel.Done{}, feed: &r.feed}
	if len(b.Requests) == 0 {
		return pending, nil
	}
	r.pad(&r.draft)
	p, block, err := r.start(&r.draft)
	if err != nil {
		return Pending{}, err
	}
	return r.fetch(&r.draft, p, block)
}

// Drafted is draft i of the block of a request, the requests of works with logits counted: its row among the wanted
// rows of the pass, and the logit of the drafter's confidence in it, given the drafts before it.
func (r Result) Drafted(request, i int) (row int, confidence float32) {
	row = i*r.Plan.Requests + request
	return row, r.view(r.pass.Outputs().Confidence.Slice(row, row+1))[0]
}
