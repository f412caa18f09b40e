package sparrow

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"sparrow/sample"
	"sparrow/weight"
)

// searchTime is the maximum time that a failed request waits for the search of damage.
const searchTime = 3 * time.Second

// ErrDamaged means that a weight of the checkpoint is NaN or infinite.
var ErrDamaged = errors.New("sparrow: the checkpoint is damaged")

// damage returns a function that explains requests that failed because of NaN. It searches the checkpoint once for a
// weight that is not finite, and adds the tensor and element to the error. Large checkpoints are searched only in part,
// small tensors first.
func damage(w *weight.Checkpoint, log *slog.Logger) func(error) error {
	search := sync.OnceValue(func() error {
		found, all := w.FindNotFinite(searchTime)
		switch {
		case found != nil:
			log.Error("a weight is NaN or infinite", "tensor", found.Tensor, "element", found.Element)
			return fmt.Errorf("%w: element %d of tensor %s is NaN or infinite; download the checkpoint again",
				ErrDamaged, found.Element, found.Tensor)
		case all:
			log.Warn("a forward pass returned NaN although all weights are finite")
		default:
			log.Warn("a forward pass returned NaN; no NaN was found in the weights within the time limit of the "+
				"search", "time",
				searchTime)
		}
		return nil
	})
	return func(err error) error {
		if !errors.Is(err, sample.ErrLogits) {
			return err
		}
		if cause := search(); cause != nil {
			return fmt.Errorf("%w (%w)", cause, err)
		}
		return err
	}
}
