package sched

import "slices"

// before reports whether a sequence is admitted, or its prompt computed, before another. Background sequences come
// last. The tenant with the fewest prompts in the current batch comes first, then the tenant that was served least.
// Inside a tenant the highest priority comes first, then flows are ordered like tenants. Inside a flow requests take
// turns: first the first sequence of every request in order of arrival, then the second sequence of every request.
func (o *roster) before(a, b *Sequence) bool {
	if a.Background != b.Background {
		return b.Background
	}
	ta, tb := a.tenant(), b.tenant()
	if ta == tb {
		if a.Priority != b.Priority {
			return a.Priority > b.Priority
		}
		ta, tb = a.flow(), b.flow()
	}
	if ta.chosen != tb.chosen {
		return ta.chosen < tb.chosen
	}
	if ta.served != tb.served {
		return ta.served < tb.served
	}
	if a.turn != b.turn {
		return a.turn < b.turn
	}
	return a.age < b.age
}

// makeRoom suspends running sequences of accounts that have more than their share, while a sequence of an account with
// less than its share waits and cannot be admitted. It runs before a batch is formed, at most once for each prompt of
// the batch.
func (o *roster) makeRoom() {
	blocked := false
	for range o.limits.MaxPrompts {
		next := o.firstWaiting()
		if next < 0 || o.canAdmit(o.waiting[next]) {
			break
		}
		victim := o.excess(o.waiting[next])
		if victim == nil {
			blocked = true
			break
		}
		o.suspend(victim)
	}
	o.promised = slices.DeleteFunc(o.promised, func(q *Sequence) bool {
		return q.state != stateWaiting || q.waitsForPlace() || !o.canAdmit(q)
	})
	for len(o.promised) < o.limits.MaxPrompts && o.swap(blocked) {
	}
}

// swap suspends a running sequence for a waiting sequence of the same tenant that comes before it, and reserves the
// place for the waiting sequence. It reports whether it suspended a sequence. The places of other tenants do not
// change: even if the sequence of another tenant comes first, a tenant may divide its own share. If admission is not
// blocked, swap applies only to tenants that run as many sequences as they may.
func (o *roster) swap(blocked bool) bool {
	o.heads = o.heads[:0]
	for _, q := range o.waiting {
		if !blocked && !q.waitsForPlace() || q.waitsForPrompt() || slices.Contains(o.promised, q) {
			continue
		}
		// More sequences of the tenant run than q.Places allows, because other sequences have a higher limit or none.
		// One suspension would not let q run, and the suspended sequence would be admitted again at once, batch after
		// batch.
		if q.Places > 0 && q.tenant().running > q.Places {
			continue
		}
		i := slices.IndexFunc(o.heads, func(h *Sequence) bool { return h.tenant() == q.tenant() })
		switch {
		case i < 0:
			o.heads = append(o.heads, q)
		case o.before(q, o.heads[i]):
			o.heads[i] = q
		}
	}
	for _, q := range o.heads {
		if t := q.tenant(); t.running == 0 || len(t.members) == 1 && len(q.flow().members) == 1 ||
			!q.waitsForPlace() && o.canAdmit(q) {
			continue // no sequence can be suspended, or no suspension is needed
		}
		// A sequence is suspended only if q then has enough pages: otherwise another sequence would get the place, and
		// the suspended sequence's computed pages would be lost.
		if victim := o.excessInside(q); victim != nil && o.findPages(q, victim) {
			o.suspend(victim)
			o.promised = append(o.promised, q)
			return true
		}
	}
	return false
}

// excess returns the sequence to suspend for the waiting sequence q: the youngest background sequence; else the
// youngest sequence of the largest request of the tenant that holds the most places, or pages if pages are short; or a
// sequence of q's own tenant. It returns nil if the owner of that sequence would then have less than the owner of q. An
// account always keeps its oldest sequence, except for a higher priority of the same tenant.
func (o *roster) excess(q *Sequence) *Sequence {
	if !q.Background {
		for _, r := range slices.Backward(o.running) { // youngest first, because running is in order of arrival
			if r.Background && r.yields() {
				return r
			}
		}
	}
	if victim := o.excessOf(q, (*Sequence).tenant); victim != nil {
		return victim
	}
	return o.excessInside(q)
}

// excessInside returns the sequence of q's own tenant to suspend for q: a sequence of lower priority, or of a flow or
// request that has more than its share; nil if there is none.
func (o *roster) excessInside(q *Sequence) *Sequence {
	if lower := o.lowest(q); lower != nil {
		return lower
	}
	return o.excessOf(q, (*Sequence).flow, (*Sequence).ofRequest)
}

// excessOf returns the sequence to suspend for q among the accounts at the given levels, see excess.
func (o *roster) excessOf(q *Sequence, levels ...func(*Sequence) *account) *Sequence {
	need, has := 1, func(*Sequence) int { return 1 }
	rank := -1 // rank whose sequences may be suspended; -1 means any rank
	if len(o.running) < o.limits.MaxRunning && !q.waitsForPlace() {
		need, has = o.pagesFor(q), (*Sequence).pages
		if len(o.pools) > 1 {
			rank = o.nearest(q) // pages of other ranks do not help q
		}
	}
	for _, level := range levels {
		own := level(q)
		var worst *account
		most := 0
		for _, r := range o.running {
			p := level(r)
			if p == own || p.parent != own.parent || p.running < 2 || rank >= 0 && r.rank != rank {
				continue
			}
			if n := o.holds(p, level, has); n > most {
				worst, most = p, n
			}
		}
		if worst == nil {
			continue
		}
		victim := o.youngestOf(worst, level, rank)
		// A victim that comes before q in the queue would be admitted again in q's place.
		if victim != nil && !o.before(victim, q) && most-has(victim) >= o.holds(own, level, has)+need {
			return victim
		}
	}
	return nil
}

// lowest returns the youngest running sequence of the lowest priority of q's tenant, if that priority is lower than
// q's; otherwise nil.
func (o *roster) lowest(q *Sequence) (lower *Sequence) {
	for _, r := range o.running { // running is in order of arrival
		if r.tenant() == q.tenant() && r.yields() && r.Priority < q.Priority &&
			(lower == nil || r.Priority <= lower.Priority) {
			lower = r
		}
	}
	return lower
}

// holds returns the sum of has over the running sequences of an account: the places or the pages that they hold.
func (o *roster) holds(p *account, level func(*Sequence) *account, has func(*Sequence) int) (n int) {
	for _, r := range o.running {
		if level(r) == p {
			n += has(r)
		}
	}
	return n
}

// youngestOf returns the youngest running sequence of the largest request of an account, on a rank, or on any rank if
// that is -1. It returns nil if that is the account's oldest sequence.
func (o *roster) youngestOf(p *account, level func(*Sequence) *account, rank int) (youngest *Sequence) {
	oldest := true
	for _, r := range o.running { // running is in order of arrival
		if level(r) != p {
			continue
		}
		if !oldest && r.yields() && (rank < 0 || r.rank == rank) &&
			(youngest == nil || r.request.running >= youngest.request.running) {
			youngest = r
		}
		oldest = false
	}
	return youngest
}

func (q *Sequence) tenant() *account    { return q.request.parent.parent }
func (q *Sequence) flow() *account      { return q.request.parent }
func (q *Sequence) ofRequest() *account { return q.request }
func (q *Sequence) pages() int          { return len(q.cache.Pages()) }
