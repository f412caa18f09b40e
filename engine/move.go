package engine

import (
	"errors"
	"time"

	"sparrow/kernel"
	"sparrow/model"
	"sparrow/model/usage"
)

const (
	// movesFor is how long experts are moved at once, beside sequences that wait meanwhile; the last move may take
	// longer.
	movesFor = 30 * time.Millisecond
	// recentChoices is how many choices of an expert are counted in full, in the mean: what was chosen before that
	// counts half.
	recentChoices = 128
)

// moveExperts brings experts to the device that rows have chosen more often of late than some that are there, where
// that was asked for. It is called by the loop when the device has nothing to do.
func (e *Engine) moveExperts(fresh *usage.Table) {
	at := e.cfg.Moves
	if at == nil {
		return
	}
	if e.recent == nil {
		e.recent = fresh
	} else if err := e.recent.Merge(fresh); err != nil {
		panic(err) // both have the shape of cfg.Usage
	}
	moved, begun := 0, e.now()
	for _, s := range at.Swaps(e.recent) {
		err := e.model.(model.ExpertMover).SwapExperts(s.Layer, s.In, s.Out)
		if errors.Is(err, kernel.ErrLost) {
			e.lose(err)
			return
		}
		if err != nil {
			e.cfg.Log.Warn("experts could not be moved; they stay where they are", "layer", s.Layer, "expert", s.In,
				"error", err)
			e.cfg.Moves = nil
			return
		}
		if err := at.Swap(s); err != nil {
			panic(err) // Swaps found them in these homes
		}
		if moved++; e.now().Sub(begun) >= movesFor {
			break
		}
	}
	e.recent.Fade(recentChoices)
	if moved == 0 {
		return
	}
	e.cfg.Log.Info("experts moved to the device", "experts", moved, "took", e.now().Sub(begun))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Experts.Moved += int64(moved)
}
