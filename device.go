package sparrow

import (
	"errors"

	"sparrow/internal/device"
	"sparrow/internal/device/group"
	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/kernel"
	"sparrow/plan"
)

// AutoKernels makes Open choose the device: a GPU if there is one that can run the model, else the CPU.
const AutoKernels = device.AutoKernels

// ExpertHomes selects the memories that may hold the experts of a model.
type ExpertHomes = device.ExpertHomes

// Values of [ExpertHomes].
const (
	ExpertsAuto     = device.ExpertsAuto     // the default: ExpertsOnDevice if the model fits, else ExpertsSplit
	ExpertsOnDevice = device.ExpertsOnDevice // all experts are in device memory; a model that does not fit is refused
	// ExpertsSplit places as many experts as fit in device memory, in the order of how often they are chosen; the other
	// experts are in host memory.
	ExpertsSplit  = device.ExpertsSplit
	ExpertsOnHost = device.ExpertsOnHost // all experts are in host memory
	// ExpertsMove places experts like ExpertsSplit; between steps it also moves recently chosen experts to device
	// memory. The arithmetic of a row then changes over time.
	ExpertsMove = device.ExpertsMove
)

// ranks returns the devices that a configuration selects.
func (c *Config) ranks() device.Ranks {
	return device.Ranks{Count: c.Ranks, GPUs: c.GPUs, Attention: c.Attention}
}

// sharing returns the number of ranks that use the same GPU as the given rank.
func (c *Config) sharing(rank int) int64 {
	n := int64(0)
	for _, gpu := range c.GPUs {
		if gpu == c.GPUs[rank] {
			n++
		}
	}
	return max(n, 1)
}

// devices holds the devices of a model, with functions for its weights.
type devices struct {
	kernel.Machine
	// load places the weights of a model in the memory of the devices.
	load    func(src *family.Source, onTensor func(name string)) (model.Model, error)
	experts *device.PlacedExperts // experts in host memory; nil if all experts are on the device
}

// Close stops the host workers that compute experts, and then closes the devices that use these workers.
func (d devices) Close() error { return errors.Join(d.experts.Close(), d.Machine.Close()) }

// onDevice returns the devices value for a single device.
func onDevice(dev kernel.Device) devices {
	return devices{Machine: dev, load: func(src *family.Source, onTensor func(string)) (model.Model, error) {
		return src.Load(dev, onTensor)
	}}
}

// placedOn returns the devices value for a single device with some experts in host memory.
func placedOn(dev kernel.Device, p *device.PlacedExperts) devices {
	load := func(src *family.Source, onTensor func(string)) (model.Model, error) {
		return src.LoadPlaced(dev, p.Placed, onTensor)
	}
	return devices{Machine: dev, load: load, experts: p}
}

// onRanks returns the devices value for several ranks.
func onRanks(g *group.Group, how plan.Division) devices {
	return devices{Machine: g.Machine(), load: func(src *family.Source, onTensor func(string)) (model.Model, error) {
		return src.LoadRanks(g, how, onTensor)
	}}
}
