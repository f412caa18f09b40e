package strict

import (
	"fmt"
	"time"

	"sparrow/internal/device/group"
	"sparrow/internal/testkit/twin"
	"sparrow/kernel"
)

var _ kernel.Peer = (*Device)(nil)

// Peers makes the collective operations of ranks that are strict devices: each is checked by those of GPUs, and
// computed in host memory.
func (d *Device) Peers(all []kernel.Device, timeout time.Duration) ([]kernel.Collective, error) {
	var gpus []kernel.Device
	for i, x := range all {
		s, ok := x.(*Device)
		if !ok {
			return nil, fmt.Errorf("%w: strict: rank %d is a %s", kernel.ErrArgument, i, x.Name())
		}
		gpus = append(gpus, s.gpu)
	}
	first, err := d.gpu.Peers(gpus, timeout)
	if err != nil {
		return nil, err
	}
	list := make([]kernel.Collective, len(all))
	for i, second := range group.Meet(len(all), timeout) {
		list[i] = &pair{all[i].(*Device), first[i], second}
	}
	return list, nil
}

// pair is a rank's collective operations on both devices.
type pair struct {
	dev           *Device
	first, second kernel.Collective
}

func both[A any](p *pair, do func(kernel.Collective, A) error, first, second A) error {
	if err := p.dev.called(); err != nil {
		return err
	}
	if err := do(p.first, first); err != nil {
		return err
	}
	return do(p.second, second)
}

func (p *pair) AllReduce(a kernel.AllReduceArgs) error {
	return both(p, kernel.Collective.AllReduce, kernel.AllReduceArgs{X: twin.First(a.X)},
		kernel.AllReduceArgs{X: twin.Second(a.X)})
}

func (p *pair) AllGather(a kernel.AllGatherArgs) error {
	return both(p, kernel.Collective.AllGather, kernel.AllGatherArgs{Out: twin.First(a.Out), X: twin.First(a.X)},
		kernel.AllGatherArgs{Out: twin.Second(a.Out), X: twin.Second(a.X)})
}

func (p *pair) ReduceScatter(a kernel.ReduceScatterArgs) error {
	return both(p, kernel.Collective.ReduceScatter,
		kernel.ReduceScatterArgs{Out: twin.First(a.Out), X: twin.First(a.X)},
		kernel.ReduceScatterArgs{Out: twin.Second(a.Out), X: twin.Second(a.X)})
}

func (p *pair) Broadcast(a kernel.BroadcastArgs) error {
	return both(p, kernel.Collective.Broadcast, kernel.BroadcastArgs{X: twin.First(a.X), From: a.From},
		kernel.BroadcastArgs{X: twin.Second(a.X), From: a.From})
}

func (p *pair) ShareRows(a kernel.ShareArgs) error {
	return both(p, kernel.Collective.ShareRows, kernel.ShareArgs{X: twin.First(a.X), Bounds: a.Bounds},
		kernel.ShareArgs{X: twin.Second(a.X), Bounds: a.Bounds})
}
