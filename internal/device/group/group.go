// Package group runs one model on several devices: each device is a rank with its own thread, and ranks exchange rows
// through collective operations with a fixed order of sums.
//
// A Group is a kernel.Machine whose memory is allocated at the same offsets on all ranks. It has a function that runs
// work on all ranks concurrently and, for each rank, a kernel.Collective. Rows are copied directly from one rank's
// memory to another's: by the threads of ranks that compute on the host and wait for each other, or by the devices
// themselves (kernel.Peer).
package group

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"sparrow/kernel"
)

// Timeout is the default of Options.Timeout: it is longer than any operation if its weights are in memory. While the
// process reads pages of files, ranks continue to wait.
const Timeout = 10 * time.Second

// MaxRanks is the maximum number of ranks of a group.
const MaxRanks = kernel.MaxRanks

// Options are the settings of a group.
type Options struct {
	// Timeout is the maximum time that a rank may stay at one operation while others wait for it, before it is treated
	// as lost; a negative value means no limit.
	Timeout time.Duration
	// Compare makes Read read from all ranks, and also compares the results of passes; if bytes differ, the call
	// returns an error. Compare is for tests and verify.
	Compare bool
}

// Group is a group of ranks. One goroutine uses it at a time, except for the operations of ranks inside Do.
type Group struct {
	ranks   []*rank
	opts    Options
	barrier barrier
	ending  watch    // watch for ranks that have not returned from the function that Do runs
	done    chan int // receives the number of each rank that has returned from the function that Do runs
	back    []bool   // ranks that have returned
	// peers holds the collective operations of devices that exchange rows themselves (kernel.Peer); nil if ranks
	// exchange rows on the host.
	peers []kernel.Collective
	// around, if set, wraps the functions that Do runs on a rank.
	around func(rank int, f func() error) error
	timer  *time.Timer
	lost   error // reason why the group can no longer be used
	once   sync.Once
	closed error
}

// rank is one device and its thread.
type rank struct {
	dev   kernel.Device
	calls chan func(rank int) error
	ended chan struct{} // closed when the thread has ended
	err   error         // result of the latest call
	beats atomic.Uint64 // number of operations that the rank has begun
}

// New makes a group of devices. It takes ownership of the devices: Close closes them.
func New(devs []kernel.Device, o Options) (*Group, error) {
	if len(devs) < 1 || len(devs) > MaxRanks {
		return nil, fmt.Errorf("%w: the group has %d ranks, want 1 to %d", kernel.ErrArgument, len(devs),
			MaxRanks)
	}
	for _, d := range devs {
		if err := Supports(d); err != nil {
			return nil, err
		}
	}
	switch {
	case o.Timeout == 0:
		o.Timeout = Timeout
	case o.Timeout < 0:
		o.Timeout = math.MaxInt64
	}
	g := &Group{opts: o, done: make(chan int, len(devs)), back: make([]bool, len(devs)),
		timer: time.NewTimer(time.Hour)}
	g.timer.Stop()
	if p, ok := devs[0].(kernel.Peer); ok && len(devs) > 1 {
		var err error
		if g.peers, err = p.Peers(devs, o.Timeout); err != nil {
			return nil, err
		}
	}
	var beats []*atomic.Uint64
	for _, d := range devs {
		r := &rank{dev: d, calls: make(chan func(int) error, 1), ended: make(chan struct{})}
		g.ranks, beats = append(g.ranks, r), append(beats, &r.beats)
	}
	g.barrier.init(beats, o.Timeout)
	g.ending = newWatch(beats, o.Timeout)
	for i, r := range g.ranks {
		go g.run(i, r)
	}
	return g, nil
}

// Supports returns an error if a device cannot be a rank.
func Supports(dev kernel.Device) error {
	if _, ok := dev.(kernel.Peer); !ok && dev.Hardware().Arch != "cpu" {
		return fmt.Errorf("%w: %s (%s) cannot be a rank; want CPUs (--kernels cpu --ranks N) or GPUs "+
			"(--gpus N)",
			kernel.ErrUnsupported, dev.Name(), dev.Hardware().Arch)
	}
	return nil
}

// Machine returns the group as a machine for callers that start passes. If each rank has its own queue, the machine
// supports capture and reservation.
func (g *Group) Machine() kernel.Machine {
	if g.peers != nil {
		return queued{g}
	}
	return g
}

// run is the loop of a rank's thread. The thread is fixed, because device libraries and memory placement depend on it.
func (g *Group) run(i int, r *rank) {
	runtime.LockOSThread()
	defer close(r.ended)
	for call := range r.calls {
		r.err = guard(i, call)
		if r.err != nil {
			g.barrier.leave(i, r.err)
		}
		g.done <- i
	}
}

