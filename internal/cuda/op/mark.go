package op

import (
	"sync/atomic"
	"unsafe"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

var _ kernel.Marker = (*Device)(nil)

// marks record the progress of the device, in page-locked host memory that the device writes.
type marks struct {
	memory *cuda.HostBuffer // one u32
	last   kernel.Mark      // enqueued
	off    bool             // while a pass is captured
}

func (m *marks) open(gpu *cuda.Device) (err error) {
	m.memory, err = gpu.AllocHost(4)
	return err
}

// Mark enqueues a write of the stage if it differs from the previous one. A write takes 1.5 us and prevents the next
// kernel from starting early, so operations are not marked, and captured passes have one mark for all of them.
func (d *Device) Mark(m kernel.Mark) error {
	if m == d.marks.last || d.marks.off {
		return nil
	}
	d.marks.last = m
	return d.stream.WriteWord(d.marks.memory, 0, uint32(m))
}

// markReplay records that a captured pass begins.
func (d *Device) markReplay() error {
	d.marks.last = kernel.MarkReplay
	return d.stream.WriteWord(d.marks.memory, 0, uint32(kernel.MarkReplay))
}

// Reached returns the latest mark that the device has written.
func (d *Device) Reached() kernel.Mark {
	// The memory belongs to the driver: four bytes at a multiple of four that stay valid as long as the device.
	return kernel.Mark(atomic.LoadUint32((*uint32)(unsafe.Pointer(unsafe.SliceData(d.marks.memory.Bytes())))))
}
