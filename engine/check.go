package engine

import "fmt"

// Check returns the first broken rule that it finds among pages, sequences and counters. It takes time in proportion to
// the cache and is for simulations and tests: the loop calls it, through Config.Observe, or anybody once the loop has
// ended, when nothing may be left.
func (e *Engine) Check() error {
	for _, p := range e.loop.pools {
		if err := p.Check(); err != nil {
			return err
		}
	}
	e.tally.Lock()
	defer e.tally.Unlock()
	kv, held := poolStats(e.loop.pools), 0
	if kv.Sequences != e.loop.sched.Running()+e.loop.sched.Kept() {
		return fmt.Errorf("engine: %d sequences hold pages, %d run and %d have kept theirs", kv.Sequences,
			e.loop.sched.Running(), e.loop.sched.Kept())
	}
	if b := e.loop.last; b != nil && b.stage != stageRunning && b.stage != stageDrafting {
		return fmt.Errorf("engine: a batch of %d items is %v while the next is formed", len(b.items), b.stage)
	}
	waiting := 0
	for _, j := range e.inbox.jobs {
		waiting += len(j.choices)
	}
	for _, q := range e.loop.sched.All() {
		c := q.Owner.(*choice)
		if c.ended {
			return fmt.Errorf("engine: choice %d of %s has ended and is still scheduled", c.index, c.job.request.ID)
		}
		if c.state != nil {
			held++
		}
		if !c.ran {
			waiting++
		}
	}
	if m, ok := e.model.(interface{ States() int }); ok && m.States() != held {
		return fmt.Errorf("engine: the model holds %d states, running sequences have %d", m.States(), held)
	}
	if e.inbox.queued.waiting != waiting {
		return fmt.Errorf("engine: %d sequences count as queued, %d are", e.inbox.queued.waiting, waiting)
	}
	s := &e.tally.stats
	if done := s.Finished + s.Aborted + s.Failed; e.inbox.gone && (kv.Used != 0 || s.Running+s.Waiting != 0 ||
		len(e.inbox.queued.tenants) != 0 || done != s.Requests) {
		return fmt.Errorf("engine: closed with %d pages in use, %d running, %d waiting, %d tenants queued; of %d "+
			"requests %d ended", kv.Used, s.Running, s.Waiting, len(e.inbox.queued.tenants), s.Requests, done)
	}
	return nil
}
