package op

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// Draw fills a tensor with random values.
func (d *Device) Draw(t kernel.Tensor, x kernel.Drawn) error {
	return d.draw(d.stream, at(t), stride(t), t, x)
}

// draw fills memory with the values of a tensor.
func (d *Device) draw(s *cuda.Stream, to cuda.Ptr, stride int64, t kernel.Tensor, x kernel.Drawn) error {
	a := cuda.DrawArgs{Out: to, Stride: stride, Rows: int64(t.Rows), Columns: int64(t.Cols), Seed: x.Seed, Mean: x.Mean,
		Step: x.Step()}
	if stride == int64(t.Cols) && t.Cols%2 != 0 { // rows without gaps may be taken as one
		a.Rows, a.Columns, a.Stride = 1, a.Rows*a.Columns, a.Rows*a.Columns
	}
	switch t.DType {
	case kernel.F32:
		a.Type = cuda.ElementF32
	case kernel.BF16:
		a.Type = cuda.ElementBF16
	case kernel.E4M3:
		a.Type = cuda.ElementE4M3
	default:
		return fmt.Errorf("%w: draw: values of type %v, this backend draws f32, bf16 and e4m3", kernel.ErrUnsupported,
			t.DType)
	}
	return d.kernels.DrawValues(s, &a)
}
