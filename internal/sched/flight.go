package sched

// A caller may form the next batch while the device still computes the previous one: it calls Started when an item's
// pass was enqueued, and Schedule continues after the item. Nothing is committed before Done: a pass that fails is
// dropped, and Drop restores the state of its sequences. A sequence that is preempted or removed in the meantime
// releases its pages at once, since the device writes them in the order of its passes; it is not admitted again before
// its items have ended.

// flight describes the items of a sequence that are in passes in flight.
type flight struct {
	items   int // number of items that were started and are neither done nor dropped, also while the sequence waits
	tokens  int // number of tokens of these items, after the tokens in the cache
	unknown int // number of tokens after Sequence.Tokens that these items sample
}

// started holds the changes of Started to an item's sequence, which Done and Drop reverse.
type started struct {
	yes     bool
	samples bool // the item samples a token that the next item of its sequence may contain
	ready   bool // value of Sequence.ready before Started
}

// length returns the number of tokens of a running sequence, including those that items in flight sample.
func (q *Sequence) length() int { return len(q.Tokens) + q.flight.unknown }

// end returns the number of tokens of a running sequence that are in the cache or in flight.
func (q *Sequence) end() int { return q.cache.Len() + q.flight.tokens }

// reserve reserves pages for n tokens after those in the cache and in flight.
func (q *Sequence) reserve(n int) error { return q.cache.Reserve(q.flight.tokens + n) }

// needs returns how many new pages reserve would take.
func (q *Sequence) needs(n int) int { return q.cache.Needs(q.flight.tokens + n) }

// Started records that the pass of an item without drafts was enqueued: the next batch may contain the tokens after it.
// samples reports that the token after the item's last token is sampled on the device; the row of that token may be
// computed before the host knows its value.
func (s *Scheduler) Started(it *Item, samples bool) {
	q := it.Seq
	it.started = started{yes: true, samples: samples && it.Last, ready: q.ready}
	q.flight.items++
	q.flight.tokens += len(it.Tokens)
	if it.started.samples {
		q.flight.unknown++
	}
	q.ready = q.ready || it.Last
}

// Resolve sets the unknown token of an item to the value that the caller has since appended to its sequence.
func (it *Item) Resolve() {
	if it.Unknown {
		it.Tokens, it.Unknown = it.Seq.Tokens[it.Cached:it.Cached+1], false
	}
}

// Stale reports whether the item's sequence no longer has the pages that the item was made for.
func (it *Item) Stale() bool { return it.Seq.state != stateRunning || it.Seq.cache.Len() != it.Cached }

// Drop reverses Started after the item's pass failed.
func (s *Scheduler) Drop(it *Item) {
	ready := it.started.ready
	if s.arrived(it) && it.Seq.state == stateRunning {
		it.Seq.ready = ready
	}
}

// arrived records that the results of an item are available, and reports whether the item was started.
func (s *Scheduler) arrived(it *Item) bool {
	q, was := it.Seq, it.started
	it.started = started{}
	if !was.yes {
		return false
	}
	q.flight.items--
	if q.state != stateRunning {
		return true // the flight was reset when the pages were released
	}
	q.flight.tokens -= len(it.Tokens)
	if was.samples {
		q.flight.unknown--
	}
	return true
}

// flying reports whether a running sequence has an item in flight.
func (o *roster) flying() bool {
	for _, q := range o.running {
		if q.flight.items > 0 {
			return true
		}
	}
	return false
}
