package kernel

import "unsafe"

// Memory is a device's memory. Writes and reads are ordered with the operations enqueued before them.
type Memory interface {
	// Alloc returns zeroed memory.
	Alloc(bytes int64) (Buffer, error)
	Free(Buffer)
	// Write copies src to the start of dst, which must be contiguous.
	Write(dst Tensor, src []byte) error
	// Read copies the contiguous tensor src to dst and waits for it.
	Read(dst []byte, src Tensor) error
	// Fetch enqueues a copy of the contiguous tensor src to dst, after the operations enqueued so far. dst holds it
	// once the event's Wait has returned.
	Fetch(dst []byte, src Tensor) (Event, error)
	// Sync waits for every operation enqueued so far and returns the first error among them.
	Sync() error
}

// Machine is the interface of a device, or of several that run a model together, to callers that start passes: memory,
// and copying rows in it. One goroutine uses it at a time.
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

// Device is memory and the weights prepared for it, and runs operations over both. One goroutine uses a device at a
// time.
type Device interface {
	Machine
	Preparer
	// Do runs an operation whose arguments were checked.
	Do(Op) error
	// Operations that are also used outside the lists of passes.
	RowPutter
	Accepter
}

// Hardware holds the facts of a device that plans depend on. 0 means unknown, or that plans do not depend on it.
type Hardware struct {
	Arch            string // the planner's name: "cpu", "sm90"
	Portable        bool   // kernels of a GPU are those for any, which some operations lack
	Model           string // as its maker calls it; plans do not depend on it
	Multiprocessors int
	MemoryBytes     int64 // of the device's own memory
	BusRate         int64 // limit of the bytes a second between it and the host
	NoTiles         bool  // a CPU whose attention does not run on a matrix unit
}

// MemoryMeter is a device that reports its memory.
type MemoryMeter interface {
	// MemoryFree returns the free memory and the size of all memory, in bytes; 0 where the system does not report it.
	MemoryFree() (free, total int64, err error)
}

// MemoryFree returns the memory of a device, 0 and 0 where it reports none.
func MemoryFree(d Machine) (free, total int64, err error) {
	if m, ok := d.(MemoryMeter); ok {
		return m.MemoryFree()
	}
	return 0, 0, nil
}

// MemoryUse is the memory that a device uses itself, in bytes, in addition to the buffers of its callers.
type MemoryUse struct {
	Weights int64 // as the device stores them
	Scratch int64 // of operations
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
// together does not, because a pass cannot take its tokens from the previous pass on all of them.
func IsAsynchronous(d Machine) bool {
	a, ok := d.(Asynchronous)
	return ok && a.Asynchronous()
}

// DryRunner is a device for which loading and passes can be tried without allocating memory.
type DryRunner interface {
	// DryRun returns a device like this one that computes nothing: its memory has addresses and no contents, prepared
	// weights are never read, and allocations beyond the free memory succeed. What a model would take can be read from
	// it, a [MemoryOwner], before anything is uploaded.
	DryRun() (Device, error)
}

// Event is a point in the device's queue that can be waited for.
type Event interface {
	// Wait returns when the work and everything before it is done, with the first error among them.
	Wait() error
}

// Done is an event of finished work.
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

// WriteI32 copies src to the start of dst.
func WriteI32(m Memory, dst Tensor, src []int32) error {
	if len(src) == 0 {
		return nil
	}
	// A view of src's own memory: 4 bytes for each of its elements.
	return m.Write(dst, unsafe.Slice((*byte)(unsafe.Pointer(&src[0])), 4*len(src)))
}

// WriteF32 copies src to the start of dst.
func WriteF32(m Memory, dst Tensor, src []float32) error {
	if len(src) == 0 {
		return nil
	}
	// A view of src's own memory: 4 bytes for each of its elements.
	return m.Write(dst, unsafe.Slice((*byte)(unsafe.Pointer(&src[0])), 4*len(src)))
}

// FetchF32 enqueues a copy of a contiguous tensor of 4-byte elements to dst. Without elements the event marks the end
// of everything enqueued before.
func FetchF32(m Memory, dst []float32, src Tensor) (Event, error) {
	if len(dst) == 0 {
		return m.Fetch(nil, src)
	}
	// A view of dst's own memory: 4 bytes for each of its elements.
	return m.Fetch(unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), 4*len(dst)), src)
}

// ReadI32 copies a contiguous i32 tensor to dst.
func ReadI32(m Memory, dst []int32, src Tensor) error {
	if len(dst) == 0 {
		return nil
	}
	// A view of dst's own memory: 4 bytes for each of its elements.
	return m.Read(unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), 4*len(dst)), src)
}

// ReadF32 copies a contiguous f32 tensor to dst.
func ReadF32(m Memory, dst []float32, src Tensor) error {
	if len(dst) == 0 {
		return nil
	}
	// A view of dst's own memory: 4 bytes for each of its elements.
	return m.Read(unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), 4*len(dst)), src)
}
