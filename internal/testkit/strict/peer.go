package strict

import (
	"fmt"
	"time"

	"sparrow/internal/device/group"
	"sparrow/internal/testkit/pair"
	"sparrow/kernel"
)

var _ kernel.Peer = (*Device)(nil)

// Peers creates the collective operations of ranks that are strict devices: each operation is checked by the rules of a
// GPU and computed in host memory.
func (d *Device) Peers(all []kernel.Device, timeout time.Duration) ([]kernel.Collective, error) {
	var gpus []kernel.Device
	for i, x := range all {
		s, ok := x.(*Device)
		if !ok {
			return nil, fmt.Errorf("%w: strict: rank %d is a %s, want a strict device", kernel.ErrArgument, i, x.Name())
		}
		gpus = append(gpus, s.gpu)
	}
	first, err := d.gpu.Peers(gpus, timeout)
	if err != nil {
		return nil, err
	}
	list := make([]kernel.Collective, len(all))
	for i, second := range group.Meet(len(all), timeout) {
		list[i] = &peers{all[i].(*Device), first[i], second}
	}
	return list, nil
}

// peers is a rank's collective operations on both devices.
type peers struct {
	dev           *Device
	first, second kernel.Collective
}

func both[A any](p *peers, do func(kernel.Collective, A) error, first, second A) error {
	if err := p.dev.called(); err != nil {
		return err
	}
	if err := do(p.first, first); err != nil {
		return err
	}
	return do(p.second, second)
}

func (p *peers) AllReduce(a kernel.AllReduceArgs) error {
	return both(p, kernel.Collective.AllReduce, kernel.AllReduceArgs{X: pair.First(a.X)},
		kernel.AllReduceArgs{X: pair.Second(a.X)})
}

func (p *peers) AllGather(a kernel.AllGatherArgs) error {
	return both(p, kernel.Collective.AllGather, kernel.AllGatherArgs{Out: pair.First(a.Out), X: pair.First(a.X)},
		kernel.AllGatherArgs{Out: pair.Second(a.Out), X: pair.Second(a.X)})
}

func (p *peers) ReduceScatter(a kernel.ReduceScatterArgs) error {
	return both(p, kernel.Collective.ReduceScatter,
		kernel.ReduceScatterArgs{Out: pair.First(a.Out), X: pair.First(a.X)},
		kernel.ReduceScatterArgs{Out: pair.Second(a.Out), X: pair.Second(a.X)})
}

func (p *peers) Broadcast(a kernel.BroadcastArgs) error {
	return both(p, kernel.Collective.Broadcast, kernel.BroadcastArgs{X: pair.First(a.X), From: a.From},
		kernel.BroadcastArgs{X: pair.Second(a.X), From: a.From})
}

func (p *peers) ShareRows(a kernel.ShareArgs) error {
	return both(p, kernel.Collective.ShareRows, kernel.ShareArgs{X: pair.First(a.X), Bounds: a.Bounds},
		kernel.ShareArgs{X: pair.Second(a.X), Bounds: a.Bounds})
}
