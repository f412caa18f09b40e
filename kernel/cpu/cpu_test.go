package cpu_test

import (
	"errors"
	"fmt"
	"testing"

	"sparrow/internal/testkit"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/ref"
)

// Every registered variant with several workers, and the reference, which has none, run the same tests; the best
// variant also with one worker, and with so many that one is idle in products of few rows.
func TestOperations(t *testing.T) {
	for i, b := range append(cpu.Backends(), ref.Backends()...) {
		if b.Available() != nil {
			continue
		}
		counts := []int{3}
		if i == 0 {
			counts = []int{1, 9} // the others have three
		}
		for _, workers := range counts {
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

// Tiers that this machine lacks are listed with a reason and cannot be opened.
func TestMissingTiersSayWhy(t *testing.T) {
	for _, b := range cpu.Backends() {
		reason := b.Available()
		_, err := b.Open(kernel.Options{Workers: 1})
		if (reason == nil) != (err == nil) {
			t.Errorf("%s: available says %v, open says %v", b.Name, reason, err)
		}
		if reason != nil && !errors.Is(reason, kernel.ErrUnavailable) {
			t.Errorf("%s: %v", b.Name, reason)
		}
	}
}
