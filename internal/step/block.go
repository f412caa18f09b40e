package step

import "sparrow/plan"

// collectBlocks adds a block of drafts to the batch for every work with logits, beginning after right accepted drafts,
// or after all drafts of the work if there are fewer. Result.Drafted returns the drafts.
func (r *Runner) collectBlocks(works []Draft, right int) {
	n := r.cfg.Model.Block
	r.beginDrafts(works, plan.PassBlock)
	b, in := &r.draft.batch, &r.draft.input
	for i := range works {
		w := &works[i]
		if !w.Logits {
			continue
		}
		k := min(right, len(w.Right))
		at := w.last(k)
		q := plan.DraftRequest(n, w.Cached+at+1+n)
		q.Rank, q.Logits, q.Best = w.Rank, n, w.Best
		b.Draws = b.Draws || w.Draws != nil
		b.Add(q)
		in.Draws = append(in.Draws, w.draws(k, n))
		in.Tokens = append(in.Tokens, w.Tokens[at:at+1])
		in.Tables = append(in.Tables, w.Pages)
		in.Windows = append(in.Windows, w.Windows)
		in.States = append(in.States, w.State)
	}
	r.pad(&r.draft)
}

// Drafted returns the position and the confidence of draft i in the block of a request; requests are the works with
// logits, in order. row is the index of the draft among the requested rows of logits of the pass. confidence is the
// logit of the drafter's confidence that the draft is accepted, given that the drafts before it are accepted.
func (r Result) Drafted(request, i int) (row int, confidence float32) {
	row = i*r.Plan.Requests + request
	return row, r.view(r.pass.Outputs().Confidence.Slice(row, row+1))[0]
}
