package ref

import (
	"math"
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/host"
)

// Rows that multiply FP8 blocks are quantised for each 128 columns, with the scale the weight asks for; rows of other
// weights are not.
func TestRoundedProducts(t *testing.T) {
	const in = 192
	x := floats(1, in)
	for i := range in {
		host.F32(x)[i] = 1 + float32(i)/1024
	}
	host.F32(x)[0], host.F32(x)[128] = 300, 448*3 // largest of their 128 columns
	for _, c := range []struct {
		name string
		dev  Device
		kind kernel.DType
		pow2 bool
		at   int
		want float32
	}{
		{"plain", Device{}, kernel.E4M3, false, 1, 1 + 1./1024},
		{"bf16", Device{Rounded: true}, kernel.BF16, false, 1, 1 + 1./1024},
		// 300/448 is the scale: 1.0009765625 / scale = 1.4948, whose nearest of 3 bits is 1.5.
		{"any scale", Device{Rounded: true}, kernel.E4M3, false, 1, float32(1.5) * (float32(300) / 448)},
		// The scale is 1: 1.0009765625 becomes 1.
		{"a power of two", Device{Rounded: true}, kernel.E4M3, true, 1, 1},
		// The scale is 3: 1.1259765625 / 3 = 0.3753 becomes 0.375.
		{"the second block", Device{Rounded: true}, kernel.E4M3, false, 129, 1.125},
	} {
		w := kernel.Weight{Data: kernel.Tensor{Buf: make(kernel.HostBuffer, in*c.kind.Size()), DType: c.kind, Rows: 1,
			Cols: in, Stride: in}, Pow2Rows: c.pow2}
		raw := []byte(w.Data.Buf.(kernel.HostBuffer))
		if raw[c.at] = 0x38; c.kind == kernel.BF16 { // one
			raw[c.at], raw[2*c.at], raw[2*c.at+1] = 0, 0x80, 0x3F
		} else {
			w.BlockRows, w.BlockCols, w.Scale = 128, 128, floats(1, 2)
			host.F32(w.Scale)[0], host.F32(w.Scale)[1] = 1, 1
		}
		m, err := c.dev.Prepare(w, kernel.Projected)
		if err != nil {
			t.Fatal(err)
		}
		out := floats(1, 1)
		if err := c.dev.Multiply(kernel.MultiplyArgs{Out: out, X: x, W: m}); err != nil {
			t.Fatal(err)
		}
		if got := host.F32(out)[0]; math.Abs(float64(got-c.want)) > 1e-6 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func floats(rows, cols int) kernel.Tensor {
	return kernel.Tensor{Buf: make(kernel.HostBuffer, 4*rows*cols), DType: kernel.F32, Rows: rows, Cols: cols,
		Stride: cols}
}
