package sched

import "fmt"

// If the prefix of a sequence is stored outside the pool, it is restored: the sequence is admitted like other
// sequences, and the caller fills its pages one after the other, so that they need not be computed. The sequence is in
// no batch until the caller calls EndRestore; other sequences continue. The sequence can be preempted and removed.

// OnAdmit sets a function that is called with every admitted sequence, once its cached prefix is known (Match). The
// function reports whether the sequence is to be restored first.
func (s *Scheduler) OnAdmit(f func(*Sequence) bool) { s.roster.onAdmit = f }

// Restoring reports whether any sequence is being restored.
func (s *Scheduler) Restoring() bool {
	for _, q := range s.roster.running {
		if q.restoring {
			return true
		}
	}
	return false
}

// RestorePage reserves the next page of a sequence that is being restored, and its window page; window is negative if
// there are no window pages. An error means that no page is available now.
func (s *Scheduler) RestorePage(q *Sequence) (page, window int32, err error) {
	size := s.roster.pools[0].Tag().PageTokens
	if q.state != stateRunning || !q.restoring || q.cache.Len()%size != 0 || q.left()-size < max(q.Logits, 1) {
		return 0, 0, fmt.Errorf("%w: the next page of the sequence cannot be restored: %d of its %d tokens are in "+
			"the cache",
			ErrSequence, q.cache.Len(), len(q.Tokens))
	}
	if err := s.roster.reserve(q, size); err != nil {
		return 0, 0, err
	}
	at := q.cache.Len() / size
	page, window = q.cache.Pages()[at], -1
	if w := q.cache.Windows(); w != nil {
		window = w[at]
	}
	return page, window, nil
}

// Restored commits the page that RestorePage reserved: its rows are in the cache, or their copy is enqueued.
func (s *Scheduler) Restored(q *Sequence) error {
	size, at := s.roster.pools[0].Tag().PageTokens, q.cache.Len()
	return q.cache.Commit(q.Tokens[at : at+size])
}

// EndRestore ends the restore of a sequence, which then computes the rest of its prompt.
func (s *Scheduler) EndRestore(q *Sequence) { q.restoring = false }

// Cached returns how many tokens of a running sequence are in the pool.
func (q *Sequence) Cached() int { return q.cache.Len() }
