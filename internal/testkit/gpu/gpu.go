// Package gpu opens the first GPU for tests: with kernels of its own, or with the portable ones after the flag
// -portable.
package gpu

import (
	"flag"
	"testing"

	"sparrow/internal/cuda/op"
	"sparrow/kernel/cuda"
)

var portable = flag.Bool("portable", false, "run tests on a GPU with the portable kernels")

// Name is the name of the kernels.
func Name() string {
	if *portable {
		return op.PortableName
	}
	return op.Name
}

// Need skips a test where there is no GPU for them.
func Need(t testing.TB) {
	t.Helper()
	ready := cuda.Available
	if *portable {
		ready = cuda.PortableAvailable
	}
	if err := ready(); err != nil {
		t.Skipf("needs a GPU: %v", err)
	}
}

// Open opens the GPU, or skips the test.
func Open(t testing.TB) *op.Device {
	t.Helper()
	Need(t)
	open := cuda.Open
	if *portable {
		open = cuda.OpenPortable
	}
	d, err := open(0)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := op.On(d)
	if err != nil {
		t.Fatal(err)
	}
	return dev
}
