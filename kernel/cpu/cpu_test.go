package cpu_test

import (
	"fmt"
	"testing"

	"sparrow/internal/testkit"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/ref"
)

// Every registered variant, with one worker and with several, runs the same tests.
func TestOperations(t *testing.T) {
	for _, b := range append(cpu.Backends(), ref.Backends()...) {
		for _, workers := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", b.Name, workers), func(t *testing.T) {
				d, err := b.Open(kernel.Options{Workers: workers})
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				testkit.Operations(t, d)
			})
		}
	}
}
