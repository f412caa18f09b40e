// Package ref defines the correct result of every operation, in simple Go code with float64 sums. Inputs and results
// are tensors in host memory; results are rounded once to float32. It has no optimisations and is used only if the user
// names it.
package ref

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
)

// Device is the reference implementation. It keeps no state.
type Device struct {
	host.Memory
	// Rounded rounds values in matrix products as a GPU does (round.go). If activations are also rounded to bf16
	// between operations, the results equal those of a GPU except for the order of its sums.
	Rounded bool
	// Moved changes every sum of a matrix product by about the rounding error of another order of terms (round.go), to
	// measure how much results depend on rounding.
	Moved bool
}

// Backends lists the reference implementation for a registry.
func Backends() []kernel.Backend {
	return []kernel.Backend{{
		Name:      "ref",
		Hardware:  "cpu",
		Summary:   "plain Go with float64 sums: the definition of correct, slow",
		Available: func() error { return nil },
		Open: func(o kernel.Options) (kernel.Device, error) {
			if err := host.OneDevice(o); err != nil {
				return nil, err
			}
			return &Device{Memory: host.MemoryFor(o)}, nil
		},
	}}
}

// Name returns the registered name.
func (*Device) Name() string { return "ref" }

// Do runs an operation whose arguments were checked.
func (d *Device) Do(op kernel.Op) error { return operations.Do(d, op) }

// Operations returns the types of the operations that the reference defines, in any order.
func Operations() []reflect.Type { return slices.Collect(maps.Keys(operations)) }

// operations has the definition of every operation.
var operations = kernel.NewOpTable(
	of(host.Accept), of(host.Combine), of(host.Put), of(host.Spread), of(host.Take), of(host.Tally),
	of(addEngram), of(angles), of(blockMax), of(candidates), of(compress), of(convertPages), of(convolve),
	of(delta), of(dualAttend), of(embed), of(flatAttend), of(gateRows), of(gatedNorm), of(gatherIndex),
	of(gatherRows), of(headNorm), of(hyperHead), of(hyperPost), of(hyperPre), of(hyperSum), of(indexQuery),
	of(layerNormRows), of(locate), of(meanStreams), of(norm), of(readTable), of(rotateRows), of(route),
	of(routeHash), of(routeRoot), of(sample), of(scores), of(selectBest), of(storeIndex), of(unpack),
	kernel.Runs(absorb), kernel.Runs(denseAttend), kernel.Runs(expand), kernel.Runs(experts),
	kernel.Runs(latentAttend), kernel.Runs(multiply), kernel.Runs(project), kernel.Runs(sparseAttend),
	kernel.Runs(storeEntries), kernel.Runs(storeKeys), kernel.Runs(storeRows),
	kernel.Runs(func(d *Device, a kernel.CopyArgs) error { return d.Copy(a) }),
)

// of makes an entry of an operation that does not depend on the fields of the device.
func of[A kernel.Op](run func(A) error) kernel.Entry[*Device] {
	return kernel.Runs(func(_ *Device, a A) error { return run(a) })
}

// Activation is float32.
func (*Device) Activation() kernel.DType { return kernel.F32 }

// Hardware returns the description of a CPU.
func (*Device) Hardware() kernel.Hardware { return kernel.Hardware{Arch: "cpu"} }

// Close does nothing, because the device owns no resources.
func (*Device) Close() error { return nil }

// onlyF32 returns an error if a tensor is not f32.
func onlyF32(op string, ts ...kernel.Tensor) error {
	for _, t := range ts {
		if t.DType != kernel.F32 {
			return fmt.Errorf("%w: ref %s: activations have type %v, the reference supports "+
				"f32", kernel.ErrUnsupported, op,
				t.DType)
		}
	}
	return nil
}

// widen converts row r of a tensor of any float type to float64.
func widen(dst []float64, t kernel.Tensor, r int) {
	row := t.Slice(r, r+1)
	if f, ok := t.DType.Block(); ok {
		values := make([]float32, t.Cols*f.Values())
		f.Decode(values, host.Bytes(row))
		for i, v := range values {
			dst[i] = float64(v)
		}
		return
	}
	switch t.DType {
	case kernel.F32:
		for i, v := range host.F32(row) {
			dst[i] = float64(v)
		}
	case kernel.BF16:
		for i, v := range host.U16(row) {
			dst[i] = float64(num.FromBF16(v))
		}
	case kernel.F16:
		for i, v := range host.U16(row) {
			dst[i] = float64(num.FromF16(v))
		}
	case kernel.E4M3:
		for i, v := range host.Bytes(row) {
			dst[i] = float64(num.FromE4M3(v))
		}
	case kernel.E2M1x2:
		for i, b := range host.Bytes(row) {
			even, odd := num.UnpackE2M1(b)
			dst[2*i], dst[2*i+1] = float64(num.FromE2M1(even)), float64(num.FromE2M1(odd))
		}
	default:
		panic(fmt.Sprintf("ref: no float values in %v", t))
	}
}

// narrow writes v to row r of a tensor of f32 or bf16.
func narrow(t kernel.Tensor, r int, v []float32) {
	if t.DType == kernel.F32 {
		copy(host.RowF32(t, r), v)
		return
	}
	out := host.U16(t.Slice(r, r+1))
	for c, x := range v {
		out[c] = num.BF16(x)
	}
}

// vector returns the values of a tensor with one row.
func vector(t kernel.Tensor) []float64 {
	v := make([]float64, t.Cols)
	widen(v, t, 0)
	return v
}

// weightRow writes row o of a weight to dst: the stored values times their blocks' scales, rounded to float32 as in a
// dequantised matrix and, with Rounded, to what a GPU stores.
func (d *Device) weightRow(dst []float64, w *host.Matrix, o int) {
	if !w.Scale.Given() {
		widen(dst, w.Data, o)
	} else {
		row := make([]float32, len(dst))
		w.Widen(row, o)
		for i, v := range row {
			dst[i] = float64(v)
		}
	}
	d.stored(dst, w)
}
