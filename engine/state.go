package engine

import (
	"fmt"

	"sparrow/internal/sched"
)

// A stateful model has a state for each sequence in addition to its pages. The engine creates the state when a sequence
// first has pages and passes it to every pass. It releases the state together with the pages: when a sequence ends or
// is preempted. A preempted sequence is computed again with a new state.

// maxRestarts limits how often a choice is computed again after batches failed because of other requests: a request
// with a permanent fault must end.
const maxRestarts = 3

// attachStates sets the state that every item continues from, and returns the items for which this succeeded.
func (l *loop) attachStates(items []sched.Item) []sched.Item {
	if l.stateful == nil {
		return items
	}
	ready := items[:0]
	for i := range items {
		if err := ownerOf(&items[i]).attachState(items[i].Cached, items[i].Windows); err != nil {
			l.fail(ownerOf(&items[i]), err)
			continue
		}
		ready = append(ready, items[i])
	}
	return ready
}

// attachState makes the state of a choice match its cached tokens. windows are the numbers of the sequence's window
// pages.
func (c *choice) attachState(cached int, windows []int32) (err error) {
	switch s := c.job.setup; {
	case c.state == nil && cached > 0:
		// The cached prefix was computed by another request. Reuse is enabled only for models that can restore a state
		// from the cache.
		c.state, err = s.windowed.Restore(cached, windows)
	case c.state == nil:
		c.state, err = s.stateful.NewState()
	case c.state.Len() != cached:
		err = c.state.Truncate(cached)
	}
	return err
}

// released releases the state of a sequence that released its pages, and cancels transfers of its pages from tiers.
func (l *loop) released(q *sched.Sequence) {
	c := q.Owner.(*choice)
	if c.state != nil {
		c.state.Release()
		c.state = nil
	}
	l.tiers.release(c)
}

// restartIfStateLost queues the sequence of an item again, as after a preemption, if a failed pass left its state
// invalid: another sequence of the batch may have caused the fault. If the sequence has restarted too often, the choice
// fails. It reports whether the sequence was queued again or failed.
func (l *loop) restartIfStateLost(it *sched.Item) bool {
	c := ownerOf(it)
	if c.state == nil {
		return false
	}
	err := c.state.Truncate(it.Cached)
	switch {
	case err == nil:
		return false
	case c.restarts == maxRestarts:
		l.fail(c, fmt.Errorf("the sequence was computed again %d times after failed batches: %w", c.restarts, err))
	default:
		c.restarts++
		l.sched.Restart(it.Seq)
	}
	return true
}
