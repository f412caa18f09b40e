package sched

// before reports whether a waiting sequence is admitted before another. Among tenants the one that was served least
// comes first; inside a tenant requests come in order of arrival, but one that has its share of sequences comes after
// those that have not.
func (s *Scheduler) before(a, b *Sequence) bool {
	if ta, tb := a.request.parent, b.request.parent; ta != tb && ta.served != tb.served {
		return ta.served < tb.served
	}
	if full := s.hasShare(a.request); full != s.hasShare(b.request) {
		return !full
	}
	return a.age < b.age
}

// hasShare reports whether a party runs as many sequences as it may while others wait.
func (s *Scheduler) hasShare(p *party) bool { return p.running >= p.share(s.limits.MaxRunning) }

// makeRoom suspends running sequences of parties that have more than their share, where a party that has less waits
// and cannot be admitted. It runs before a batch is formed, at most once for each prompt of the batch.
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

// excess is the sequence to suspend for one that waits: the youngest of the request with the most sequences, of a
// tenant that has more than its share of places, or of pages where pages are short; or of the same tenant, where
// requests are uneven. nil where everybody else has at most their share, or where the one that waits has its own. A
// party always keeps its oldest sequence: it goes on, whoever comes.
func (s *Scheduler) excess(q *Sequence) *Sequence {
	full := len(s.running) >= s.limits.MaxRunning
	all, has := s.pool.Stats().Pages, (*Sequence).pages
	if full {
		all, has = s.limits.MaxRunning, func(*Sequence) int { return 1 }
	}
	need := 1
	if !full {
		need = s.pagesFor(q)
	}
	for _, level := range []func(*Sequence) *party{(*Sequence).tenant, (*Sequence).ofRequest} {
		own := level(q)
		if s.holds(own, level, has)+need > own.share(all) {
			continue // it would itself be above its share
		}
		var worst *party
		most := 0
		for _, r := range s.running {
			p := level(r)
			if p == own || p.parent != own.parent || p.running < 2 {
				continue
			}
			if n := s.holds(p, level, has) - p.share(all); n > most {
				worst, most = p, n
			}
		}
		if worst != nil {
			return s.youngestOf(worst, level)
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
