package kernel

import "unsafe"

// Memory is a device's memory. Writes and reads are ordered with the operations enqueued before them.
type Memory interface {
	// Alloc returns zeroed memory.
	Alloc(bytes int64) (Buffer, error)
	Free(Buffer)
	// Write copies src to the start of the contiguous tensor dst.
	Write(dst Tensor, src []byte) error
	// Read copies the contiguous tensor src to dst and waits for it.
	Read(dst []byte, src Tensor) error
	// Fetch enqueues a copy of the contiguous tensor src to dst, after the operations enqueued so far. dst is complete
	// once the event's Wait has returned.
	Fetch(dst []byte, src Tensor) (Event, error)
	// Sync waits for every operation enqueued so far and returns the first error of these operations.
	Sync() error
}

// Machine is a device, or several devices that run a model together, as callers need it to start passes: memory, and
// copies of rows inside this memory. One goroutine uses it at a time.
type Machine interface {
	Memory
	Copier
	RowTaker
	// Name returns the registered name of the implementation.
	Name() string
	// Activation returns the element type in which this device keeps activations.
	Activation() DType
	// Hardware returns the description of the device that plans are built from.
	Hardware() Hardware
	Close() error
}

// Device holds memory and the weights prepared for it, and runs operations on both. One goroutine uses a device at a
// time.
type Device interface {
	Machine
	Preparer
	// Do runs an operation whose arguments were checked.
	Do(Op) error
	// Operations that callers also run directly, outside a list of operations.
	RowPutter
	Accepter
}

// Hardware holds the properties of a device that plans depend on. 0 means unknown, or that plans do not depend on the
// property.
type Hardware struct {
	Arch            string // name of the hardware in plans: "cpu", "sm90"
	Portable        bool   // a GPU runs only the kernels that work on any GPU; some operations have no such kernel
	Model           string // product name given by the manufacturer; plans do not depend on it
	Multiprocessors int
	MemoryBytes     int64 // size of the device's own memory in bytes
	BusRate         int64 // maximum bytes per second between device and host memory
	NoTiles         bool  // a CPU whose attention does not use a matrix unit
}

// MemoryMeter is a device that reports its memory.
type MemoryMeter interface {
	// MemoryFree returns the free memory and the size of all memory, in bytes; 0 if the system does not report it.
	MemoryFree() (free, total int64, err error)
}

// MemoryFree returns the free and the total memory of a device in bytes; 0 and 0 if the device does not report them.
func MemoryFree(d Machine) (free, total int64, err error) {
	if m, ok := d.(MemoryMeter); ok {
		return m.MemoryFree()
	}
	return 0, 0, nil
}

// MemoryUse is the memory that a device uses itself, in bytes, in addition to the buffers of its callers.
type MemoryUse struct {
	Weights int64 // bytes of weights in the form in which the device stores them
	Scratch int64 // bytes of scratch memory of operations
}

// MemoryOwner is a device that reports its own memory.
type MemoryOwner interface{ MemoryUse() MemoryUse }

// Asynchronous is a device that computes while the host continues: operations return when they are enqueued, and the
// host waits only in Sync, Read and the Wait of events.
type Asynchronous interface {
	// Asynchronous reports whether the device computes while the host continues.
	Asynchronous() bool
}

// IsAsynchronous reports whether a device computes while the host continues. A group of devices that run a model
// together does not, because its passes cannot read the sampled tokens of the previous pass from the memory of every
// device.
func IsAsynchronous(d Machine) bool {
	a, ok := d.(Asynchronous)
	return ok && a.Asynchronous()
}

// DryRunner is a device that can measure the memory of a model without allocating it.
type DryRunner interface {
	// DryRun returns a device of the same kind that computes nothing. Its memory has addresses and no contents,
	// prepared weights are never read, and allocations beyond the free memory succeed. After a model was loaded on it,
	// its MemoryUse ([MemoryOwner]) is the memory that the model would need.
	DryRun() (Device, error)
}

// Event is a point in the device's queue that can be waited for.
type Event interface {
	// Wait returns when all work enqueued up to the event is done. It returns the first error of this work.
	Wait() error
}

// Done is an event for work that has already ended.
type Done struct{}

// Wait returns at once.
func (Done) Wait() error { return nil }

// New allocates a contiguous tensor.
func New(m Memory, d DType, rows, cols int) (Tensor, error) {
	b, err := m.Alloc(int64(rows) * int64(cols) * int64(d.Size()))
	if err != nil {
		return Tensor{}, err
	}
	return Tensor{Buf: b, DType: d, Rows: rows, Cols: cols, Stride: cols}, nil
}

// WriteI32 copies src to the start of dst, which is an i32 tensor.
func WriteI32(m Memory, dst Tensor, src []int32) error {
	if len(src) == 0 {
		return nil
	}
	// The bytes of src: 4 for each element.
	return m.Write(dst, unsafe.Slice((*byte)(unsafe.Pointer(&src[0])), 4*len(src)))
}

// WriteF32 copies src to the start of dst, which is an f32 tensor.
func WriteF32(m Memory, dst Tensor, src []float32) error {
	if len(src) == 0 {
		return nil
	}
	// The bytes of src: 4 for each element.
	return m.Write(dst, unsafe.Slice((*byte)(unsafe.Pointer(&src[0])), 4*len(src)))
}

// FetchF32 enqueues a copy of a contiguous tensor of 4-byte elements to dst. If dst is empty, nothing is copied, and
// the event waits for everything enqueued before.
func FetchF32(m Memory, dst []float32, src Tensor) (Event, error) {
	if len(dst) == 0 {
		return m.Fetch(nil, src)
	}
	// The bytes of dst: 4 for each element.
	return m.Fetch(unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), 4*len(dst)), src)
}

// ReadI32 copies a contiguous i32 tensor to dst.
func ReadI32(m Memory, dst []int32, src Tensor) error {
	if len(dst) == 0 {
		return nil
	}
	// The bytes of dst: 4 for each element.
	return m.Read(unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), 4*len(dst)), src)
}

// ReadF32 copies a contiguous f32 tensor to dst.
func ReadF32(m Memory, dst []float32, src Tensor) error {
	if len(dst) == 0 {
		return nil
	}
	// The bytes of dst: 4 for each element.
	return m.Read(unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), 4*len(dst)), src)
}
