package op

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// Draw fills a tensor with random values.
func (d *Device) Draw(t kernel.Tensor, x kernel.Drawn) error {
	from := t
	from.Off, from.Stride = 0, t.Cols
	return drawTensor(d, d.stream, at(t), stride(t), from, x)
}

// evenly reports whether the GPU can generate the random values of a tensor: it generates pairs of values, so every
// contiguous part must begin at an even index and have an even number of values.
func evenly(t kernel.Tensor) bool {
	if first := t.Off / int64(t.DType.Size()); first%2 != 0 {
		return false
	}
	return t.Cols%2 == 0 && t.Stride%2 == 0 || t.Stride == t.Cols && t.Rows*t.Cols%2 == 0
}

// drawTensor fills memory with the values of a random tensor, or of a part of one.
func drawTensor(d *Device, s *cuda.Stream, to cuda.Ptr, stride int64, t kernel.Tensor, x kernel.Drawn) error {
	a := cuda.DrawArgs{Out: to, Stride: stride, Rows: int64(t.Rows), Columns: int64(t.Cols),
		First: t.Off / int64(t.DType.Size()), FromStride: int64(t.Stride), Seed: x.Seed, Mean: x.Mean, Step: x.Step()}
	if stride == int64(t.Cols) && t.Stride == t.Cols && t.Cols%2 != 0 { // no gaps: fill as one long row
		all := a.Rows * a.Columns
		a.Rows, a.Columns, a.Stride, a.FromStride = 1, all, all, all
	}
	switch t.DType {
	case kernel.F32:
		a.Type = cuda.ElementF32
	case kernel.BF16:
		a.Type = cuda.ElementBF16
	case kernel.E4M3:
		a.Type = cuda.ElementE4M3
	default:
		return fmt.Errorf("%w: draw: values have type %v, this backend draws f32, bf16 and e4m3", kernel.ErrUnsupported,
			t.DType)
	}
	return cuda.DrawValues(d.kernels, s, &a)
}
