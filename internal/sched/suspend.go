package sched

import (
	"slices"

	"sparrow/internal/kv"
)

// A sequence that is suspended for another sequence keeps its pages as long as no other sequence needs them, so that no
// token is computed again when it continues. Running sequences and sequences that can be admitted have priority: if
// they find no free pages, kept pages are released, the most recently kept first.

// suspend puts a running sequence at its place in the queue. The sequence keeps its pages if Limits.KeepSuspended and
// its state allow that.
func (o *roster) suspend(q *Sequence) {
	o.running = without(o.running, q)
	q.request.count(-1, 1)
	q.state, q.Drafts = stateWaiting, q.Drafts[:0]
	q.Preempted++
	q.reached = max(q.reached, q.end())
	o.preemptions++
	o.waiting = insert(o.waiting, q)
	o.kept = append(o.kept, q)
	// Tokens in flight, and pages that are being fetched, can be committed only to running sequences. With several
	// ranks a sequence continues on any rank with free pages.
	if !o.limits.KeepSuspended || q.flight.items > 0 || q.restoring || len(o.kept) > o.limits.MaxRunning ||
		len(o.pools) > 1 {
		o.giveUp(q)
	}
}

// yields reports whether a running sequence may be suspended for another one. A sequence that was suspended first
// computes more tokens than it had computed then: otherwise two sequences that need the same pages could be suspended
// for each other in every batch, and neither would end.
func (q *Sequence) yields() bool { return q.Preempted == 0 || q.end() > q.reached }

// giveUp releases the pages of a suspended sequence, if it has kept them.
func (o *roster) giveUp(q *Sequence) {
	i := slices.Index(o.kept, q)
	if i < 0 {
		return
	}
	o.kept = slices.Delete(o.kept, i, i+1)
	o.free(q)
	q.ready, q.restoring = false, false
	q.flight.tokens, q.flight.unknown = 0, 0
}

// giveUpForAnother releases the most recently kept pages, except those of q, and reports whether there were any.
func (o *roster) giveUpForAnother(q *Sequence) bool {
	for i := len(o.kept) - 1; i >= 0; i-- {
		if k := o.kept[i]; k != q {
			o.giveUp(k)
			return true
		}
	}
	return false
}

// Kept returns the number of sequences in the queue that have kept their pages.
func (s *Scheduler) Kept() int { return len(s.roster.kept) }

// reserve reserves pages for the next n tokens of a running sequence.
func (o *roster) reserve(q *Sequence, n int) error {
	for {
		if err := q.reserve(n); err == nil || !o.giveUpForAnother(q) {
			return err
		}
	}
}

// findPages reports whether a sequence fits on some rank, like hasPagesFor, and releases kept pages if that helps.
func (o *roster) findPages(q, gone *Sequence) bool {
	for !o.hasPagesFor(q, gone) {
		if !o.giveUpForAnother(q) {
			return false
		}
	}
	return true
}

// fit returns how many more pages of a pool a waiting sequence needs, and how many are available. The sequence needs
// pages for all its tokens and one more token, without the pages that it holds or could share.
func (o *roster) fit(pool *kv.Pool, q *Sequence) (need, available int, err error) {
	if slices.Contains(o.kept, q) {
		return q.needs(q.left() + 1), pool.Available(), nil
	}
	return pool.Fit(q.Tokens, 1, q.Options())
}
