package sched

import (
	"slices"

	"sparrow/internal/cost"
)

// The first sequence of a tenant does not wait for the work of other tenants. It is computed in its own batch if its
// prompt alone takes no longer than the decodes of the other sequences, or at most a quarter of their batch with
// prompts. Its first token then comes in half the time or less. The other sequences continue in the next batch: they
// are delayed by one short prompt, never twice in a row, and decodes stay within Limits.MaxStall. If all sequences
// belong to one tenant, this rule applies to the first sequence of each flow.

// addFirstSequences adds the prompts of sequences that are the only sequences of their tenants, if a batch of only
// these is worthwhile, and reports whether there are any.
func (f *forming) addFirstSequences() bool {
	// Prompts in flight still hold window pages, which the decodes of the next batch may need.
	if len(f.roster.waiting) == 0 || f.roster.pools[0].WindowsPerSequence() > 0 && f.roster.flying() {
		return false
	}
	others := f.othersWork()
	if others.Decode.N+others.Prompts() == 0 {
		return false
	}
	for len(f.items) < f.roster.limits.MaxPrompts {
		q := f.nextFirst(&others)
		if q == nil {
			break
		}
		f.roster.admit(slices.Index(f.roster.waiting, q))
		if n := q.left(); !q.restoring && f.roster.reserve(q, n) == nil {
			f.load.AddPrompt(n, q.end(), f.roster.limits.Threshold)
			f.addItem(q, n, false)
		}
	}
	f.load.apart = len(f.items) > 0
	return f.load.apart
}

// nextFirst returns the first sequence of a tenant to be added next, or nil. It is the first sequence that has waited
// longest or, if its prompt is too long for its own batch, the first sequence in the queue with a short prompt.
func (f *forming) nextFirst(others *cost.Work) *Sequence {
	o := f.roster
	short := func(q *Sequence) bool { return f.short(len(q.Tokens)) && o.isFirst(q) }
	for _, suits := range [...]func(*Sequence) bool{o.isFirst, short} {
		if q := o.firstOf(o.waiting, suits); q != nil && o.canAdmit(q) && f.comesApart(q, others) {
			return q
		}
	}
	return nil
}

// isFirst reports whether a waiting sequence is the first of its tenant or, if there is only one tenant, of its flow.
// If it is the first of a flow, it must not take pages that other sequences wait for.
func (o *roster) isFirst(q *Sequence) bool {
	if q.Background || q.Preempted > 0 || q.Logits > 1 || q.Record != (Span{}) || q.Replay != (Span{}) ||
		q.waitsForPrompt() || q.waitsForPlace() {
		return false
	}
	return q.tenant().running == 0 || len(o.all.members) == 1 && q.flow().running == 0
}

// othersWork estimates the work of the batch without first sequences: decodes, and running or waiting prompts.
func (f *forming) othersWork() (w cost.Work) {
	limits := &f.roster.limits
	prompts, budget := 0, limits.BatchTokens
	add := func(q *Sequence, left int) {
		if n := min(left, budget); n > 0 && prompts < limits.MaxPrompts {
			w.AddPrompt(n, q.end(), limits.Threshold)
			prompts, budget = prompts+1, budget-n
		}
	}
	for _, q := range f.roster.running {
		if q.decoding() {
			w.Decode.Add(1+len(q.Drafts), q.end())
		} else if !q.restoring {
			add(q, q.left())
		}
	}
	for _, q := range f.roster.waiting {
		if prompts == limits.MaxPrompts {
			break
		}
		if !q.waitsForPrompt() && !f.roster.isFirst(q) {
			add(q, len(q.Tokens))
		}
	}
	return w
}

// comesApart reports whether the first sequence of a tenant gets a batch without the work of other sequences.
func (f *forming) comesApart(q *Sequence, others *cost.Work) bool {
	if q.tenant().running > 0 && f.roster.nextToAdmit() < 0 {
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
	decodes := cost.Work{Decode: others.Decode}
	alone, decoding := f.cost.Predict(&w), f.cost.Decoding(&decodes)
	if alone > decoding && 4*alone > f.cost.Predict(others) {
		return false
	}
	return others.Decode.N == 0 || f.roster.limits.MaxStall <= 0 ||
		alone+decoding <= f.stallLimit(&decodes)/f.cost.Late()
}
