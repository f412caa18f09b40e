package cpu

import (
	"math"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
)

// A tensor is finite unless one of its values is NaN or infinite, wherever it is.
func TestFinite(t *testing.T) {
	const rows, cols = 3, 1031
	x, err := kernel.New(host.Memory{}, kernel.F32, rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	for i := range host.F32(x) {
		host.F32(x)[i] = float32(i) - 1e30
	}
	for _, tier := range vec.Tiers() {
		if !finite(tier, x) {
			t.Errorf("%v: finite values are not finite", tier)
		}
		for _, at := range []int{0, 15, 511, 512, 1030, 2*cols + 7, rows*cols - 1} {
			for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				old := host.F32(x)[at]
				host.F32(x)[at] = float32(v)
				if finite(tier, x) {
					t.Errorf("%v: %v at %d is finite", tier, v, at)
				}
				host.F32(x)[at] = old
			}
		}
	}
}
