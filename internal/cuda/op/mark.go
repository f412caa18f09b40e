package op

import (
	"sync/atomic"
	"unsafe"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

var _ kernel.Marker = (*Device)(nil)

// marks records the progress of the device in page-locked host memory that the device writes.
type marks struct {
	memory *cuda.HostBuffer // one u32
	last   kernel.Mark      // latest mark that was enqueued
}

func (m *marks) open(gpu *cuda.Device) (err error) {
	m.memory, err = gpu.AllocHost(4)
	return err
}

// Mark enqueues a write of the stage if it differs from the previous stage. A write takes 1.5 us and prevents the next
// kernel from starting early, so only stages are marked, and a captured pass has a single mark.
func (d *Device) Mark(m kernel.Mark) error {
	if m == d.marks.last || d.capture {
		return nil
	}
	d.marks.last = m
	return d.stream.WriteWord(d.marks.memory, 0, uint32(m))
}

// markReplay records that a captured pass begins.
func markReplay(d *Device) error {
	d.marks.last = kernel.MarkReplay
	return d.stream.WriteWord(d.marks.memory, 0, uint32(kernel.MarkReplay))
}

// Reached returns the latest mark that the device has written.
func (d *Device) Reached() kernel.Mark {
	// In bounds: the memory has at least four bytes, is aligned to four, and is valid as long as the device.
	return kernel.Mark(atomic.LoadUint32((*uint32)(unsafe.Pointer(unsafe.SliceData(d.marks.memory.Bytes())))))
}
