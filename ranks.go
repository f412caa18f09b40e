package sparrow

import (
	"errors"
	"fmt"
	"runtime"

	"sparrow/kernel"
	"sparrow/kernel/group"
	"sparrow/model"
	"sparrow/model/family"
	"sparrow/plan"
)

// Ranks is the devices that share a model.
type Ranks struct {
	// Count is the number of CPU devices, GPUs the ordinals of GPUs: one of the two.
	Count int
	GPUs  []int
	// Attention is how they share attention.
	Attention plan.Division
}

// count is the number of ranks.
func (r *Ranks) count() int { return max(r.Count, len(r.GPUs)) }

// ranks is the devices that a configuration asks for.
func (c *Config) ranks() Ranks { return Ranks{Count: c.Ranks, GPUs: c.GPUs, Attention: c.Attention} }

// sharing is how many ranks are on the GPU of a rank.
func (c *Config) sharing(rank int) int64 {
	n := int64(0)
	for _, gpu := range c.GPUs {
		if gpu == c.GPUs[rank] {
			n++
		}
	}
	return max(n, 1)
}

// OpenRanks opens a device for each of several ranks that share a model, and makes them a group. AutoKernels takes
// CPUs, among which threads are divided, or GPUs where these are named.
func OpenRanks(r *kernel.Registry, q DeviceRequest, of Ranks, o group.Options) (_ *group.Group, err error) {
	ranks := of.count()
	if q.Kernels == "" || q.Kernels == AutoKernels {
		if q.Kernels = "cpu"; len(of.GPUs) > 0 {
			q.Kernels = "cuda"
		}
	}
	facts, err := family.Facts(q.Source.Model)
	if err != nil {
		return nil, err
	}
	if facts, err = facts.Divide(ranks, of.Attention); err != nil {
		return nil, fmt.Errorf("%s: %w", q.Source.Name, err)
	}
	threads := q.Workers
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	var list []kernel.Device
	defer func() {
		if err != nil {
			for _, dev := range list {
				err = errors.Join(err, dev.Close())
			}
		}
	}()
	for i := range ranks {
		q.Workers = max((threads+i)/ranks, 1)
		q.of = kernel.Member{Rank: i, Ranks: ranks, Requests: facts.ByRequests()}
		if len(of.GPUs) > 0 {
			q.Ordinal = of.GPUs[i]
		}
		dev, err := q.open(r, q.Kernels)
		if err != nil {
			return nil, fmt.Errorf("rank %d of %d: %w", i, ranks, err)
		}
		list = append(list, dev)
		if err := group.Supports(dev); err != nil {
			return nil, err
		}
	}
	return group.New(list, o)
}

// devices is what a model is opened on.
type devices struct {
	kernel.Machine
	// load places the weights of a model.
	load    func(src *family.Source, onTensor func(name string)) (model.Model, error)
	experts *PlacedExperts // nil where all are on the device
}

// Close ends the workers of the host, and then the devices that they computed for.
func (d devices) Close() error { return errors.Join(d.experts.Close(), d.Machine.Close()) }

// onDevice is a single device.
func onDevice(dev kernel.Device) devices {
	return devices{Machine: dev, load: func(src *family.Source, onTensor func(string)) (model.Model, error) {
		return src.Load(dev, onTensor)
	}}
}

// placedOn is a single device beside a host that has some experts.
func placedOn(dev kernel.Device, p *PlacedExperts) devices {
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
