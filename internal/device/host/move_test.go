package host

import (
	"errors"
	"slices"
	"testing"

	"sparrow/kernel"
)

// Integer rows are written to their positions; a negative position writes nothing, and a position beyond the end is
// refused.
func TestPutWholeNumbers(t *testing.T) {
	ints := func(rows, cols int, v ...int32) kernel.Tensor {
		x, err := kernel.New(Memory{}, kernel.I32, rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		copy(I32(x), v)
		return x
	}
	out, x := ints(3, 2, 1, 1, 2, 2, 3, 3), ints(3, 4, 10, 11, 0, 0, 20, 21, 0, 0, 30, 31, 0, 0).Columns(0, 2)
	if err := Put(kernel.PutArgs{Out: out, X: x, Rows: ints(3, 1, 2, -1, 0)}); err != nil {
		t.Fatal(err)
	}
	if got, want := I32(out), []int32{30, 31, 2, 2, 10, 11}; !slices.Equal(got, want) {
		t.Errorf("the rows are %v, want %v", got, want)
	}
	if err := Put(kernel.PutArgs{Out: out, X: x, Rows: ints(3, 1, 0, 1, 3)}); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("a position beyond the end: error %v", err)
	}
	floats, err := kernel.New(Memory{}, kernel.F32, 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := Put(kernel.PutArgs{Out: floats, X: x, Rows: ints(3, 1, 0, 1, 2)}); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("integer rows written to a float32 tensor: error %v", err)
	}
	if err := Take(kernel.TakeArgs{Out: x, X: floats, Rows: ints(3, 1, 0, 1, 2)}); err == nil {
		t.Error("float32 rows were written to an integer tensor")
	}
}
