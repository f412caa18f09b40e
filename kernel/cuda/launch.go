package cuda

import (
	"fmt"
	"unsafe"
)

// Dim is a three-dimensional size; a component of 0 means 1.
type Dim struct{ X, Y, Z uint32 }

func (d Dim) filled() Dim {
	return Dim{max(d.X, 1), max(d.Y, 1), max(d.Z, 1)}
}

// Launch holds the grid, the blocks and the attributes of a launch.
type Launch struct {
	Grid    Dim
	Block   Dim
	Shared  int // bytes of dynamic shared memory
	Cluster Dim // blocks per cluster; the zero Dim launches without clusters
	// Overlap enables programmatic dependent launch: the kernel may start before the previous kernel of the stream
	// ends, and waits for it in its code.
	Overlap bool
	Coop    bool // cooperative launch: all blocks are resident at the same time, or the launch fails
}

const (
	maxLaunchAttributes = 3
	// maxArgumentBytes is the maximum size of an argument block: every architecture since Volta accepts 4 KiB of kernel
	// parameters.
	maxArgumentBytes = 4096
)

// launchConfig mirrors CUlaunchConfig.
type launchConfig struct {
	grid, block [3]uint32
	shared      uint32
	_           uint32
	stream      uintptr
	attrs       uintptr
	count       uint32
	_           uint32
}

// launchAttribute mirrors CUlaunchAttribute: the attribute's number and a 64-byte union with its value.
type launchAttribute struct {
	id    int32
	_     int32
	value [64]byte
}

// Numbers of launch attributes (CUlaunchAttributeID).
const (
	launchCooperative  = 2
	launchCluster      = 4
	launchProgrammatic = 6
)

// Run launches a kernel that takes one argument struct by value. args is copied before the call returns. T must hold
// no Go pointers and must have the size of the kernel's parameter, which is checked against the image's metadata.
func Run[T any](s *Stream, fn *Function, l Launch, args *T) error {
	size := int(unsafe.Sizeof(*args))
	if size > maxArgumentBytes {
		return argumentError("kernel %s: the argument struct has %d bytes, want at most "+
			"%d", fn.name, size, maxArgumentBytes)
	}
	if fn.paramBytes != 0 && fn.paramBytes != size {
		return argumentError("kernel %s: argument struct %T has %d bytes, but the kernel takes "+
			"%d", fn.name, *args, size,
			fn.paramBytes)
	}
	if see := s.device.watch; see != nil {
		see(fn.name, l, *args)
	}
	f := frames.Get().(*frame)
	defer frames.Put(f)
	// The bytes of *args, which are read before this function returns.
	copy(f.block[:size], unsafe.Slice((*byte)(unsafe.Pointer(args)), size))
	return s.launch(f, fn, l)
}

// launch fills the frame's configuration and calls the driver. The argument block is already in place.
func (s *Stream) launch(f *frame, fn *Function, l Launch) error {
	if s.trace != nil {
		if err := s.trace.begin(); err != nil {
			return err
		}
		l.Overlap = false
	}
	if l.Shared > smallDynamicBytes && l.Shared > fn.dynamic {
		return argumentError("kernel %s: the launch has %d bytes of dynamic shared memory, but allowShared allowed "+
			"%d", fn.name,
			l.Shared, fn.dynamic)
	}
	grid, block := l.Grid.filled(), l.Block.filled()
	if t := int(block.X) * int(block.Y) * int(block.Z); t > fn.attrs.MaxThreads {
		return argumentError("kernel %s: the block has %d threads, want at most %d", fn.name, t, fn.attrs.MaxThreads)
	}
	n := 0
	attribute := func(id int32) []byte {
		a := &f.attrs[n]
		n++
		*a = launchAttribute{id: id}
		return a.value[:]
	}
	if l.Cluster != (Dim{}) {
		c := l.Cluster.filled()
		v := attribute(launchCluster)
		for i, x := range [3]uint32{c.X, c.Y, c.Z} {
			*(*uint32)(unsafe.Pointer(&v[4*i])) = x // bytes 0 to 11 of the 64-byte union
		}
	}
	if l.Overlap {
		attribute(launchProgrammatic)[0] = 1
	}
	if l.Coop {
		attribute(launchCooperative)[0] = 1
	}
	f.config = launchConfig{
		grid: [3]uint32{grid.X, grid.Y, grid.Z}, block: [3]uint32{block.X, block.Y, block.Z},
		shared: uint32(l.Shared), stream: s.handle, count: uint32(n),
	}
	if n > 0 {
		f.config.attrs = uintptr(unsafe.Pointer(&f.attrs[0]))
	}
	f.params[0] = uintptr(unsafe.Pointer(&f.block[0]))
	if !s.enqueue() {
		return nil
	}
	err := s.device.do(f, cuLaunchKernelEx, uintptr(unsafe.Pointer(&f.config)), fn.handle,
		uintptr(unsafe.Pointer(&f.params[0])), 0)
	if err != nil {
		return fmt.Errorf("cuda: launch %s grid %v block %v shared %d: %w", fn.name, grid, block, l.Shared, err)
	}
	if s.trace != nil {
		return s.trace.end(fn.name)
	}
	return nil
}
