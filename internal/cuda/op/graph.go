package op

import (
	"errors"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

var (
	_ kernel.Capturer = (*Device)(nil)
	_ kernel.Reserver = (*Device)(nil)
)

// graph is a recorded pass.
type graph struct {
	dev      *Device
	recorded *cuda.Graph
	pass     func() error
	launches int
	bytes    int64
	freed    int // value of Device.freed when the pass was recorded
	posts    int // exchanges with the host's workers in one launch
}

// Minimum and maximum size, in bytes, that is assumed for a launch in a graph. The measured size is limited by them:
// the driver allocates memory for graphs in large pieces, so a single capture may seem to need none, and other programs
// may allocate memory on the GPU at the same time.
const (
	leastNodeBytes = 1 << 10
	mostNodeBytes  = 64 << 10
)

// Capture records the operations that a pass enqueues. The scratch memory cannot grow during the capture: if the pass
// needs more, Capture returns an error, and the pass must first run without a graph.
func (d *Device) Capture(pass func() error) (kernel.Graph, error) {
	if err := d.settle(); err != nil {
		return nil, err
	}
	free, _, err := d.gpu.MemoryFree()
	if err != nil {
		return nil, err
	}
	d.scratch.Fix(true)
	defer d.scratch.Fix(false)
	d.capture, d.offload.captured = true, 0
	defer func() { d.capture = false }()
	first := d.stream.Launches()
	recorded, err := d.stream.Capture(func() error { return errors.Join(pass(), d.settle()) })
	if err != nil {
		return nil, err
	}
	g := &graph{dev: d, recorded: recorded, pass: pass, launches: int(d.stream.Launches() - first), freed: d.freed,
		posts: d.offload.captured}
	left, _, err := d.gpu.MemoryFree()
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	g.bytes = min(max(free-left, leastNodeBytes*int64(g.launches)), mostNodeBytes*int64(g.launches))
	return g, nil
}

// Launch enqueues the graph. During a trace it enqueues the operations of the pass one by one instead.
func (g *graph) Launch() error {
	if g.dev.tracer.trace != nil {
		return errors.Join(g.pass(), g.dev.settle())
	}
	if err := errors.Join(g.dev.settle(), markReplay(g.dev)); err != nil {
		return err
	}
	if err := g.recorded.Launch(g.dev.stream); err != nil {
		return err
	}
	expectPosts(g.dev, g.posts)
	return nil
}

func (g *graph) Launches() int { return g.launches }
func (g *graph) Bytes() int64  { return g.bytes }
func (g *graph) Stale() bool   { return g.freed != g.dev.freed }
func (g *graph) Close() error  { return g.recorded.Close() }

// Reserve grows the scratch memory to the size that a pass needs.
func (d *Device) Reserve(pass func() error) error {
	if err := d.settle(); err != nil {
		return err
	}
	d.stream.SetDry(true)
	d.offload.dry = true
	defer func() {
		d.stream.SetDry(false)
		d.offload.dry = false
	}()
	return errors.Join(pass(), d.settle())
}

// Launches returns the number of kernels, copies and fills enqueued so far; a graph counts as one.
func (d *Device) Launches() int64 { return d.stream.Launches() }
