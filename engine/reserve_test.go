package engine

import (
	"fmt"
	"sync/atomic"
	"testing"

	"sparrow/internal/testmodel"
	"sparrow/kernel"
)

// countingDevice counts allocations of its memory.
type countingDevice struct {
	kernel.Device
	taken *atomic.Int64
}

func (c countingDevice) Alloc(n int64) (kernel.Buffer, error) {
	c.taken.Add(1)
	return c.Device.Alloc(n)
}

// An engine allocates its memory when it opens. It allocates no further memory while it serves the maximum number of
// sequences, with and without sequence states.
func TestServingTakesNoMemory(t *testing.T) {
	models := map[string]func(testing.TB) string{"DeepSeek-V4": testmodel.V4Draft, "DeepSeek-V3.2": testmodel.V32Draft}
	for name, model := range models {
		t.Run(name, func(t *testing.T) {
			var taken atomic.Int64
			cfg := Config{MaxRunning: 9, StepTokens: 64, Draft: drafts(t, 2)}
			count := func(d kernel.Device) kernel.Device { return countingDevice{d, &taken} }
			e, err := buildOver(t, model(t), cfg, kernel.Options{}, count)
			if err != nil {
				t.Fatal(err)
			}
			e, run := running(t, e)
			before := taken.Load()
			var list []Request
			for i := range 9 {
				list = append(list, Request{ID: fmt.Sprint(i), Prompt: tokens(i, 5+i), Sampling: greedy(),
					MaxTokens: 8, IgnoreEOS: true})
			}
			jointly(t, e, list, run)
			if n := taken.Load() - before; n != 0 {
				t.Errorf("device memory was allocated %d times while serving, want 0", n)
			}
		})
	}
}
