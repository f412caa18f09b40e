package cuda

import (
	"errors"
	"fmt"
)

// Graph is a captured sequence of launches, ready to run with one call. It belongs to one goroutine.
type Graph struct {
	device *Device
	graph  uintptr
	exec   uintptr
}

// Capture records the work that body enqueues on the stream, without running it, and returns a graph of it. body must
// not allocate, load modules, change function attributes or wait. An error of body ends the capture and is returned.
func (s *Stream) Capture(body func() error) (*Graph, error) {
	const relaxed = 2
	// Relaxed mode, because Go moves goroutines between threads, and the stricter modes do not allow calls from other
	// threads.
	if err := s.device.plain(cuStreamBeginCapture, s.handle, relaxed); err != nil {
		return nil, fmt.Errorf("cuda: begin capture: %w", err)
	}
	bodyErr := body()
	f := frames.Get().(*frame)
	defer frames.Put(f)
	f.out[0] = 0
	err := s.device.do(f, cuStreamEndCapture, s.handle, f.slot(0))
	g := &Graph{device: s.device, graph: uintptr(f.out[0])}
	if bodyErr != nil || err != nil {
		return nil, fmt.Errorf("cuda: capture: %w", errors.Join(bodyErr, err, g.Close()))
	}
	f.out[0] = 0
	if err := g.device.do(f, cuGraphInstantiateWithFlags, f.slot(0), g.graph, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("cuda: instantiate graph: %w", err), g.Close())
	}
	g.exec = uintptr(f.out[0])
	return g, nil
}

// Launch enqueues the whole graph on a stream.
func (g *Graph) Launch(s *Stream) error {
	if g.exec == 0 {
		return ErrClosed
	}
	if !s.enqueue() {
		return nil
	}
	if err := g.device.plain(cuGraphLaunch, g.exec, s.handle); err != nil {
		return fmt.Errorf("cuda: launch graph: %w", err)
	}
	return nil
}

// Close destroys the graph. A second call does nothing.
func (g *Graph) Close() error {
	var errs []error
	if g.exec != 0 {
		errs = append(errs, g.device.plain(cuGraphExecDestroy, g.exec))
		g.exec = 0
	}
	if g.graph != 0 {
		errs = append(errs, g.device.plain(cuGraphDestroy, g.graph))
		g.graph = 0
	}
	return errors.Join(errs...)
}
