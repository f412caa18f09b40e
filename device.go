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

// AutoKernels leaves the choice of the device to Open: a GPU if there is one that can run the model, else the CPU.
const AutoKernels = device.AutoKernels

// ExpertHomes selects the memories that may hold the experts of a model.
type ExpertHomes = device.ExpertHomes

// The homes.
const (
	ExpertsAuto     = device.ExpertsAuto     // the default: ExpertsOnDevice where the model fits, else ExpertsSplit
	ExpertsOnDevice = device.ExpertsOnDevice // all in the memory of the device; a model that does not fit is refused
	ExpertsSplit    = device.ExpertsSplit    // as many there as fit, those chosen most first, others on the host
	ExpertsOnHost   = device.ExpertsOnHost   // all in host memory
	// ExpertsMove is ExpertsSplit, and between steps the experts that rows chose most recently move to the device. The
	// arithmetic of a row then changes over time.
	ExpertsMove = device.ExpertsMove
)

// ranks returns the devices that a configuration selects.
func (c *Config) ranks() device.Ranks {
	return device.Ranks{Count: c.Ranks, GPUs: c.GPUs, Attention: c.Attention}
}

// sharing returns the number of ranks on the GPU of a rank.
func (c *Config) sharing(rank int) int64 {
	n := int64(0)
	for _, gpu := range c.GPUs {
		if gpu == c.GPUs[rank] {
			n++
		}
	}
	return max(n, 1)
}

// devices holds the devices that a model runs on.
type devices struct {
	kernel.Machine
	// load places the weights of a model.
	load    func(src *family.Source, onTensor func(name string)) (model.Model, error)
	experts *device.PlacedExperts // nil where all are on the device
}

// Close ends the workers of the host, and then closes the devices that they computed for.
func (d devices) Close() error { return errors.Join(d.experts.Close(), d.Machine.Close()) }

// onDevice returns a single device.
func onDevice(dev kernel.Device) devices {
	return devices{Machine: dev, load: func(src *family.Source, onTensor func(string)) (model.Model, error) {
		return src.Load(dev, onTensor)
	}}
}

// placedOn returns a single device whose host has some of the experts.
func placedOn(dev kernel.Device, p *device.PlacedExperts) devices {
	load := func(src *family.Source, onTensor func(string)) (model.Model, error) {
		return src.LoadPlaced(dev, p.Placed, onTensor)
	}
	return devices{Machine: dev, load: load, experts: p}
}

// onRanks is several ranks.
func onRanks(g *group.Group, how plan.Division) devices {
	return devices{Machine: g.Machine(), load: func(src *family.Source, onTensor func(string)) (model.Model, error) {
		return src.LoadRanks(g, how, onTensor)
	}}
}
