package engine

import "fmt"

// Check returns the first broken rule that it finds among pages, sequences and counters. It takes time in proportion to
// the cache and is for simulations and tests: the loop calls it, through Config.Observe, or anybody once the loop has
// ended, when nothing may be left.
func (e *Engine) Check() error {
	for _, p := range e.pools {
		if err := p.Check(); err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	kv, held := poolStats(e.pools), 0
	if kv.Sequences != e.sched.Running()+e.sched.Kept() {
		return fmt.Errorf("engine: %d sequences hold pages, %d run and %d have kept theirs", kv.Sequences,
			e.sched.Running(), e.sched.Kept())
	}
	waiting := 0
	for _, j := range e.inbox {
		waiting += len(j.choices)
	}
	for _, q := range e.sched.All() {
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
	if e.queued.waiting != waiting {
		return fmt.Errorf("engine: %d sequences count as queued, %d are", e.queued.waiting, waiting)
	}
	s := &e.stats
	if done := s.Finished + s.Aborted + s.Failed; e.gone && (kv.Used != 0 || s.Running+s.Waiting != 0 ||
		len(e.queued.tenants) != 0 || done != s.Requests) {
		return fmt.Errorf("engine: closed with %d pages in use, %d running, %d waiting, %d tenants queued; of %d "+
			"requests %d ended", kv.Used, s.Running, s.Waiting, len(e.queued.tenants), s.Requests, done)
	}
	return nil
}
