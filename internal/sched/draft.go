package sched

// ReserveDrafts reserves pages for n drafts after the tokens of a running sequence whose next token was sampled, and
// returns the number of drafts that have pages. After the call, the drafting layer may write the rows of these drafts.
// While other sequences wait for pages, drafts get only the page that the next token needs anyway.
func (s *Scheduler) ReserveDrafts(q *Sequence, n int) int { return s.roster.reserveDrafts(q, n) }

// reserveDrafts reserves pages for n drafts, see Scheduler.ReserveDrafts.
func (o *roster) reserveDrafts(q *Sequence, n int) int {
	if q.state != stateRunning || !q.decoding() {
		return 0
	}
	own := q.needs(1)
	for n > 0 && (len(o.waiting) > 0 && q.needs(1+n) > own || q.reserve(1+n) != nil) {
		n--
	}
	return n
}

// Accept commits the next draft of an item: its row becomes part of the sequence. The caller has appended the token to
// Tokens.
func (s *Scheduler) Accept(it *Item) error {
	if it.Seq.state != stateRunning {
		return nil
	}
	it.accepted++
	n := it.Kept()
	return it.Seq.cache.Commit(it.Tokens[n-1 : n])
}

// Reject releases the pages that only rejected drafts of an item used.
func (s *Scheduler) Reject(it *Item) error {
	if it.Seq.state != stateRunning {
		return nil
	}
	return it.Seq.cache.Truncate(it.Seq.cache.Len())
}

// draftBudget returns how many of the batch's remaining tokens may be drafts. At least half of the tokens are left for
// running and waiting prompts, and at least Limits.Grain tokens for each prompt.
func (f *forming) draftBudget(left int) int {
	if len(f.roster.waiting) == 0 && len(f.items) == len(f.roster.running) {
		return left
	}
	return max(min(left/2, left-f.roster.limits.MaxPrompts*f.roster.limits.Grain), 0)
}

// addDrafts adds at most budget drafts to the items of decoding sequences, oldest sequence first, and returns the
// number of added drafts. It also removes the proposed drafts of all sequences.
func (f *forming) addDrafts(budget int) int {
	if len(f.roster.waiting) > 0 {
		for rank := range f.roster.pools {
			f.roster.releaseDraftPages(rank)
		}
	}
	used := 0
	for i := range f.items {
		it := &f.items[i]
		q := it.Seq
		most := f.room.most(q, it.Cached+1, min(len(q.Drafts), budget-used))
		if n := f.roster.reserveDrafts(q, most); n > 0 {
			f.room.take(q, it.Cached+1, n)
			it.Record = q.Record.in(it.Cached, 1+n)
			q.verify = append(append(q.verify[:0], it.Tokens...), q.Drafts[:n]...)
			it.Tokens, it.Drafts, it.Logits = q.verify, n, it.Logits+n
			used += n
		}
		q.Drafts, it.Pages, it.Windows = q.Drafts[:0], q.cache.Pages(), q.cache.Windows()
	}
	return used
}

// releaseDraftPages releases the pages of a rank that sequences hold only for drafts, and reports whether there were
// any.
func (o *roster) releaseDraftPages(rank int) bool {
	pool := o.pools[rank]
	before := pool.Available() + pool.WindowsAvailable()
	for _, q := range o.running {
		if q.rank == rank && q.decoding() {
			// The page of the next token stays. Truncate cannot fail: no committed token is removed.
			if err := q.cache.Truncate(q.end() + 1); err != nil {
				panic("sched: " + err.Error())
			}
		}
	}
	return pool.Available()+pool.WindowsAvailable() > before
}
