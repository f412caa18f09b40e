// Package ref is the definition of correct: every operation in plain Go with float64 sums, written to be read.
// Tensors in host memory flow in, results are rounded once to float32. It never takes a fast path and is chosen only by name.
package ref

import (
	"fmt"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/host"
)

// Device is the reference implementation. It keeps no state.
type Device struct{ host.Memory }

// Backends lists the reference implementation for a registry.
func Backends() []kernel.Backend {
	return []kernel.Backend{{
		Name:      "ref",
		Hardware:  "cpu",
		Summary:   "plain Go with float64 sums: the definition of correct, slow",
		Available: func() error { return nil },
		Open:      func(kernel.Options) (kernel.Device, error) { return &Device{}, nil },
	}}
}

// Name is the registered name.
func (*Device) Name() string { return "ref" }

// Activation is float32.
func (*Device) Activation() kernel.DType { return kernel.F32 }

// Close has nothing to release.
func (*Device) Close() error { return nil }

// onlyF32 rejects activations in another type.
func onlyF32(op string, ts ...kernel.Tensor) error {
	for _, t := range ts {
		if t.DType != kernel.F32 {
			return fmt.Errorf("%w: ref %s: activations of type %v, the reference keeps f32", kernel.ErrUnsupported, op, t.DType)
		}
	}
	return nil
}

// at reads element (r, c) of a tensor of any float type.
func at(t kernel.Tensor, r, c int) float64 {
	i := r*t.Stride + c
	switch t.DType {
	case kernel.F32:
		return float64(host.F32(t)[i])
	case kernel.BF16:
		return float64(num.FromBF16(host.U16(t)[i]))
	case kernel.F16:
		return float64(num.FromF16(host.U16(t)[i]))
	case kernel.E4M3:
		return float64(num.FromE4M3(host.Bytes(t)[i]))
	}
	panic(fmt.Sprintf("ref: no float value in %v", t))
}

// weightAt reads element (o, i) of a weight: the stored value times its block's scale, rounded to float32 as a dequantised matrix would be.
func weightAt(w kernel.Weight, o, i int) float64 {
	v := at(w.Data, o, i)
	if w.Scale.Given() {
		v = float64(float32(v * at(w.Scale, o/w.BlockRows, i/w.BlockCols)))
	}
	return v
}

// weightRow widens row o of a weight into dst.
func weightRow(dst []float64, w kernel.Weight, o int) {
	for i := range dst {
		dst[i] = weightAt(w, o, i)
	}
}
