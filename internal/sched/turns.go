package sched

import "slices"

// A batch computes at most Limits.MaxPrompts prompts, and more may be in progress: they take turns, so that one tenant
// cannot occupy all places. Each place of a batch goes to the tenant with the fewest prompts in it, then to the tenant
// that was served least; inside a tenant flows follow the same rule. The last place goes to a short prompt if there is
// one: a short prompt then ends within one or two batches, whatever other prompts are computed.
//
// At most MaxPrompts long prompts are in progress at the same time, because long prompts that run one after the other
// end earlier on average than prompts that all run at once. One more long prompt may begin for an account that has
// none, if a sibling account has two or more.

// choosePrompts makes the list of the batch's prompts, from the prompts in progress and the prompts that can be
// admitted, and returns the remaining tokens of the batch. There are at most as many prompts as can each get
// Limits.Grain of these tokens.
func (f *forming) choosePrompts(budget int) int {
	f.begun = f.begun[:0]
	for _, q := range f.roster.running {
		if !q.decoding() && !q.restoring && q.left() > 0 && f.takes(q) {
			f.begun = append(f.begun, q)
			q.request.countPrompts(1, 0)
		}
	}
	for {
		places := min(f.roster.limits.MaxPrompts, budget/f.roster.limits.Grain)
		if len(f.prompts) >= places {
			break
		}
		begun, waiting := f.nextPrompt(places > 1 && len(f.prompts) == places-1)
		if begun == nil && waiting < 0 {
			break
		}
		if begun != nil {
			f.begun = without(f.begun, begun)
			begun.request.countPrompts(0, 1)
			f.prompts = append(f.prompts, begun)
			continue
		}
		switch q := f.roster.admit(waiting); {
		// The sequence kept its pages; if it lacks a page or room for rows, it waits for the next batch.
		case q.decoding():
			if f.room.most(q, q.end(), 1) > 0 && f.roster.reserve(q, 1) == nil {
				f.addItem(q, 1, true)
				budget--
			}
		case !q.restoring:
			q.request.countPrompts(1, 1)
			f.prompts = append(f.prompts, q)
		}
	}
	for _, list := range [...][]*Sequence{f.begun, f.prompts} {
		for _, q := range list {
			q.request.forgetPrompts()
		}
	}
	return budget
}

// nextPrompt returns the prompt that gets the next place of a batch: a prompt in progress, or else the queue position
// of a waiting prompt, or -1.
func (f *forming) nextPrompt(last bool) (begun *Sequence, waiting int) {
	if last {
		if begun, waiting = f.nextShort(); begun != nil || waiting >= 0 {
			return begun, waiting
		}
	}
	begun = f.roster.firstOf(f.begun, nil)
	waiting = f.roster.nextToAdmit()
	if waiting >= 0 {
		if q := f.roster.waiting[waiting]; f.takes(q) && (begun == nil || f.roster.before(q, begun)) && f.mayBegin(q) {
			return nil, waiting
		}
	}
	return begun, -1
}

// nextShort returns the short prompt that gets the next place of a batch, like nextPrompt. A waiting short prompt
// overtakes longer prompts in the queue if these do not wait for pages that it would take, or if its tenant has no
// running sequences. A suspended sequence overtakes none, because in every batch it would take its pages back from the
// sequence for which it was suspended.
func (f *forming) nextShort() (begun *Sequence, waiting int) {
	if begun = f.roster.firstOf(f.begun, func(q *Sequence) bool { return f.short(q.left()) }); begun != nil {
		return begun, -1
	}
	q := f.roster.firstOf(f.roster.waiting, func(q *Sequence) bool {
		return f.short(len(q.Tokens)) && q.Preempted == 0 && f.takes(q) && !q.waitsForPrompt() && !q.waitsForPlace()
	})
	if q == nil || !f.roster.canAdmit(q) || q.tenant().running > 0 && f.roster.nextToAdmit() < 0 {
		return nil, -1
	}
	return nil, slices.Index(f.roster.waiting, q)
}

// short reports whether a prompt of the given number of tokens fits in one batch together with the maximum number of
// other prompts.
func (f *forming) short(tokens int) bool {
	return tokens <= f.roster.limits.BatchTokens/f.roster.limits.MaxPrompts
}

// firstOf returns the sequence of a list that comes before all other sequences of the list. If suits is not nil, only
// sequences for which it returns true count.
func (o *roster) firstOf(list []*Sequence, suits func(*Sequence) bool) (first *Sequence) {
	for _, q := range list {
		if (suits == nil || suits(q)) && (first == nil || o.before(q, first)) {
			first = q
		}
	}
	return first
}

// mayBegin reports whether a waiting sequence that can be admitted may be computed together with the prompts in
// progress. A sequence that kept its pages is not a prompt.
func (f *forming) mayBegin(q *Sequence) bool {
	if f.roster.all.begun < f.roster.limits.MaxPrompts || slices.Contains(f.roster.kept, q) {
		return true
	}
	for _, level := range [...]func(*Sequence) *account{(*Sequence).tenant, (*Sequence).flow, (*Sequence).ofRequest} {
		own := level(q)
		crowded := func(r *Sequence) bool { p := level(r); return p.parent == own.parent && p.begun > 1 }
		if own.begun == 0 && (slices.ContainsFunc(f.begun, crowded) || slices.ContainsFunc(f.prompts, crowded)) {
			return true
		}
	}
	return false
}
