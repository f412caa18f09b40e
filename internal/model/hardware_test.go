package model_test

import (
	"errors"
	"testing"

	"sparrow/internal/model"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/ref"
	"sparrow/plan"
)

// other is a device that reports the given properties.
type other struct {
	kernel.Device
	hardware kernel.Hardware
}

func (o other) Hardware() kernel.Hardware { return o.hardware }

func TestHardware(t *testing.T) {
	cpuPlan, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	// Plans for a CPU depend only on whether the machine has a matrix unit.
	h, err := model.Hardware(&ref.Device{})
	if err != nil || h.Arch != plan.CPU || h.MemoryBytes != cpuPlan.MemoryBytes {
		t.Errorf("the reference runs on %+v, %v", h, err)
	}
	h, err = model.Hardware(other{hardware: kernel.Hardware{Arch: "cpu", NoTiles: true}})
	if err != nil || h.Arch != plan.CPU || !h.NoTiles || cpuPlan.NoTiles {
		t.Errorf("a CPU without a matrix unit is %+v, %v", h, err)
	}
	h, err = model.Hardware(other{hardware: kernel.Hardware{
		Arch: "sm90", Multiprocessors: 78, MemoryBytes: 80 << 30,
	}})
	if err != nil || h.Arch != plan.SM90 || h.SMs != 78 || h.MemoryBytes != 80<<30 {
		t.Errorf("a GPU of its own figures is %+v, %v", h, err)
	}
	if _, err := model.Hardware(other{hardware: kernel.Hardware{Arch: "tpu"}}); !errors.Is(err, plan.E01) {
		t.Errorf("an unknown architecture: %v", err)
	}
}

// A CPU has only ordinal 0. Any other ordinal is refused.
func TestOrdinalsOfACPU(t *testing.T) {
	r := kernel.NewRegistry(cpu.Backends(), ref.Backends())
	for _, name := range []string{"cpu", "ref"} {
		if _, err := r.Open(name, kernel.Options{Ordinal: 1}); !errors.Is(err, kernel.ErrUnavailable) {
			t.Errorf("device 1 of %s: %v", name, err)
		}
		d, err := r.Open(name, kernel.Options{Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		if free, total, err := kernel.MemoryFree(d); err != nil || free > total {
			t.Errorf("%s: %d bytes of %d are free, %v", name, free, total, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
