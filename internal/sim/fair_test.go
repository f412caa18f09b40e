package sim

import (
	"fmt"

	"sparrow/internal/sched"
)

// checkWait checks how long the only request of a tenant waits for its first token while others flood the engine. The
// maximum number of iterations does not depend on the requests of other tenants.
func (w *world) checkWait(s *stream) error {
	if !w.flood || !s.alone || s.first == 0 || len(s.choices) > 1 {
		return nil
	}
	wait, bound := s.first-s.sent, w.mostWait()
	w.report.WorstWait = max(w.report.WorstWait, wait)
	if wait > bound {
		return fmt.Errorf("sim: %s, the only one of its tenant, waited %d iterations for its first token; prompts "+
			"explain %d", s.request.ID, wait, bound)
	}
	return nil
}

// mostWait returns the maximum number of iterations before the first token. It is the sum of the iterations of a prompt
// that must end before another prompt is admitted (which may be a suspended sequence with its answer), of the request's
// own prompt, one iteration in progress, and two to release pages. Each prompt gets at least a quarter of the tokens
// that decodes and drafts leave in a batch.
func (w *world) mostWait() int {
	c := &w.config
	rows := (c.StepTokens - c.MaxRunning) / 2
	if c.MaxStall > 0 {
		rows = min(rows, sched.SmallestChunk)
	}
	others, own := floodPrompt+floodOutput*mostOutput, floodPrompt
	return 4 + (others+own)/max(rows/sched.DefaultMaxPrompts, 1)
}
