package sparrow

import (
	"errors"
	"fmt"
	"os"
	"time"

	"sparrow/internal/model/config"
	"sparrow/internal/model/usage"
)

// usageSaved is the interval at which counts of experts are saved while the engine runs.
const usageSaved = time.Minute

// openUsage returns the table to which expert counts are added: that of the file, if there is one, or an empty one. It
// is nil if no file is configured and experts do not move.
func openUsage(c *Config, d config.Description) (*usage.Table, error) {
	file := c.ExpertUsage
	if file == "" && c.Experts != ExpertsMove {
		return nil, nil
	}
	empty, err := usage.For(d)
	if err != nil {
		return nil, fmt.Errorf("sparrow: %w", err)
	}
	if file == "" {
		return empty, nil
	}
	t, err := usage.Load(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if err = empty.Save(file); err != nil { // shows that the folder is missing now, not when the engine closes
			return nil, fmt.Errorf("sparrow: --expert-usage: %w", err)
		}
		return empty, nil
	case err == nil:
		err = t.Fits(empty.Family, len(empty.Counts), empty.Experts, empty.Chosen)
	}
	if err != nil {
		return nil, fmt.Errorf("sparrow: --expert-usage %s: %w", file, err)
	}
	return t, nil
}

// usageSaver saves expert counts at intervals. Its goroutine ends with close.
type usageSaver struct {
	engine *Engine
	stop   chan struct{}
	done   chan struct{}
}

func startSaving(e *Engine) *usageSaver {
	k := &usageSaver{engine: e, stop: make(chan struct{}), done: make(chan struct{})}
	go k.run()
	return k
}

func (k *usageSaver) run() {
	defer close(k.done)
	tick := time.NewTicker(usageSaved)
	defer tick.Stop()
	for {
		select {
		case <-k.stop:
			return
		case <-tick.C:
		}
		c, err := k.engine.core()
		if err != nil {
			continue // the engine sleeps; the counts from before are saved by a later tick or by close
		}
		if err := c.Usage().Save(k.engine.cfg.ExpertUsage); err != nil {
			k.engine.cfg.Log.Warn("the counts of experts could not be saved", "error", err)
		}
	}
}

// close saves the counts for the last time. The engine's loop has ended, so the counts no longer change.
func (k *usageSaver) close() error {
	if k == nil {
		return nil
	}
	close(k.stop)
	<-k.done
	return k.engine.cfg.usage.Save(k.engine.cfg.ExpertUsage)
}
