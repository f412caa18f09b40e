package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"
)

// Graph is a captured sequence of launches, ready to run with one call. It belongs to one goroutine.
type Graph struct {
	device *Device
	graph  uintptr
	exec   uintptr
	nodes  []uintptr // kernel nodes, in the order in which they were captured
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
	if err := g.instantiate(f); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// instantiate makes the graph executable and lists its kernel nodes.
func (g *Graph) instantiate(f *frame) error {
	f.out[0] = 0
	if err := g.device.do(f, cuGraphInstantiateWithFlags, f.slot(0), g.graph, 0); err != nil {
		return fmt.Errorf("cuda: instantiate graph: %w", err)
	}
	g.exec = uintptr(f.out[0])
	f.out[0] = 0
	if err := g.device.do(f, cuGraphGetNodes, g.graph, 0, f.slot(0)); err != nil {
		return fmt.Errorf("cuda: count graph nodes: %w", err)
	}
	n := f.out[0]
	if n == 0 {
		return nil
	}
	all := make([]uintptr, n)
	var pin runtime.Pinner
	pin.Pin(&all[0])
	defer pin.Unpin()
	if err := g.device.do(f, cuGraphGetNodes, g.graph, uintptr(unsafe.Pointer(&all[0])), f.slot(0)); err != nil {
		return fmt.Errorf("cuda: list graph nodes: %w", err)
	}
	const kernelKind = 0
	for _, node := range all {
		f.out[0] = 0
		if err := g.device.do(f, cuGraphNodeGetType, node, f.slot(0)); err != nil {
			return fmt.Errorf("cuda: graph node type: %w", err)
		}
		if uint32(f.out[0]) == kernelKind {
			g.nodes = append(g.nodes, node)
		}
	}
	return nil
}

// Kernels returns the number of kernel launches in the graph.
func (g *Graph) Kernels() int { return len(g.nodes) }

// Launch enqueues the whole graph on a stream.
func (g *Graph) Launch(s *Stream) error {
	if g.exec == 0 {
		return ErrClosed
	}
	if !s.enqueue() {
		return nil
	}
	if err := g.device.plain(cuGraphLaunch, g.exec, s.handle); err != nil {
		return fmt.Errorf("cuda: launch graph of %d kernels: %w", len(g.nodes), err)
	}
	return nil
}

// kernelNode mirrors CUDA_KERNEL_NODE_PARAMS_v2.
type kernelNode struct {
	function    uintptr
	grid, block [3]uint32
	shared      uint32
	_           uint32
	params      uintptr
	extra       uintptr
	kernel      uintptr
	context     uintptr
}

// Update replaces the arguments of the i-th kernel launch of the graph, for all later launches of the graph. The
// kernel, its grid and its attributes stay as captured.
func Update[T any](g *Graph, i int, args *T) error {
	if i < 0 || i >= len(g.nodes) {
		return argumentError("the graph update names kernel %d, but the graph has %d", i, len(g.nodes))
	}
	size := int(unsafe.Sizeof(*args))
	if size > maxArgumentBytes {
		return argumentError("the graph update has %d bytes of arguments, want at most %d", size, maxArgumentBytes)
	}
	f := frames.Get().(*frame)
	defer frames.Put(f)
	f.node = kernelNode{}
	node := uintptr(unsafe.Pointer(&f.node))
	if err := g.device.do(f, cuGraphKernelNodeGetParams, g.nodes[i], node); err != nil {
		return fmt.Errorf("cuda: read graph kernel %d: %w", i, err)
	}
	// The bytes of *args, which are read before this function returns.
	copy(f.block[:size], unsafe.Slice((*byte)(unsafe.Pointer(args)), size))
	f.params[0] = uintptr(unsafe.Pointer(&f.block[0]))
	f.node.params, f.node.extra = uintptr(unsafe.Pointer(&f.params[0])), 0
	if err := g.device.do(f, cuGraphExecKernelNodeSetParams, g.exec, g.nodes[i], node); err != nil {
		return fmt.Errorf("cuda: update graph kernel %d: %w", i, err)
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
	g.nodes = nil
	return errors.Join(errs...)
}
