package sched

import (
	"slices"

	"sparrow/kv"
)

// A sequence that is suspended for another keeps its pages for as long as nobody needs them, so that nothing of it is
// computed again when it goes on. Sequences that run, and those that can be admitted, come first: for want of pages
// the kept ones are given up, the latest first.

// suspend puts a running sequence at its place in the queue. It keeps its pages where they may be kept.
func (s *Scheduler) suspend(q *Sequence) {
	s.running = without(s.running, q)
	q.request.count(-1, 1)
	q.state, q.Drafts = stateWaiting, q.Drafts[:0]
	q.Preempted++
	s.preemptions++
	s.waiting = insert(s.waiting, q)
	s.kept = append(s.kept, q)
	// What is in flight, or comes from elsewhere, is committed to sequences that run. With several ranks a sequence
	// goes on where there is room.
	if !s.limits.KeepSuspended || q.flight.items > 0 || q.restoring || len(s.kept) > s.limits.MaxRunning ||
		len(s.pools) > 1 {
		s.giveUp(q)
	}
}

// giveUp gives the pages of a suspended sequence back, if it has kept them.
func (s *Scheduler) giveUp(q *Sequence) {
	i := slices.Index(s.kept, q)
	if i < 0 {
		return
	}
	s.kept = slices.Delete(s.kept, i, i+1)
	s.free(q)
	q.ready, q.restoring = false, false
	q.flight.tokens, q.flight.unknown = 0, 0
}

// giveUpForAnother gives up the pages that were kept latest, but for those of one sequence, and reports whether there
// were any.
func (s *Scheduler) giveUpForAnother(q *Sequence) bool {
	for i := len(s.kept) - 1; i >= 0; i-- {
		if k := s.kept[i]; k != q {
			s.giveUp(k)
			return true
		}
	}
	return false
}

// Kept counts the sequences in the queue that have kept their pages.
func (s *Scheduler) Kept() int { return len(s.kept) }

// reserve makes room for the next n tokens of a running sequence.
func (s *Scheduler) reserve(q *Sequence, n int) error {
	for {
		if err := q.reserve(n); err == nil || !s.giveUpForAnother(q) {
			return err
		}
	}
}

// findPages is hasPagesFor, and gives up kept pages where that helps.
func (s *Scheduler) findPages(q, gone *Sequence) bool {
	for !s.hasPagesFor(q, gone) {
		if !s.giveUpForAnother(q) {
			return false
		}
	}
	return true
}

// fit is how many pages of a pool a waiting sequence needs for all its tokens and one more beside those it has or could
// share, and how many there are to take.
func (s *Scheduler) fit(pool *kv.Pool, q *Sequence) (need, available int, err error) {
	if slices.Contains(s.kept, q) {
		return q.needs(q.left() + 1), pool.Available(), nil
	}
	return pool.Fit(q.Tokens, 1, q.Options())
}
