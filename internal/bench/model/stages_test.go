package model

import (
	"testing"

	"sparrow/internal/cuda/op"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// A benchmark measures what the engine runs only if the timed device has the optional interfaces of the GPU. Models
// that read n-gram tables copy rows ahead only with kernel.TableReading.
func TestATimedGPUReadsTables(t *testing.T) {
	dev, err := op.On(cuda.OpenDetached(cuda.H200))
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if _, ok := (&stopwatch{Device: dev}).whole().(kernel.TableReading); !ok {
		t.Error("the timed device does not read tables")
	}
}
