// Package kept makes a machine for tests whose figures (package cost) are already stored, so that none are measured.
package kept

import (
	"testing"

	"sparrow/internal/cost"
	"sparrow/internal/device"
	"sparrow/kernel"
)

// Figures writes the figures of a machine with one worker to a cache folder of the test, and returns the machine's
// devices.
func Figures(t *testing.T, r *kernel.Registry, gpu string, m cost.Machine) (dev, cores kernel.Device) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	open := func(name string) kernel.Device {
		d, err := r.Open(name, kernel.Options{Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	dev, cores = open(gpu), open("cpu")
	name := device.MachineName(dev, cores, 1)
	path, err := cost.KeptPath(name)
	if err == nil {
		err = cost.SaveFigures(path, name, cost.Figures{Bus: m.Bus, CPU: m.CPU})
	}
	if err != nil {
		t.Fatal(err)
	}
	return dev, cores
}
