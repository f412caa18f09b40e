package model

import (
	"sparrow/kernel"
	"sparrow/plan"
)

// Hardware is what plans for a device start from: the figures of its architecture, and where the device gives its own,
// these.
func Hardware(dev kernel.Device) (plan.Hardware, error) {
	own := dev.Hardware()
	h, err := plan.HardwareFor(own.Arch)
	if err != nil {
		return h, err
	}
	if own.Multiprocessors > 0 {
		h.SMs = own.Multiprocessors
	}
	if own.MemoryBytes > 0 {
		h.MemoryBytes = own.MemoryBytes
	}
	return h, nil
}
