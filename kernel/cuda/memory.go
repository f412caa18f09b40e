package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"sparrow/kernel"
)

// Ptr is an address in device memory. Zero means no memory.
type Ptr uint64

// Add returns the address plus n bytes.
func (p Ptr) Add(n int64) Ptr { return p + Ptr(n) }

// aligned reports whether the address is a multiple of n, a power of two.
func (p Ptr) aligned(n int) bool { return uint64(p)&uint64(n-1) == 0 }

// Buffer is one allocation of device memory.
type Buffer struct {
	device *Device
	ptr    Ptr
	bytes  int64
}

// Alloc allocates device memory; its contents are undefined. The address is a multiple of 256.
func (d *Device) Alloc(bytes int64) (*Buffer, error) {
	if bytes <= 0 {
		return nil, argumentError("alloc: the size is %d bytes, want 1 or more", bytes)
	}
	f := frames.Get().(*frame)
	defer frames.Put(f)
	if used, most := d.limits.used.Add(bytes), d.limits.memory; most > 0 && used > most {
		d.limits.used.Add(-bytes)
		return nil, fmt.Errorf("cuda: alloc %d bytes: %w: %d bytes are used, and the limit is %d", bytes,
			kernel.ErrMemory, used-bytes, most)
	}
	if err := d.do(f, cuMemAlloc, f.slot(0), uintptr(bytes)); err != nil {
		d.limits.used.Add(-bytes)
		return nil, fmt.Errorf("cuda: alloc %d bytes: %w", bytes, err)
	}
	return &Buffer{device: d, ptr: Ptr(f.out[0]), bytes: bytes}, nil
}

// Ptr returns the address of the first byte; zero after Free.
func (b *Buffer) Ptr() Ptr { return b.ptr }

// Len returns the size in bytes.
func (b *Buffer) Len() int64 { return b.bytes }

// Free releases the memory. It waits for work that uses it. A second call does nothing.
func (b *Buffer) Free() error {
	if b == nil || b.ptr == 0 {
		return nil
	}
	p := b.ptr
	b.ptr = 0
	b.device.limits.used.Add(-b.bytes)
	return b.device.plain(cuMemFree, uintptr(p))
}

// HostBuffer is page-locked host memory: copies from and to it are asynchronous and run at full speed, and captured
// graphs may use it.
type HostBuffer struct {
	device  *Device
	address uintptr
	bytes   []byte
}

// AllocHost allocates page-locked host memory, outside the Go heap.
func (d *Device) AllocHost(bytes int64) (*HostBuffer, error) {
	if bytes <= 0 {
		return nil, argumentError("host alloc: the size is %d bytes, want 1 or more", bytes)
	}
	f := frames.Get().(*frame)
	defer frames.Put(f)
	const portable, mapped = 1, 2 // portable: for every context; mapped: the device uses the same address
	if err := d.do(f, cuMemHostAlloc, f.slot(0), uintptr(bytes), portable|mapped); err != nil {
		return nil, fmt.Errorf("cuda: host alloc %d bytes: %w", bytes, err)
	}
	h := &HostBuffer{device: d, address: uintptr(f.out[0])}
	// The driver allocated exactly this number of bytes outside the Go heap, and they stay valid until Free.
	p := *(**byte)(unsafe.Pointer(&h.address))
	h.bytes = unsafe.Slice(p, bytes)
	return h, nil
}

// Ptr returns the address at which the device reads and writes the memory.
func (h *HostBuffer) Ptr() Ptr { return Ptr(h.address) }

// Bytes returns the memory. It must not be used after Free.
func (h *HostBuffer) Bytes() []byte { return h.bytes }

// Free releases the memory. A second call does nothing.
func (h *HostBuffer) Free() error {
	if h == nil || h.address == 0 {
		return nil
	}
	a := h.address
	h.address, h.bytes = 0, nil
	return h.device.plain(cuMemFreeHost, a)
}

// CopyToDevice enqueues a copy of src to dst. If src is page-locked, the copy is asynchronous and src must not change
// until it has run. Otherwise the driver has read all of src when the call returns.
func (s *Stream) CopyToDevice(dst Ptr, src []byte) error {
	if len(src) == 0 || !s.enqueue() {
		return nil
	}
	if err := s.trace.release(); err != nil {
		return err
	}
	var pin runtime.Pinner // src may be on the caller's stack, which moves
	pin.Pin(&src[0])
	defer pin.Unpin()
	return s.overBus(toDevice, int64(len(src)), nil, func() error {
		return s.device.plain(cuMemcpyHtoDAsync, uintptr(dst), uintptr(unsafe.Pointer(&src[0])), uintptr(len(src)),
			s.handle)
	})
}

// CopyFromLocked enqueues a copy of page-locked host memory, whose address is that of HostBuffer.Ptr.
func (s *Stream) CopyFromLocked(dst, src Ptr, bytes int64) error {
	if bytes == 0 || !s.enqueue() {
		return nil
	}
	return s.overBus(toDevice, bytes, nil, func() error {
		return s.device.plain(cuMemcpyHtoDAsync, uintptr(dst), uintptr(src), uintptr(bytes), s.handle)
	})
}

// CopyToHost enqueues a copy of device memory to dst. If dst is page-locked, the copy is asynchronous; otherwise it has
// ended when the call returns.
func (s *Stream) CopyToHost(dst []byte, src Ptr) error {
	if len(dst) == 0 || !s.enqueue() {
		return nil
	}
	if err := s.trace.release(); err != nil {
		return err
	}
	var pin runtime.Pinner // dst may be on the caller's stack, which moves
	pin.Pin(&dst[0])
	defer pin.Unpin()
	return s.overBus(toHost, int64(len(dst)), nil, func() error {
		return s.device.plain(cuMemcpyDtoHAsync, uintptr(unsafe.Pointer(&dst[0])), uintptr(src), uintptr(len(dst)),
			s.handle)
	})
}

// CopyOnDevice enqueues a copy inside device memory. The ranges must not overlap.
func (s *Stream) CopyOnDevice(dst, src Ptr, bytes int64) error {
	if bytes == 0 || !s.enqueue() {
		return nil
	}
	return s.device.plain(cuMemcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(bytes), s.handle)
}

// Fill enqueues setting the given number of bytes to value.
func (s *Stream) Fill(dst Ptr, value byte, bytes int64) error {
	if bytes == 0 || !s.enqueue() {
		return nil
	}
	return s.device.plain(cuMemsetD8Async, uintptr(dst), uintptr(value), uintptr(bytes), s.handle)
}

// FillWords enqueues setting the given number of 32-bit words to value. dst must be a multiple of 4.
func (s *Stream) FillWords(dst Ptr, value uint32, words int64) error {
	if words == 0 || !s.enqueue() {
		return nil
	}
	return s.device.plain(cuMemsetD32Async, uintptr(dst), uintptr(value), uintptr(words), s.handle)
}
