package group

import (
	"errors"
	"fmt"

	"sparrow/kernel"
)

// queued is a group of devices that each have their own queue: the operations of a pass can be captured rank by rank,
// and launched again on all ranks.
type queued struct{ *Group }

var (
	_ kernel.Capturer    = queued{}
	_ kernel.Reserver    = queued{}
	_ kernel.MemoryOwner = queued{}
)

// through runs a pass with around applied to the work on each rank.
func (g queued) through(pass func() error, around func(rank int, f func() error) error) error {
	g.around = around
	defer func() { g.around = nil }()
	return pass()
}

// Capture captures a pass on each rank.
func (g queued) Capture(pass func() error) (kernel.Graph, error) {
	all := &graphs{group: g.Group, list: make([]kernel.Graph, len(g.ranks))}
	all.launch = func(rank int) error { return all.list[rank].Launch() }
	err := g.through(pass, func(rank int, f func() error) error {
		c, ok := g.ranks[rank].dev.(kernel.Capturer)
		if !ok {
			return fmt.Errorf("%w: %s captures no passes", kernel.ErrUnsupported, g.describe(rank))
		}
		var err error
		all.list[rank], err = c.Capture(f)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, all.Close())
	}
	return all, nil
}

// Reserve allocates the memory that the operations of a pass use on each rank.
func (g queued) Reserve(pass func() error) error {
	return g.through(pass, func(rank int, f func() error) error {
		if r, ok := g.ranks[rank].dev.(kernel.Reserver); ok {
			return r.Reserve(f)
		}
		return nil
	})
}

// MemoryUse returns the memory use of all ranks together.
func (g queued) MemoryUse() (all kernel.MemoryUse) {
	for _, r := range g.ranks {
		if d, ok := r.dev.(kernel.MemoryOwner); ok {
			use := d.MemoryUse()
			all.Weights, all.Scratch = all.Weights+use.Weights, all.Scratch+use.Scratch
		}
	}
	return all
}

// graphs is a pass that was captured on every rank.
type graphs struct {
	group  *Group
	list   []kernel.Graph
	launch func(rank int) error
}

func (g *graphs) Launch() error { return g.group.Do(g.launch) }

// Launches returns the number of launches in the graph of the first rank.
func (g *graphs) Launches() int { return g.list[0].Launches() }

// Bytes returns the maximum of the graphs' sizes over all ranks.
func (g *graphs) Bytes() (most int64) {
	for _, x := range g.list {
		most = max(most, x.Bytes())
	}
	return most
}

// Stale reports whether any of the graphs is stale.
func (g *graphs) Stale() bool {
	for _, x := range g.list {
		if x.Stale() {
			return true
		}
	}
	return false
}

func (g *graphs) Close() error {
	var err error
	for _, x := range g.list {
		if x != nil {
			err = errors.Join(err, x.Close())
		}
	}
	return err
}
