package sim

import (
	"fmt"

	"sparrow/internal/sched"
)

// checkWait: while others flood the engine, the only request of a tenant waits for its first token a number of
// iterations that does not depend on what others have sent.
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

// mostWait is the maximum number of iterations before the first token: those of a prompt that must end before another
// is admitted, which may be a suspended sequence's with its answer, then of the request's own; one that is in progress,
// and two to make room. Prompts have at least a quarter each of what decodes and drafts leave of a batch.
func (w *world) mostWait() int {
	c := &w.config
	rows := (c.StepTokens - c.MaxRunning) / 2
	if c.MaxStall > 0 {
		rows = min(rows, sched.SmallestChunk)
	}
	others, own := floodPrompt+floodOutput*mostOutput, floodPrompt
	return 4 + (others+own)/max(rows/sched.DefaultMaxPrompts, 1)
}
