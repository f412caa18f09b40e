package sparrow

import (
	"errors"
	"fmt"
	"os"
	"time"

	"sparrow/internal/model/config"
	"sparrow/internal/model/usage"
)

// usageSaved is the interval at which expert counts are saved.
const usageSaved = time.Minute

// openUsage returns the table of expert counts: from the file if it exists, otherwise empty. It is nil if no file is
// configured and experts do not move.
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
		if err = empty.Save(file); err != nil { // reports a missing folder now, not when the engine closes
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

// usageSaver saves expert counts at intervals. close stops its goroutine.
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
			continue // the engine sleeps; later saves include its counts
		}
		if err := c.Usage().Save(k.engine.cfg.ExpertUsage); err != nil {
			k.engine.cfg.Log.Warn("the counts of experts could not be saved", "error", err)
		}
	}
}

// close stops the goroutine and saves the final counts; the engine's loop must have ended.
func (k *usageSaver) close() error {
	if k == nil {
		return nil
	}
	close(k.stop)
	<-k.done
	return k.engine.cfg.usage.Save(k.engine.cfg.ExpertUsage)
}
