package op

import (
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// Kernels for bf16 weights are not used for packed weights, although products with packed weights also have the type
// bf16.
func TestPackedWeightsHaveTheirOwnKernels(t *testing.T) {
	out := kernel.Tensor{DType: kernel.F32, Rows: 3, Cols: 1030, Stride: 1030}
	for packed, want := range map[cuda.PackedFormat]bool{"": true, "nvfp4": false} {
		w := &matrix{kind: cuda.ProductBF16, packed: packed, in: 64, out: 1030, stored: 1040}
		if got := lowRank(out, w); got != want {
			t.Errorf("%q: one launch for short rows: %v, want %v", packed, got, want)
		}
		if got := staysStaged([]kernel.Projection{{Out: out, W: w}}, false); got != want {
			t.Errorf("%q: held in scratch memory: %v, want %v", packed, got, want)
		}
	}
}
