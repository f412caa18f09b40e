package group

import (
	"errors"
	"io"
	"testing"
	"time"

	"sparrow/kernel"
	"sparrow/kernel/ref"
)

// capturing is a device with its own queue. It counts the calls of its group.
type capturing struct {
	kernel.Device
	use    kernel.MemoryUse
	graph  captured
	inside int // number of calls of Reserve and Capture that have not returned
	err    error
}

func (d *capturing) Peers(all []kernel.Device, timeout time.Duration) ([]kernel.Collective, error) {
	return Meet(len(all), timeout), nil
}

func (d *capturing) MemoryUse() kernel.MemoryUse { return d.use }

func (d *capturing) Reserve(pass func() error) error {
	d.inside++
	defer func() { d.inside-- }()
	return pass()
}

func (d *capturing) Capture(pass func() error) (kernel.Graph, error) {
	if err := d.Reserve(pass); err != nil || d.err != nil {
		return nil, errors.Join(err, d.err)
	}
	return &d.graph, nil
}

// captured is a graph that counts its launches.
type captured struct {
	launched, launches, closed int
	bytes                      int64
	stale                      bool
	err                        error
}

func (c *captured) Launch() error { c.launched++; return nil }
func (c *captured) Launches() int { return c.launches }
func (c *captured) Bytes() int64  { return c.bytes }
func (c *captured) Stale() bool   { return c.stale }
func (c *captured) Close() error  { c.closed++; return c.err }

// queues returns the machine of a group of two capturing devices, the group, and the devices.
func queues(t *testing.T) (kernel.Machine, *Group, [2]*capturing) {
	t.Helper()
	var ranks [2]*capturing
	for i := range ranks {
		ranks[i] = &capturing{Device: &ref.Device{}}
	}
	g, err := New([]kernel.Device{ranks[0], ranks[1]}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g.Machine(), g, ranks
}

// The memory in use of a group is the sum over its ranks.
func TestMemoryOfQueuedRanks(t *testing.T) {
	m, _, ranks := queues(t)
	for i, r := range ranks {
		r.use = kernel.MemoryUse{Weights: int64(10 + i), Scratch: int64(100 + i)}
	}
	if got, want := m.(kernel.MemoryOwner).MemoryUse(), (kernel.MemoryUse{Weights: 21, Scratch: 201}); got != want {
		t.Errorf("the memory in use is %+v, want %+v", got, want)
	}
}

// The work of a pass on each rank runs inside Reserve or Capture of its device; later work does not.
func TestPassesAreReservedAndCapturedOnEveryRank(t *testing.T) {
	m, g, ranks := queues(t)
	var seen [2]int
	pass := func() error {
		return g.Do(func(rank int) error { seen[rank] = ranks[rank].inside; return nil })
	}
	if err := m.(kernel.Reserver).Reserve(pass); err != nil || seen != [2]int{1, 1} {
		t.Errorf("Reserve: inside is %v on the ranks, error %v", seen, err)
	}
	if err := pass(); err != nil || seen != [2]int{} {
		t.Errorf("after Reserve: inside is %v on the ranks, error %v", seen, err)
	}
	graph, err := m.(kernel.Capturer).Capture(pass)
	if err != nil || seen != [2]int{1, 1} {
		t.Fatalf("Capture: inside is %v on the ranks, error %v", seen, err)
	}
	if err := pass(); err != nil || seen != [2]int{} {
		t.Errorf("after Capture: inside is %v on the ranks, error %v", seen, err)
	}
	first, second := &ranks[0].graph, &ranks[1].graph
	first.launches, first.bytes, second.launches, second.bytes = 7, 5, 8, 6
	if err := graph.Launch(); err != nil || first.launched != 1 || second.launched != 1 {
		t.Errorf("the graphs were launched %d and %d times, error %v", first.launched, second.launched, err)
	}
	if graph.Launches() != 7 || graph.Bytes() != 6 || graph.Stale() {
		t.Errorf("the graph has %d launches and %d bytes, stale is %t", graph.Launches(), graph.Bytes(), graph.Stale())
	}
	if second.stale = true; !graph.Stale() {
		t.Error("Stale returned false although the graph of one rank is stale")
	}
	first.err = io.ErrUnexpectedEOF
	if err := graph.Close(); !errors.Is(err, first.err) || first.closed != 1 || second.closed != 1 {
		t.Errorf("the graphs were closed %d and %d times, error %v", first.closed, second.closed, err)
	}
}

// If a rank cannot capture a pass, the graphs of the other ranks are closed.
func TestFailedCapturesLeaveNoGraphs(t *testing.T) {
	m, g, ranks := queues(t)
	ranks[1].err = io.ErrUnexpectedEOF
	_, err := m.(kernel.Capturer).Capture(func() error { return g.Do(func(int) error { return nil }) })
	if !errors.Is(err, kernel.ErrLost) || !errors.Is(err, ranks[1].err) || ranks[0].graph.closed != 1 ||
		ranks[1].graph.closed != 0 {
		t.Errorf("the graphs were closed %d and %d times, error %v", ranks[0].graph.closed, ranks[1].graph.closed, err)
	}
}
