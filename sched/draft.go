package sched

// Room takes pages for n drafts after the tokens of a running sequence whose next token was sampled, and returns for how many there are pages. The
// drafting layer may write their rows at once. While others wait for pages, drafts take none that the next token does not need anyway.
func (s *Scheduler) Room(q *Sequence, n int) int {
	if q.state != stateRunning || !q.decoding() {
		return 0
	}
	own := q.cache.Needs(1)
	for n > 0 && (len(s.waiting) > 0 && q.cache.Needs(1+n) > own || q.cache.Reserve(1+n) != nil) {
		n--
	}
	return n
}

// Accept says that the next draft of an item proved right: its row is part of the sequence. The caller has appended it to Tokens.
func (s *Scheduler) Accept(it *Item) error {
	if it.Seq.state != stateRunning {
		return nil
	}
	it.accepted++
	n := it.Kept()
	return it.Seq.cache.Commit(it.Tokens[n-1 : n])
}

// Reject gives back the pages that only rejected drafts of an item took.
func (s *Scheduler) Reject(it *Item) error {
	if it.Seq.state != stateRunning {
		return nil
	}
	return it.Seq.cache.Truncate(it.Seq.cache.Len())
}

// drafts lets the decoding sequences try their drafts, oldest first, and returns how many tokens that adds. Where prompts want to be computed they
// get at least half of budget, what the decodes left of the step, and a token each.
func (s *Scheduler) drafts(budget int) int {
	if len(s.waiting) > 0 || len(s.items) < len(s.running) {
		budget = max(min(budget/2, budget-s.limits.MaxPrompts), 0)
	}
	if len(s.waiting) > 0 {
		s.withdraw()
	}
	used := 0
	for i := range s.items {
		it := &s.items[i]
		q := it.Seq
		if n := s.Room(q, min(len(q.Drafts), budget-used)); n > 0 {
			q.verify = append(append(q.verify[:0], it.Tokens...), q.Drafts[:n]...)
			it.Tokens, it.Drafts = q.verify, n
			used += n
		}
		q.Drafts, it.Pages, it.Windows = q.Drafts[:0], q.cache.Pages(), q.cache.Windows()
	}
	return used
}

// withdraw takes back the pages that sequences hold for drafts alone and reports whether that freed any.
func (s *Scheduler) withdraw() bool {
	before := s.pool.Available() + s.pool.WindowsAvailable()
	for _, q := range s.running {
		if q.decoding() {
			// Room for the one token it is sure to get stays. Truncate cannot fail: nothing that is committed goes.
			if err := q.cache.Truncate(q.cache.Len() + 1); err != nil {
				panic("sched: " + err.Error())
			}
		}
	}
	return s.pool.Available()+s.pool.WindowsAvailable() > before
}
