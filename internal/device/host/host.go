// Package host is the memory of CPU devices: buffers are byte slices, and tensors in them are converted to slices of
// their element type without copying.
package host

import (
	"fmt"
	"unsafe"

	"sparrow/internal/sysmem"
	"sparrow/kernel"
)

// Memory implements kernel.Memory over the Go heap. All operations of a host device have ended when they return, so
// Sync returns at once. The zero value uses weights in place; [Packed] copies them.
type Memory struct{ pack *packer }

// mostBytes is the maximum size of one buffer: allocating more than the address space panics.
const mostBytes int64 = 1 << 46

// Alloc returns zeroed memory aligned to a cache line of 64 bytes.
func (Memory) Alloc(n int64) (kernel.Buffer, error) {
	if n < 0 || n > mostBytes {
		return nil, fmt.Errorf("%w: alloc: the size is %d bytes, want 0 to %d", kernel.ErrArgument, n, mostBytes)
	}
	return kernel.HostBuffer(aligned(int(n))), nil
}

// Free does nothing: the garbage collector frees memory that nothing refers to.
func (Memory) Free(kernel.Buffer) {}

// Write copies src to the start of dst.
func (Memory) Write(dst kernel.Tensor, src []byte) error {
	b := Bytes(dst)
	if len(src) > len(b) {
		return fmt.Errorf("%w: write: %d bytes do not fit %v (%d bytes)", kernel.ErrArgument, len(src), dst, len(b))
	}
	copy(b, src)
	return nil
}

// Read copies the start of src to dst.
func (Memory) Read(dst []byte, src kernel.Tensor) error {
	b := Bytes(src)
	if len(dst) > len(b) {
		return fmt.Errorf("%w: read: %d bytes were requested, but %v has %d", kernel.ErrArgument, len(dst), src, len(b))
	}
	copy(dst, b)
	return nil
}

// MemoryFree returns the free and the total memory of the machine, or of the control group of the process. Pages of
// files, such as weights that are used in place, count as free.
func (Memory) MemoryFree() (free, total int64, err error) {
	return sysmem.Available(), sysmem.Total(), nil
}

// OneDevice returns an error for ordinals above 0, because all cores of a host are one device.
func OneDevice(o kernel.Options) error {
	if o.Ordinal != 0 {
		return fmt.Errorf("%w: device %d was requested, but the CPU has only device 0, all cores; omit --gpu, "+
			"which selects a GPU", kernel.ErrUnavailable, o.Ordinal)
	}
	return nil
}

// Fetch copies the data before it returns.
func (m Memory) Fetch(dst []byte, src kernel.Tensor) (kernel.Event, error) {
	return kernel.Done{}, m.Read(dst, src)
}

// Sync returns at once, because all operations have finished.
func (Memory) Sync() error { return nil }

// aligned returns memory that is aligned to a cache line. Large buffers are on huge pages and on all memory nodes,
// because every worker reads every buffer.
func aligned(n int) []byte {
	b := lines(n)
	if n >= large {
		interleave(requestHuge(b))
	}
	return b
}

// lines returns memory that is aligned to a cache line, placed by the system.
func lines(n int) []byte {
	const line = 64
	raw := make([]byte, n+line)
	skip := int(-uintptr(unsafe.Pointer(&raw[0])) & (line - 1))
	return raw[skip : skip+n : skip+n]
}

// Bytes returns the tensor's memory from its first element to the end of its last row.
func Bytes(t kernel.Tensor) []byte {
	b := t.Buf.(kernel.HostBuffer)
	return b[t.Off : t.Off+t.Extent()]
}

// F32 returns the tensor's memory as float32, with a row stride of t.Stride.
func F32(t kernel.Tensor) []float32 {
	b := Bytes(t)
	if len(b) == 0 {
		return nil
	}
	// The slice is in bounds: it has len(b)/4 elements of 4 bytes; buffers are aligned for their elements and offsets
	// are multiples of the element size.
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4)
}

// I32 returns the tensor's memory as int32.
func I32(t kernel.Tensor) []int32 {
	b := Bytes(t)
	if len(b) == 0 {
		return nil
	}
	// The slice is in bounds and aligned for the same reason as in F32.
	return unsafe.Slice((*int32)(unsafe.Pointer(&b[0])), len(b)/4)
}

// U16 returns the tensor's memory as 16-bit elements.
func U16(t kernel.Tensor) []uint16 {
	b := Bytes(t)
	if len(b) == 0 {
		return nil
	}
	// The slice is in bounds and aligned for the same reason as in F32.
	return unsafe.Slice((*uint16)(unsafe.Pointer(&b[0])), len(b)/2)
}

// RowF32 returns row r of a float32 tensor.
func RowF32(t kernel.Tensor, r int) []float32 {
	return F32(t.Slice(r, r+1))
}

// RowI32 returns row r of an int32 tensor.
func RowI32(t kernel.Tensor, r int) []int32 {
	return I32(t.Slice(r, r+1))
}
