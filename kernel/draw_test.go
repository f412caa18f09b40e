package kernel

import (
	"errors"
	"math"
	"testing"
)

// Random values have the requested mean and standard deviation, and differ between seeds and positions.
func TestDrawnValues(t *testing.T) {
	const n = 1 << 16
	d := Drawn{Seed: 3, Mean: 2, Spread: 0.5}
	var sum, squares float64
	same := 0
	for i := range int64(n) {
		v := float64(d.Value(i))
		sum += v
		squares += v * v
		if d.Value(i) == (Drawn{Seed: 4, Mean: 2, Spread: 0.5}).Value(i) {
			same++
		}
	}
	mean := sum / n
	if spread := math.Sqrt(squares/n - mean*mean); math.Abs(mean-2) > 0.01 || math.Abs(spread-0.5) > 0.01 {
		t.Errorf("mean %v, spread %v", mean, spread)
	}
	if same > n/100 {
		t.Errorf("%d of %d values are the same for two seeds", same, n)
	}
}

// Random values are stored in the type of their tensor; unsupported types are refused.
func TestDrawnMemory(t *testing.T) {
	d := Drawn{Seed: 1, Mean: 1}
	for kind, want := range map[DType][]byte{F32: {0, 0, 0x80, 0x3F, 0, 0, 0x80, 0x3F}, BF16: {0x80, 0x3F, 0x80, 0x3F},
		E4M3: {0x38, 0x38}} {
		x, err := d.OnHost(Tensor{Buf: d, DType: kind, Rows: 1, Cols: 2, Stride: 2})
		if err != nil || string(x.Buf.(HostBuffer)) != string(want) {
			t.Errorf("%v: %v, %v", kind, x.Buf, err)
		}
	}
	if _, err := d.OnHost(Tensor{Buf: d, DType: I32, Rows: 1, Cols: 2, Stride: 2}); !errors.Is(err, ErrArgument) {
		t.Errorf("i32: %v", err)
	}
}
