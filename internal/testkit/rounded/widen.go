package rounded

import (
	"unsafe"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
)

// widened are an operation's tensors of bf16 as float32, which the host computes with.
type widened struct{ list []wide }

type wide struct {
	from   kernel.Tensor // as the caller has it
	to     kernel.Tensor // f32, in memory of its own
	before []float32
}

// widen returns a tensor as float32. If an in-place operation passes the same view twice, both become the same tensor.
func (w *widened) widen(t kernel.Tensor) kernel.Tensor {
	if t.DType != kernel.BF16 {
		return t
	}
	for i := range w.list {
		if same(w.list[i].from, t) {
			return w.list[i].to
		}
	}
	x := wide{from: t, before: make([]float32, t.Rows*t.Cols)}
	memory := make([]float32, len(x.before))
	for r := range t.Rows {
		for c, v := range host.U16(t.Slice(r, r+1)) {
			x.before[r*t.Cols+c] = num.FromBF16(v)
		}
	}
	copy(memory, x.before)
	x.to = kernel.Tensor{Buf: bytesOf(memory), DType: kernel.F32, Rows: t.Rows, Cols: t.Cols, Stride: t.Cols}
	w.list = append(w.list, x)
	return x.to
}

// same reports whether two tensors are the same view.
func same(a, b kernel.Tensor) bool {
	return a.Off == b.Off && a.Rows == b.Rows && a.Cols == b.Cols && a.Stride == b.Stride &&
		unsafe.SliceData(a.Buf.(kernel.HostBuffer)) == unsafe.SliceData(b.Buf.(kernel.HostBuffer))
}

// bytesOf is the memory of floats.
func bytesOf(v []float32) kernel.HostBuffer {
	// A view of v's own memory: 4 bytes for each of its elements.
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}

// narrow rounds the changed outputs of the operation. Unchanged values stay, because tensors of one call may overlap.
func (w *widened) narrow() {
	for _, x := range w.list {
		after := host.F32(x.to)
		for r := range x.from.Rows {
			out := host.U16(x.from.Slice(r, r+1))
			for c := range out {
				if i := r*x.from.Cols + c; after[i] != x.before[i] {
					out[c] = num.BF16(after[i])
				}
			}
		}
	}
}
