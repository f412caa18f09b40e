package cpu_test

import (
	"errors"
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/cpu"
)

// Tiers that this machine does not support are listed with a reason and cannot be opened.
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
