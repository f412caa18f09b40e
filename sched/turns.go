package sched

import "slices"

// A batch computes at most Limits.MaxPrompts prompts, and more may be under way: they take turns, so that prompts under
// way are not places that one tenant can hold. Each place of a batch goes to the tenant that has the fewest in it, of
// those to the one that was served least, and inside a tenant likewise to flows. The last place goes to a short prompt
// where there is one: it ends within a batch or two, whatever else is computed.
//
// Of long prompts no more than MaxPrompts begin, since one after the other they end earlier than side by side. Beyond
// that one begins for a party that has none, where another of the same parent has two or more.

// choosePrompts makes the list of the batch's prompts, of those under way and those that can be admitted, and returns
// what is left of the batch's tokens.
func (s *Scheduler) choosePrompts(budget int) int {
	s.begun = s.begun[:0]
	for _, q := range s.running {
		if !q.decoding() && !q.restoring && q.left() > 0 {
			s.begun = append(s.begun, q)
			q.request.countPrompts(1, 0)
		}
	}
	for places := s.limits.MaxPrompts; len(s.prompts) < min(places, budget); {
		begun, waiting := s.nextPrompt(places > 1 && len(s.prompts) == min(places, budget)-1)
		switch {
		case begun != nil:
			s.begun = without(s.begun, begun)
			begun.request.countPrompts(0, 1)
			s.prompts = append(s.prompts, begun)
			continue
		case waiting < 0:
			places = 0
			continue
		}
		switch q := s.admit(waiting); {
		case q.decoding(): // it kept its pages; without another one, or room, it waits for the next batch
			if s.room.most(q, q.end(), 1) > 0 && s.reserve(q, 1) == nil {
				s.addItem(q, 1, true)
				budget--
			}
		case !q.restoring:
			q.request.countPrompts(1, 1)
			s.prompts = append(s.prompts, q)
		}
	}
	for _, list := range [...][]*Sequence{s.begun, s.prompts} {
		for _, q := range list {
			q.request.forgetPrompts()
		}
	}
	return budget
}

// nextPrompt is the prompt that gets the next place of a batch: one under way, else one that waits, by its place in the
// queue, which is -1 where there is none.
func (s *Scheduler) nextPrompt(last bool) (begun *Sequence, waiting int) {
	if last {
		if begun, waiting = s.nextShort(); begun != nil || waiting >= 0 {
			return begun, waiting
		}
	}
	begun = s.firstOf(s.begun, nil)
	waiting = s.nextToAdmit()
	if waiting >= 0 && (begun == nil || s.before(s.waiting[waiting], begun)) && s.mayBegin(s.waiting[waiting]) {
		return nil, waiting
	}
	return begun, -1
}

// nextShort is nextPrompt among short prompts. One that waits overtakes longer ones of the queue where these do not
// wait for pages that it would take, or where its tenant has nothing else running.
func (s *Scheduler) nextShort() (begun *Sequence, waiting int) {
	if begun = s.firstOf(s.begun, func(q *Sequence) bool { return s.short(q.left()) }); begun != nil {
		return begun, -1
	}
	q := s.firstOf(s.waiting, func(q *Sequence) bool {
		return s.short(len(q.Tokens)) && !q.waitsForPrompt() && !q.waitsForPlace()
	})
	if q == nil || !s.canAdmit(q) || q.tenant().running > 0 && s.nextToAdmit() < 0 {
		return nil, -1
	}
	return nil, slices.Index(s.waiting, q)
}

// short reports whether a prompt of so many tokens is computed in one batch beside as many others as there may be.
func (s *Scheduler) short(tokens int) bool { return tokens <= s.limits.BatchTokens/s.limits.MaxPrompts }

// firstOf is the sequence of a list that comes before the others, of those that suit where suits is not nil.
func (s *Scheduler) firstOf(list []*Sequence, suits func(*Sequence) bool) (first *Sequence) {
	for _, q := range list {
		if (suits == nil || suits(q)) && (first == nil || s.before(q, first)) {
			first = q
		}
	}
	return first
}

// mayBegin reports whether a waiting sequence that can be admitted may be computed beside the prompts under way. One
// that kept its pages is not a prompt.
func (s *Scheduler) mayBegin(q *Sequence) bool {
	if s.all.begun < s.limits.MaxPrompts || slices.Contains(s.kept, q) {
		return true
	}
	for _, level := range [...]func(*Sequence) *party{(*Sequence).tenant, (*Sequence).flow, (*Sequence).ofRequest} {
		own := level(q)
		crowded := func(r *Sequence) bool { p := level(r); return p.parent == own.parent && p.begun > 1 }
		if own.begun == 0 && (slices.ContainsFunc(s.begun, crowded) || slices.ContainsFunc(s.prompts, crowded)) {
			return true
		}
	}
	return false
}
