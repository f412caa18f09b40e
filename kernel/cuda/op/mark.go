package op

import (
	"sync/atomic"
	"unsafe"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

var _ kernel.Marker = (*Device)(nil)

// marks are notes of how far the device is, in page-locked host memory that the device writes.
type marks struct {
	memory *cuda.HostBuffer // one u32
	last   kernel.Mark      // enqueued
	mask   kernel.Mark      // marks that are alike in these bits are one
}

func (m *marks) open(gpu *cuda.Device) (err error) {
	m.memory, err = gpu.AllocHost(4)
	m.mask = ^kernel.Mark(0xFF)
	return err
}

// Mark enqueues a write of the mark where its stage or layer is another than before.
func (d *Device) Mark(m kernel.Mark) error {
	if m&d.marks.mask == d.marks.last&d.marks.mask {
		return nil
	}
	d.marks.last = m
	return d.stream.WriteWord(d.marks.memory, 0, uint32(m))
}

// Reached is the latest mark that the device has written.
func (d *Device) Reached() kernel.Mark {
	// The memory is the driver's: four bytes at a multiple of four that live as long as the device.
	return kernel.Mark(atomic.LoadUint32((*uint32)(unsafe.Pointer(unsafe.SliceData(d.marks.memory.Bytes())))))
}
