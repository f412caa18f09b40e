package device

import (
	"errors"
	"fmt"
	"runtime"

	"sparrow/internal/device/group"
	"sparrow/internal/model/family"
	"sparrow/kernel"
	"sparrow/plan"
)

// Ranks describes the devices that share a model.
type Ranks struct {
	// Count is the number of CPU devices, and GPUs lists the ordinals of GPUs; only one of the two is set.
	Count int
	GPUs  []int
	// Attention is the way in which the ranks divide attention.
	Attention plan.Division
}

// Total returns the number of ranks.
func (r *Ranks) Total() int { return max(r.Count, len(r.GPUs)) }

// OpenRanks opens a device for each of several ranks that share a model, and makes them a group. AutoKernels uses GPUs
// if Ranks.GPUs is set, otherwise CPU devices, among which the threads are divided.
func OpenRanks(r *kernel.Registry, q Request, of Ranks, o group.Options) (_ *group.Group, err error) {
	ranks := of.Total()
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
		q.Of = kernel.Member{Rank: i, Ranks: ranks, Requests: facts.ByRequests()}
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
