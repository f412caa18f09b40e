package sparrow

import (
	"errors"
	"fmt"
	"runtime"

	"sparrow/kernel"
	"sparrow/kernel/group"
	"sparrow/model"
	"sparrow/model/family"
)

// OpenRanks opens a device for each of several ranks that share a model, and makes them a group. AutoKernels takes the
// CPU. Threads are divided among the ranks.
func OpenRanks(r *kernel.Registry, q DeviceRequest, ranks int, o group.Options) (_ *group.Group, err error) {
	if q.Kernels == "" || q.Kernels == AutoKernels {
		q.Kernels = "cpu"
	}
	facts, err := family.Facts(q.Source.Model)
	if err != nil {
		return nil, err
	}
	if _, err := facts.Divide(ranks); err != nil {
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
func onRanks(g *group.Group) devices {
	return devices{Machine: g, load: func(src *family.Source, onTensor func(string)) (model.Model, error) {
		return src.LoadRanks(g, onTensor)
	}}
}
