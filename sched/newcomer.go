package sched

import "sparrow/cost"

// A tenant's first sequence does not wait behind the decodes of others. Where its prompt alone takes no longer than
// they do, it is computed in a batch apart, and its first token comes in half the time or less; they go on in the batch
// after it. So they are held up by what one short prompt takes, never twice in a row, and within Limits.MaxStall.

// addNewcomers adds the prompts of sequences that are the only ones of their tenants, where a batch of them alone is
// worth it, and reports whether there are any.
func (f *forming) addNewcomers() bool {
	// Prompts in flight still hold window pages, which the decodes of the next batch may need.
	if len(f.roster.waiting) == 0 || f.roster.pools[0].WindowsPerSequence() > 0 && f.roster.flying() {
		return false
	}
	var decodes cost.Work
	for _, q := range f.roster.running {
		if q.decoding() {
			decodes.Decode.Add(1+len(q.Drafts), q.end())
		}
	}
	for len(f.items) < f.roster.limits.MaxPrompts {
		next := f.roster.nextToAdmit()
		if next < 0 || !f.comesApart(f.roster.waiting[next], &decodes) {
			break
		}
		q := f.roster.admit(next)
		if n := q.left(); !q.restoring && f.roster.reserve(q, n) == nil {
			f.load.AddPrompt(n, q.end(), f.roster.limits.Threshold)
			f.addItem(q, n, false)
		}
	}
	f.load.apart = len(f.items) > 0
	return f.load.apart
}

// comesApart reports whether a waiting sequence is added to a batch without the decodes of others.
func (f *forming) comesApart(q *Sequence, decodes *cost.Work) bool {
	if q.tenant().running > 0 || q.Preempted > 0 || q.Logits > 1 || q.Record != (Span{}) || q.Replay != (Span{}) {
		return false
	}
	rank, _ := f.roster.place(q, nil)
	match, err := f.roster.pools[rank].Peek(q.Tokens, q.Options())
	if err != nil {
		return false
	}
	w := f.load.Work
	w.AddPrompt(len(q.Tokens)-match.Tokens, match.Tokens, f.roster.limits.Threshold)
	if int(w.Prompts()) > f.roster.limits.BatchTokens || !f.cost.Trusts(&w, SmallestChunk) {
		return false
	}
	alone, others := f.cost.Predict(&w), f.cost.Decoding(decodes)
	return alone <= others && (f.roster.limits.MaxStall <= 0 || alone+others <= f.stallLimit(decodes)/f.cost.Late())
}
