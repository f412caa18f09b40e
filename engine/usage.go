package engine

import (
	"fmt"
	"time"

	"sparrow/model"
	"sparrow/model/usage"
)

// How often counts of experts are read at most, while batches run, and before the loop waits or where experts move:
// reading waits for the device.
const (
	usageEvery = 5 * time.Second
	usageIdle  = time.Second
)

// countExperts lets passes count which experts rows choose, where that was asked for.
func (e *Engine) countExperts() error {
	if _, ok := e.model.(model.ExpertMover); e.cfg.Moves != nil && (!ok || e.cfg.Usage == nil) {
		return fmt.Errorf("sparrow: experts of a model of family %s on %s do not move; leave --experts auto out",
			e.model.Config().Family, e.model.Device().Name())
	}
	if e.cfg.Usage == nil {
		return nil
	}
	c, ok := e.model.(model.ExpertCounter)
	if !ok {
		return fmt.Errorf("sparrow: experts of a model of family %s are not counted; leave --expert-usage out",
			e.model.Config().Family)
	}
	if err := c.CountExperts(); err != nil {
		return fmt.Errorf("sparrow: --expert-usage: %w", err)
	}
	return nil
}

// readExperts adds what the device has counted to the table, where the time since it last did is at least the given
// one. It is called by the loop.
func (e *Engine) readExperts(since time.Duration) {
	if e.cfg.Usage == nil || e.counted.IsZero() && e.stats.Steps == 0 || e.lost != nil {
		return
	}
	if e.cfg.Moves != nil {
		since = min(since, usageIdle)
	}
	now := e.now()
	if now.Sub(e.counted) < since {
		return
	}
	e.counted = now
	u := e.cfg.Usage
	fresh := usage.New(u.Family, len(u.Counts), u.Experts, u.Chosen)
	if err := e.model.(model.ExpertCounter).ReadExperts(fresh); err != nil {
		e.cfg.Log.Warn("counts of experts could not be read", "error", err)
		return
	}
	e.addExperts(fresh)
	e.moveExperts(fresh)
}

// addExperts adds counts to the table.
func (e *Engine) addExperts(fresh *usage.Table) {
	u := e.cfg.Usage
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := u.Merge(fresh); err != nil {
		panic(err) // it has the shape of u
	}
	x := &e.stats.Experts
	x.Choices, x.Tenth, x.Quarter, x.Half = u.Total(), u.MeanTop(0.1), u.MeanTop(0.25), u.MeanTop(0.5)
}

// Usage is a copy of the counts of chosen experts, as they were read last; nil where choices are not counted.
func (e *Engine) Usage() *usage.Table {
	if e.cfg.Usage == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cfg.Usage.Clone()
}
