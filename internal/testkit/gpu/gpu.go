// Package gpu opens the first GPU for tests: with the kernels of its architecture, or, with the flag -portable, with
// the portable kernels. With the flag -small, the GPU has the limits of a consumer card.
package gpu

import (
	"flag"
	"testing"

	"sparrow/internal/cuda/op"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

var (
	portable = flag.Bool("portable", false, "run tests on a GPU with the portable kernels")
	small    = flag.Bool("small", false, "limit the GPU to 22 GiB and 99 KiB of shared memory per block")
)

// Options returns the options of the device: none, or the limits of a card of 24 GB.
func Options() kernel.Options {
	if *small {
		return kernel.Options{Limits: kernel.Limits{Memory: 22 << 30, Shared: 99 << 10}}
	}
	return kernel.Options{}
}

// Name returns the name of the kernels that the flags select.
func Name() string {
	if *portable {
		return op.PortableName
	}
	return op.Name
}

// Need skips a test if no GPU can run these kernels.
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
	d, err := cuda.OpenLimited(0, *portable, Options().Limits)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := op.On(d)
	if err != nil {
		t.Fatal(err)
	}
	return dev
}