// guard calls call for rank i and converts a panic to an error.
func guard(i int, call func(int) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return call(i)
}

// Ranks returns the number of ranks.
func (g *Group) Ranks() int { return len(g.ranks) }

// Device returns the device of a rank.
func (g *Group) Device(rank int) kernel.Device { return g.ranks[rank].dev }

// Member returns the position of a rank among all ranks.
func (g *Group) Member(rank int) kernel.Member {
	m := kernel.Member{Rank: rank, Ranks: len(g.ranks), Comm: &member{&g.barrier, rank}, Beats: &g.ranks[rank].beats}
	if g.peers != nil {
		m.Comm = g.peers[rank]
	}
	return m
}

// Do calls f on the thread of every rank and waits for all of them. If f fails on every rank, as with wrong arguments,
// it returns the first error and the group can still be used. If f fails on only some ranks, the other ranks stop in
// the middle of a pass: this error and every later error name the rank and wrap kernel.ErrLost. A rank for which the
// others wait, in a collective operation or at the end, is treated as lost when it has been at the same operation for
// the timeout.
func (g *Group) Do(f func(rank int) error) error {
	if g.lost != nil {
		return g.lost
	}
	if around := g.around; around != nil {
		inner := f
		f = func(rank int) error { return around(rank, func() error { return inner(rank) }) }
	}
	clear(g.back)
	for _, r := range g.ranks {
		r.calls <- f
	}
	defer g.timer.Stop()
	failed := g.barrier.failed
	for left := len(g.ranks); left > 0; {
		select {
		case i := <-g.done:
			if left == len(g.ranks) && failed != nil {
				g.ending.begin()
				g.timer.Reset(g.ending.every)
			}
			g.back[i] = true
			left--
		case <-failed:
			// A rank is missing. Ranks that wait for the missing rank return at once.
			failed = nil
			g.timer.Reset(min(g.opts.Timeout, time.Second))
		case <-g.timer.C:
			if failed != nil && !g.ending.stuck(func(i int) bool { return g.back[i] }) {
				g.timer.Reset(g.ending.every)
				continue
			}
			g.lost = g.barrier.late(g.back)
			if i, n := g.own(); n > 0 { // the reason for which the other ranks wait
				g.lost = g.alone(i)
			}
			return g.lost
		}
	}
	return g.outcome()
}

// outcome returns the result of a call on all ranks.
func (g *Group) outcome() error {
	first, own := g.own()
	missed := g.barrier.err()
	g.barrier.reset()
	switch {
	case missed != nil:
		g.lost = missed
	case own == 0:
		return nil
	case own == len(g.ranks):
		return g.ranks[first].err
	default:
		g.lost = g.alone(first)
	}
	return g.lost
}

// own returns how many of the returned ranks failed for a reason of their own, not because they waited for another
// rank, and the first such rank.
func (g *Group) own() (first, n int) {
	for i, r := range g.ranks {
		if g.back[i] && r.err != nil && !errors.Is(r.err, errBarrier) {
			if n++; n == 1 {
				first = i
			}
		}
	}
	return first, n
}

// alone returns the error of a rank that failed while other ranks did not.
func (g *Group) alone(i int) error {
	return fmt.Errorf("%w: %s failed: %w", kernel.ErrLost, g.describe(i), g.ranks[i].err)
}

// describe returns the name of a rank for messages.
func (g *Group) describe(i int) string {
	return fmt.Sprintf("rank %d of %d (%s)", i, len(g.ranks), g.ranks[i].dev.Name())
}

// Name returns the name of the ranks' devices and their number.
func (g *Group) Name() string { return fmt.Sprintf("%d x %s", len(g.ranks), g.ranks[0].dev.Name()) }

// Activation returns the activation type of the ranks.
func (g *Group) Activation() kernel.DType { return g.ranks[0].dev.Activation() }

// Hardware returns the hardware of one rank, from which plans of its part of the model are built.
func (g *Group) Hardware() kernel.Hardware { return g.ranks[0].dev.Hardware() }

// closeWait is the maximum time that Close waits for ranks in the middle of an operation.
const closeWait = 2 * time.Second

// Close ends the threads and closes the devices. The device of a rank that hangs is not closed, and Close returns an
// error.
func (g *Group) Close() error {
	g.once.Do(func() {
		for _, r := range g.ranks {
			close(r.calls)
		}
		deadline := time.Now().Add(closeWait)
		for i, r := range g.ranks {
			select {
			case <-r.ended:
				g.closed = errors.Join(g.closed, r.dev.Close())
			case <-time.After(max(time.Until(deadline), time.Millisecond)):
				g.closed = errors.Join(g.closed, fmt.Errorf("group: %s does not stop; its thread and memory are not "+
					"released",
					g.describe(i)))
			}
		}
	})
	return g.closed
}
