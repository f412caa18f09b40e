package engine

import (
	"fmt"
	"time"

	"sparrow/model"
	"sparrow/model/usage"
)

// usageEvery is how often counts of experts are read while batches run: reading waits for the device.
const usageEvery = 5 * time.Second

// countExperts lets passes count which experts rows choose, where that was asked for.
func (e *Engine) countExperts() error {
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

// readExperts adds what the device has counted to the table: every few seconds, and before the loop waits. It is called
// by the loop.
func (e *Engine) readExperts(idle bool) {
	if e.cfg.Usage == nil || e.counted.IsZero() && e.stats.Steps == 0 || e.lost != nil {
		return
	}
	now := e.now()
	if !idle && now.Sub(e.counted) < usageEvery {
		return
	}
	e.counted = now
	u := e.cfg.Usage
	fresh := usage.New(u.Family, len(u.Counts), u.Experts, u.Chosen)
	if err := e.model.(model.ExpertCounter).ReadExperts(fresh); err != nil {
		e.cfg.Log.Warn("counts of experts could not be read", "error", err)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := u.Merge(fresh); err != nil {
		panic(err) // it has the shape of u
	}
	e.stats.Experts = ExpertCount{Choices: u.Total(), Tenth: u.MeanTop(0.1), Quarter: u.MeanTop(0.25),
		Half: u.MeanTop(0.5)}
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
