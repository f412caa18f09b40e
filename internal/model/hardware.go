package model

import (
	"sparrow/kernel"
	"sparrow/plan"
)

// Divide returns the properties of the model on one of several ranks.
func Divide(facts plan.Model, of kernel.Member) (plan.Model, error) {
	how := plan.ByHeads
	if of.Requests {
		how = plan.ByRequests
	}
	return facts.Divide(of.Count(), how)
}

// Hardware returns the hardware description for the plans of a device: the values that the device reports, and typical
// values of its architecture for all others.
func Hardware(dev kernel.Machine) (plan.Hardware, error) {
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
	h.NoTiles, h.Portable = own.NoTiles, own.Portable
	return h, nil
}
