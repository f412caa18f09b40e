package sched

// before reports whether a waiting sequence is admitted before another. Among tenants the one that was served least
// comes first; inside a tenant requests take turns: the first sequences of all of them in order of arrival, then the
// second ones.
func (s *Scheduler) before(a, b *Sequence) bool {
	if ta, tb := a.request.parent, b.request.parent; ta != tb && ta.served != tb.served {
		return ta.served < tb.served
	}
	if a.turn != b.turn {
		return a.turn < b.turn
	}
	return a.age < b.age
}

// makeRoom suspends running sequences of parties that have more than others, where a party that has less waits and
// cannot be admitted. It runs before a batch is formed, at most once for each prompt of the batch.
func (s *Scheduler) makeRoom() {
	for range s.limits.MaxPrompts {
		next := s.firstWaiting()
		if next < 0 || s.canAdmit(s.waiting[next]) {
			return
		}
		victim := s.excess(s.waiting[next])
		if victim == nil {
			return
		}
		s.suspend(victim)
	}
}

// excess is the sequence to suspend for one that waits: the youngest of the request with the most sequences, of the
// tenant that has the most places, or pages where pages are short; or of the same tenant, where requests are uneven.
// nil where that would leave its owner with less than the one that waits then has. A party always keeps its oldest
// sequence: it goes on, whoever comes.
func (s *Scheduler) excess(q *Sequence) *Sequence {
	need, has := 1, func(*Sequence) int { return 1 }
	if len(s.running) < s.limits.MaxRunning {
		need, has = s.pagesFor(q), (*Sequence).pages
	}
	for _, level := range []func(*Sequence) *party{(*Sequence).tenant, (*Sequence).ofRequest} {
		own := level(q)
		var worst *party
		most := 0
		for _, r := range s.running {
			p := level(r)
			if p == own || p.parent != own.parent || p.running < 2 {
				continue
			}
			if n := s.holds(p, level, has); n > most {
				worst, most = p, n
			}
		}
		if worst == nil {
			continue
		}
		if victim := s.youngestOf(worst, level); most-has(victim) >= s.holds(own, level, has)+need {
			return victim
		}
	}
	return nil
}

// holds sums what the running sequences of a party have.
func (s *Scheduler) holds(p *party, level func(*Sequence) *party, has func(*Sequence) int) (n int) {
	for _, r := range s.running {
		if level(r) == p {
			n += has(r)
		}
	}
	return n
}

// youngestOf is the youngest running sequence of the request that has the most of them in a party.
func (s *Scheduler) youngestOf(p *party, level func(*Sequence) *party) (youngest *Sequence) {
	for _, r := range s.running { // in order of arrival
		if level(r) == p && (youngest == nil || r.request.running >= youngest.request.running) {
			youngest = r
		}
	}
	return youngest
}

func (q *Sequence) tenant() *party    { return q.request.parent }
func (q *Sequence) ofRequest() *party { return q.request }
func (q *Sequence) pages() int        { return len(q.cache.Pages()) }
