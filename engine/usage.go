package engine

import (
	"fmt"
	"time"

	"sparrow/internal/model"
	"sparrow/internal/model/placement"
	"sparrow/internal/model/usage"
)

// Minimum intervals between two readings of expert counts. usageEvery applies while batches run, the other before the
// loop waits or if experts move. The intervals limit readings because each reading waits for the device.
const (
	usageEvery = 5 * time.Second
	usageIdle  = time.Second
)

// experts counts how often rows choose each expert, and moves experts. Only the loop uses it.
type experts struct {
	*setup
	tally   *tally
	counted time.Time            // time when the counts were last read
	recent  *usage.Table         // counts of recent expert choices, used to select the experts that move
	moves   *placement.Placement // Config.Moves, until a move fails
}

// count enables counting of chosen experts in the passes, if Config.Usage is set.
func (x *experts) count() error {
	if _, ok := x.model.(model.ExpertMover); x.moves != nil && (!ok || x.cfg.Usage == nil) {
		return fmt.Errorf("sparrow: experts of family %s cannot move on %s; omit --experts move",
			x.model.Config().Family, x.model.Device().Name())
	}
	if x.cfg.Usage == nil {
		return nil
	}
	c, ok := x.model.(model.ExpertCounter)
	if !ok {
		return fmt.Errorf("sparrow: the experts of family %s cannot be counted; omit --expert-usage",
			x.model.Config().Family)
	}
	if err := c.CountExperts(); err != nil {
		return fmt.Errorf("sparrow: --expert-usage: %w", err)
	}
	return nil
}

// read adds the device's counts to the table if at least the given time has passed since the last call, and moves
// experts by these counts. An error means that the device is lost.
func (x *experts) read(since time.Duration) error {
	if x.cfg.Usage == nil || x.counted.IsZero() && x.tally.stats.Steps == 0 || x.tally.lost != nil {
		return nil
	}
	if x.moves != nil {
		since = min(since, usageIdle)
	}
	now := x.now()
	if now.Sub(x.counted) < since {
		return nil
	}
	x.counted = now
	u := x.cfg.Usage
	fresh := usage.New(u.Family, len(u.Counts), u.Experts, u.Chosen)
	if err := x.model.(model.ExpertCounter).ReadExperts(fresh); err != nil {
		x.cfg.Log.Warn("the counts of experts could not be read", "error", err)
		return nil
	}
	x.add(fresh)
	if x.moves == nil {
		return nil
	}
	return x.move(fresh)
}

// add adds newly read counts to the table of Config.Usage.
func (x *experts) add(fresh *usage.Table) {
	u := x.cfg.Usage
	x.tally.Lock()
	defer x.tally.Unlock()
	if err := u.Merge(fresh); err != nil {
		panic(err) // fresh always has the shape of the table
	}
	n := &x.tally.stats.Experts
	n.Choices, n.Tenth, n.Quarter, n.Half = u.Total(), u.MeanTop(0.1), u.MeanTop(0.25), u.MeanTop(0.5)
}

// Usage returns a copy of the counts of chosen experts, as last read; nil if choices are not counted.
func (e *Engine) Usage() *usage.Table {
	if e.cfg.Usage == nil {
		return nil
	}
	e.tally.Lock()
	defer e.tally.Unlock()
	return e.cfg.Usage.Clone()
}
