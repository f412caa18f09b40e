package rounded

import (
	"slices"
	"sync"
	"unsafe"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
)

// widened holds the bf16 tensors of an operation as float32 tensors, with which the host computes.
type widened struct{ list []wide }

type wide struct {
	from   kernel.Tensor // tensor of the caller
	to     kernel.Tensor // float32 tensor in its own memory
	memory *memory
}

// memory holds the values of one tensor, [rows, cols]: bf16 values before the operation, and the float32 values that
// the operation reads and writes.
type memory struct {
	before []uint16
	values []float32
}

// spare keeps memory for later operations, because allocating and clearing new memory took longer than the conversion.
var spare sync.Pool

func newMemory(n int) *memory {
	m, ok := spare.Get().(*memory)
	if !ok {
		m = new(memory)
	}
	m.before, m.values = slices.Grow(m.before[:0], n)[:n], slices.Grow(m.values[:0], n)[:n]
	return m
}

// widen returns a tensor as float32. If an in-place operation passes the same view twice, both become one tensor.
func (w *widened) widen(t kernel.Tensor) kernel.Tensor {
	if t.DType != kernel.BF16 {
		return t
	}
	for i := range w.list {
		if same(w.list[i].from, t) {
			return w.list[i].to
		}
	}
	x := wide{from: t, memory: newMemory(t.Rows * t.Cols)}
	for r := range t.Rows {
		row := host.U16(t.Slice(r, r+1))
		copy(x.memory.before[r*t.Cols:], row)
		values := x.memory.values[r*t.Cols:][:len(row)]
		for c, v := range row {
			values[c] = num.FromBF16(v)
		}
	}
	x.to = kernel.Tensor{Buf: bytesOf(x.memory.values), DType: kernel.F32, Rows: t.Rows, Cols: t.Cols, Stride: t.Cols}
	w.list = append(w.list, x)
	return x.to
}

// same reports whether two tensors are the same view.
func same(a, b kernel.Tensor) bool {
	return a.Off == b.Off && a.Rows == b.Rows && a.Cols == b.Cols && a.Stride == b.Stride &&
		unsafe.SliceData(a.Buf.(kernel.HostBuffer)) == unsafe.SliceData(b.Buf.(kernel.HostBuffer))
}

// bytesOf returns the memory of floats.
func bytesOf(v []float32) kernel.HostBuffer {
	// The slice is in bounds: it is a view of the memory of v, with 4 bytes for each element.
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}

// narrow rounds the changed outputs of the operation. Unchanged values are not written, because tensors of one call may
// overlap.
func (w *widened) narrow() {
	for _, x := range w.list {
		for r := range x.from.Rows {
			out := host.U16(x.from.Slice(r, r+1))
			before, after := x.memory.before[r*x.from.Cols:][:len(out)], x.memory.values[r*x.from.Cols:][:len(out)]
			for c, v := range after {
				if v != num.FromBF16(before[c]) {
					out[c] = num.BF16(v)
				}
			}
		}
	}
}

// release returns the memory for reuse by later operations.
func (w *widened) release() {
	for _, x := range w.list {
		spare.Put(x.memory)
	}
}
