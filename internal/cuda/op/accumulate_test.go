package op

import (
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// A product that is added to rows of a width that the kernels of sums do not support adds its result to the rows, and
// does not replace them.
func TestProductsAreAdded(t *testing.T) {
	gpu := cuda.OpenDetached(cuda.H200)
	d, err := On(gpu)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	take := func(kind kernel.DType, rows, cols int) kernel.Tensor {
		x, err := kernel.New(d, kind, rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	w, err := d.Prepare(stored(kernel.BF16, 24, 128, 0), kernel.Projected)
	if err != nil {
		t.Fatal(err)
	}
	x := take(kernel.BF16, 3, 128)
	out := take(kernel.BF16, 3, 24)
	for _, add := range []bool{false, true} {
		var moved []int32
		gpu.Watch(func(_ string, _ cuda.Launch, args any) {
			if a, ok := args.(cuda.MoveArgs); ok && a.Out == at(out) && a.Rows == 3 && a.Columns == 24 {
				moved = append(moved, a.Add)
			}
		})
		if err := kernel.Do(d, kernel.MultiplyArgs{Out: out, X: x, W: w, Accumulate: add}); err != nil {
			t.Fatal(err)
		}
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		gpu.Watch(nil)
		if add && (len(moved) != 1 || moved[0] != 1) || !add && len(moved) > 0 && moved[0] != 0 {
			t.Errorf("added: %v: rows were moved with Add %v", add, moved)
		}
	}
}
