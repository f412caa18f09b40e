package sched

import "sparrow/cost"

// A tenant's first sequence does not wait behind the decodes of others. Where its prompt alone takes no longer than
// they do, it is computed in a batch apart, and its first token comes in half the time or less; they go on in the batch
// after it. So they are held up by what one short prompt takes, never twice in a row, and within Limits.MaxStall.

// addNewcomers adds the prompts of sequences that are the only ones of their tenants, where a batch of them alone is
// worth it, and reports whether there are any.
func (s *Scheduler) addNewcomers() bool {
	// Prompts in flight still hold window pages, which the decodes of the next batch may need.
	if len(s.waiting) == 0 || s.pools[0].WindowsPerSequence() > 0 && s.flying() {
		return false
	}
	var decodes cost.Work
	for _, q := range s.running {
		if q.decoding() {
			decodes.Decode.Add(1+len(q.Drafts), q.end())
		}
	}
	for len(s.items) < s.limits.MaxPrompts {
		next := s.nextToAdmit()
		if next < 0 || !s.comesApart(s.waiting[next], &decodes) {
			break
		}
		q := s.admit(next)
		if n := q.left(); !q.restoring && s.reserve(q, n) == nil {
			s.load.AddPrompt(n, q.end(), s.limits.Threshold)
			s.addItem(q, n, false)
		}
	}
	s.load.apart = len(s.items) > 0
	return s.load.apart
}

// comesApart reports whether a waiting sequence is added to a batch without the decodes of others.
func (s *Scheduler) comesApart(q *Sequence, decodes *cost.Work) bool {
	if q.tenant().running > 0 || q.Preempted > 0 || q.Logits > 1 || q.Record != (Span{}) || q.Replay != (Span{}) {
		return false
	}
	rank, _ := s.place(q, nil)
	match, err := s.pools[rank].Peek(q.Tokens, q.Options())
	if err != nil {
		return false
	}
	w := s.load.Work
	w.AddPrompt(len(q.Tokens)-match.Tokens, match.Tokens, s.limits.Threshold)
	if int(w.Prompts()) > s.limits.BatchTokens || !s.cost.Trusts(&w, SmallestChunk) {
		return false
	}
	alone, others := s.cost.Predict(&w), s.cost.Decoding(decodes)
	return alone <= others && (s.limits.MaxStall <= 0 || alone+others <= s.stallLimit(decodes)/s.cost.Late())
}
