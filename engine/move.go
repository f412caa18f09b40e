package engine

import (
	"errors"
	"time"

	"sparrow/internal/model"
	"sparrow/internal/model/usage"
	"sparrow/kernel"
)

const (
	// movesFor is the maximum time for moving experts between two steps while sequences wait. A move that has begun is
	// finished, even if it exceeds the limit.
	movesFor = 30 * time.Millisecond
	// recentChoices is the maximum mean number of recent choices of a layer's experts; above it, the layer's counts are
	// halved.
	recentChoices = 128
)

// move exchanges experts between the device and host memory: experts that were recently chosen more often move to the
// device, in place of experts that were chosen less often. It is called while the device is idle.
func (x *experts) move(fresh *usage.Table) error {
	if x.recent == nil {
		x.recent = fresh
	} else if err := x.recent.Merge(fresh); err != nil {
		panic(err) // the two tables always have the shape of cfg.Usage
	}
	moved, begun := 0, x.now()
	for _, s := range x.moves.Swaps(x.recent) {
		err := x.model.(model.ExpertMover).SwapExperts(s.Layer, s.In, s.Out)
		if errors.Is(err, kernel.ErrLost) {
			return err
		}
		if err != nil {
			x.cfg.Log.Warn("experts could not be moved; they stay where they are", "layer", s.Layer, "expert", s.In,
				"error", err)
			x.moves = nil
			return nil
		}
		if err := x.moves.Swap(s); err != nil {
			panic(err) // the arguments are a swap that Swaps returned
		}
		if moved++; x.now().Sub(begun) >= movesFor {
			break
		}
	}
	x.recent.Fade(recentChoices)
	if moved == 0 {
		return nil
	}
	x.cfg.Log.Info("experts moved to the device", "experts", moved, "took", x.now().Sub(begun))
	x.tally.Lock()
	defer x.tally.Unlock()
	x.tally.stats.Experts.Moved += int64(moved)
	return nil
}
