package sparrow

import (
	"fmt"

	"sparrow/sched"
)

// A stateful model keeps something of a sequence beside its pages. The engine makes that state when a sequence first has pages, hands it to every
// step, and releases it in the one place where pages go back: at the end of a sequence, however it ended, and on preemption, after which the
// sequence is computed again from a new state.

// maxStarts bounds how often one choice starts over after failed steps of others: a fault that never ends must end somewhere.
const maxStarts = 3

// equip gives every item the state it continues from, and returns the items that have one.
func (e *Engine) equip(items []sched.Item) []sched.Item {
	if e.stateful == nil {
		return items
	}
	ready := items[:0]
	for i := range items {
		c := items[i].Seq.Owner.(*choice)
		if err := e.stand(c, &items[i]); err != nil {
			e.fail(c, err)
			continue
		}
		ready = append(ready, items[i])
	}
	return ready
}

// stand makes the state of a choice stand for the tokens in its cache.
func (e *Engine) stand(c *choice, it *sched.Item) (err error) {
	switch {
	case c.rows == nil && it.Cached > 0:
		// Others computed its beginning; reuse is on for models alone that can go on from there.
		c.rows, err = e.windowed.Restore(it.Cached, it.Windows)
	case c.rows == nil:
		c.rows, err = e.stateful.NewState()
	case c.rows.Len() != it.Cached:
		err = c.rows.Truncate(it.Cached)
	}
	return err
}

// release gives back the state of a sequence that gave back its pages.
func release(q *sched.Sequence) {
	if c := q.Owner.(*choice); c.rows != nil {
		c.rows.Release()
		c.rows = nil
	}
}

// spoilt tells whether a failed step left an item's state unfit to go on. Such a sequence starts over, as if preempted: the fault may be
// another one's.
func (e *Engine) spoilt(it *sched.Item) bool {
	c := it.Seq.Owner.(*choice)
	if c.rows == nil {
		return false
	}
	err := c.rows.Truncate(it.Cached)
	switch {
	case err == nil:
		return false
	case c.starts == maxStarts:
		e.fail(c, fmt.Errorf("started over %d times after failed steps: %w", c.starts, err))
	default:
		c.starts++
		e.sched.Restart(it.Seq)
	}
	return true
}
