package sim

import (
	"fmt"

	"sparrow/sched"
)

// checkWait: the only request of a tenant waits for its first token a number of iterations that depends on its prompt,
// not on what others have sent.
func (w *world) checkWait(s *stream) error {
	if !s.alone || s.first == 0 || w.report.Faults > 0 || len(s.choices) > 1 {
		return nil
	}
	wait, bound := s.first-s.sent, w.waitBound(len(s.request.Prompt))
	if bound > 0 && wait > bound {
		return fmt.Errorf("sim: %s, the only one of its tenant, waited %d iterations for its first token; a prompt of "+
			"%d tokens explains %d", s.request.ID, wait, len(s.request.Prompt), bound)
	}
	if bound > 0 {
		w.report.WorstWait = max(w.report.WorstWait, wait)
	}
	return nil
}

// waitBound is the most iterations before the first token: one that is in progress, two to make room, and those of the
// prompt, which has at least a quarter of what decodes and drafts leave of a batch. 0 means that nothing is promised:
// where tenants are more than places, or hold all pages, they take turns.
func (w *world) waitBound(prompt int) int {
	c := &w.config
	if c.MaxRunning <= w.tenants+1 || c.StepTokens < 2*c.MaxRunning || c.CacheTokens < (w.tenants+1)*w.shape.Context {
		return 0
	}
	rows := (c.StepTokens - c.MaxRunning) / 2
	if c.MaxStall > 0 {
		rows = min(rows, sched.SmallestChunk)
	}
	return 4 + prompt/max(rows/sched.DefaultMaxPrompts, 1)
}
