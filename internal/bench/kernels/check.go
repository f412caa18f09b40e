package kernels

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"sparrow/internal/device/host"
	"sparrow/kernel"
)

// poison returns a function that fills float32 tensors with NaN and other tensors with bytes that no result has.
func poison(ts ...kernel.Tensor) func() {
	return func() {
		for _, t := range ts {
			for r := range t.Rows {
				row := t.Slice(r, r+1)
				if t.DType == kernel.F32 {
					v := host.F32(row)
					for i := range v {
						v[i] = float32(math.NaN())
					}
					continue
				}
				b := host.Bytes(row)
				for i := range b {
					b[i] = 0xAB
				}
			}
		}
	}
}

// zero returns a function that clears a float32 tensor, for operations that add to their output.
func zero(t kernel.Tensor) func() { return func() { clear(host.F32(t)) } }

// reads sets the bytes that one run reads to the size of tensor t, and returns the operation.
func (o *Op) reads(t kernel.Tensor) *Op {
	o.Bytes, o.Memory = float64(t.Extent()), host.Bytes(t)
	return o
}

// equal checks that two tensors have equal values, without tolerance.
func equal(got, want kernel.Tensor) error { return near(got, want, 0) }

// within returns a check that values differ by at most tol times the largest expected value.
func within(tol float64) func(got, want kernel.Tensor) error {
	return func(got, want kernel.Tensor) error { return near(got, want, tol) }
}

// sampled returns a check of some rows of an output. The reference computes each row separately: alone(ref, row, out)
// writes the row to out.
func sampled(out kernel.Tensor, tol float64,
	alone func(d kernel.Device, r int, out kernel.Tensor) error) func(kernel.Device) error {
	return func(ref kernel.Device) error {
		for _, r := range slices.Compact([]int{0, out.Rows / 2, out.Rows - 1}) {
			want, err := kernel.New(ref, out.DType, 1, out.Cols)
			if err != nil {
				return err
			}
			if err := alone(ref, r, want); err != nil {
				return err
			}
			if err := near(out.Slice(r, r+1), want, tol); err != nil {
				return fmt.Errorf("row %d: %w", r, err)
			}
		}
		return nil
	}
}

// near compares tensors: floats may differ by tol times the largest expected value, other types must have equal bytes.
func near(got, want kernel.Tensor, tol float64) error {
	if got.DType != kernel.F32 {
		if g, w := host.Bytes(got), host.Bytes(want); !bytes.Equal(g, w) {
			i := 0
			for g[i] == w[i] {
				i++
			}
			return fmt.Errorf("byte %d is %#02x, the reference gives %#02x", i, g[i], w[i])
		}
		return nil
	}
	g, w := host.F32(got), host.F32(want)
	size := 1e-30
	for _, v := range w {
		size = max(size, math.Abs(float64(v)))
	}
	for i := range w {
		if d := math.Abs(float64(g[i]) - float64(w[i])); !(d <= tol*size) {
			return fmt.Errorf("column %d is %v, the reference gives %v", i, g[i], w[i])
		}
	}
	return nil
}
