package op

import (
	"encoding/binary"
	"fmt"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// Buffer is device memory.
type Buffer struct {
	ptr    cuda.Ptr // zero if the size is 0
	bytes  int64
	memory *cuda.Buffer // buffer to free; nil for scratch memory
}

// Len returns the size in bytes.
func (b *Buffer) Len() int64 { return b.bytes }

// Alloc returns zeroed memory.
func (d *Device) Alloc(bytes int64) (kernel.Buffer, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("%w: alloc: the size is %d bytes, want 0 or more", kernel.ErrArgument, bytes)
	}
	if bytes == 0 {
		return &Buffer{}, nil
	}
	m, err := d.gpu.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	return &Buffer{m.Ptr(), bytes, m}, d.stream.Fill(m.Ptr(), 0, bytes)
}

// Free releases memory. The next Sync reports an error of the driver.
func (d *Device) Free(b kernel.Buffer) {
	if m := b.(*Buffer); m.memory != nil {
		_ = d.settle() // Sync returns this error again
		m.ptr = 0
		d.freed++
		_ = m.memory.Free() // Free waits for work that uses the memory; Sync returns its error again
	}
}

// Write copies src to the start of dst.
func (d *Device) Write(dst kernel.Tensor, src []byte) error {
	if int64(len(src)) > dst.Extent() {
		return fmt.Errorf("%w: write: %d bytes do not fit %v (%d "+
			"bytes)", kernel.ErrArgument, len(src), dst, dst.Extent())
	}
	if err := d.settle(); err != nil || len(src) == 0 {
		return err
	}
	return d.stream.CopyToDevice(at(dst), src)
}

// Read copies the start of src to dst and waits for everything enqueued before.
func (d *Device) Read(dst []byte, src kernel.Tensor) error {
	if int64(len(dst)) > src.Extent() {
		return fmt.Errorf("%w: read: %d bytes were requested, but %v has "+
			"%d", kernel.ErrArgument, len(dst), src, src.Extent())
	}
	if err := d.settle(); err != nil {
		return err
	}
	if len(dst) > 0 {
		if err := d.stream.CopyToHost(dst, at(src)); err != nil {
			return err
		}
	}
	return d.Sync()
}

// Sync waits for everything enqueued and returns an error for faults that kernels raised.
func (d *Device) Sync() error {
	if err := d.settle(); err != nil {
		return err
	}
	var words [8]byte
	if err := copyFaults(d, words[:]); err != nil {
		return err
	}
	if err := d.stream.Sync(); err != nil {
		return err
	}
	return faulted(d, words[:])
}

// copyFaults enqueues copies of the fault bits, and of the word with the number of a missing rank, to the eight bytes
// of `to`.
func copyFaults(d *Device, to []byte) error {
	if d.peer != nil {
		if err := d.stream.CopyToHost(to[4:8], d.peer.args.State.Add(4*cuda.ReduceFault)); err != nil {
			return err
		}
	}
	return d.stream.CopyToHost(to[:4], d.faults.Ptr())
}

// faulted returns an error if the bytes that copyFaults copied report a fault or a missing rank.
func faulted(d *Device, words []byte) error {
	if d.peer != nil {
		if err := d.peer.missing(binary.LittleEndian.Uint32(words[4:])); err != nil {
			return err
		}
	}
	return faultOf(d, binary.LittleEndian.Uint32(words))
}

// faultOf returns an error for the fault bits that kernels raised, and clears them.
func faultOf(d *Device, bits uint32) error {
	if bits == 0 {
		return nil
	}
	if err := d.stream.Fill(d.faults.Ptr(), 0, 4); err != nil {
		return err
	}
	if bits&cuda.FaultHost != 0 {
		return d.offload.failed()
	}
	what := "a position outside its table"
	switch {
	case bits&cuda.FaultSlot != 0:
		what = "a slot beyond its pool"
	case bits&cuda.FaultKeys != 0:
		what = "a row that attends to keys outside their tensor"
	case bits&cuda.FaultRow != 0:
		what = "a row or token outside its table"
	case bits&cuda.FaultExpert != 0:
		what = "an expert that does not exist"
	}
	return fmt.Errorf("%w: cuda: an operation since the last sync was given %s", kernel.ErrArgument, what)
}

// at returns the device address of a tensor's first element.
func at(t kernel.Tensor) cuda.Ptr {
	b := t.Buf.(*Buffer)
	if b.ptr == 0 {
		return 0
	}
	return b.ptr.Add(t.Off)
}

// temporary allocates scratch memory for one operation. The stream orders its reuse.
func (d *Device) temporary(bytes int64, use func(cuda.Ptr) error) error {
	p, err := d.scratch.Get(max(bytes, 16))
	if err != nil {
		return err
	}
	err = use(p)
	if back := d.scratch.Put(p); err == nil {
		err = back
	}
	return err
}

// mostCounted is the length of Device.count, above the number of rows of any pass.
const mostCounted = 1 << 16

// countUp allocates device memory with the numbers 0, 1, 2, ...
func countUp(d *Device) (err error) {
	if d.count, err = d.gpu.Alloc(4 * mostCounted); err != nil {
		return err
	}
	list := make([]byte, 0, 4*mostCounted)
	for i := range mostCounted {
		list = binary.LittleEndian.AppendUint32(list, uint32(i))
	}
	return d.stream.CopyToDevice(d.count.Ptr(), list)
}

// counting returns device memory that contains the numbers 0, 1, 2, ... up to at least n-1.
func counting(d *Device, n int) (cuda.Ptr, error) {
	if n > mostCounted {
		return 0, fmt.Errorf("%w: cuda: the pass has %d rows, want at most %d", kernel.ErrUnsupported, n, mostCounted)
	}
	return d.count.Ptr(), nil
}
