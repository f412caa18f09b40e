package cuda

import (
	"errors"
	"math"
	"strings"
	"testing"

	"sparrow/internal/cuda/image"
)

// someDense returns arguments with addresses that no launch uses.
func someDense() Dense {
	return Dense{Q: somewhere, KV: somewhere, Rope: somewhere, Start: somewhere, Lens: somewhere, Out: somewhere,
		Plan: somewhere, QStride: 3 * 192, KVStride: 3 * 256, RopeStride: 576, StartStride: 1, LenStride: 1,
		OutStride: 3 * 128, Rows: 5, Keys: 7, Heads: 3, Nope: 128, Values: 128, Scale: 0.1}
}

func TestDenseArgumentsAreCheckedBeforeMapsAreMade(t *testing.T) {
	d := &Device{}
	for says, change := range map[string]func(*Dense){
		"":                         func(*Dense) {},
		"128 and 256 columns":      func(x *Dense) { x.Values = 256 },
		"rows 0":                   func(x *Dense) { x.Rows = 0 },
		"keys -1":                  func(x *Dense) { x.Keys = -1 },
		"heads 0":                  func(x *Dense) { x.Heads = 0 },
		"q is not given":           func(x *Dense) { x.Q = 0 },
		"kv at 0x8":                func(x *Dense) { x.KV = 8 },
		"out at 0x100008":          func(x *Dense) { x.Out = somewhere + 8 },
		"plan is not given":        func(x *Dense) { x.Plan = 0 },
		"q stride 568":             func(x *Dense) { x.QStride = 568 },
		"kv stride 772":            func(x *Dense) { x.KVStride = 772 },
		"rope stride 60":           func(x *Dense) { x.RopeStride = 60 },
		"out stride 380":           func(x *Dense) { x.OutStride = 380 },
		"lse stride 2":             func(x *Dense) { x.LSE, x.LSEStride = somewhere, 2 },
		"scale 0":                  func(x *Dense) { x.Scale = 0 },
		"scale NaN":                func(x *Dense) { x.Scale = float32(math.NaN()) },
		"launch fewer rows":        func(x *Dense) { x.Rows = math.MaxInt32 / 2 },
		"start stride 0 must be a": func(x *Dense) { x.StartStride = 0 },
	} {
		x := someDense()
		change(&x)
		_, err := x.Encode(d)
		if says == "" {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("correct arguments ended with %v, want to get as far as the driver", err)
			}
		} else if !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want an argument error that says %q", err, says)
		}
	}
}

func TestDenseLaunchesNeedAKernel(t *testing.T) {
	k, s := &Kernels{device: &Device{}}, &Stream{}
	if err := DenseAttend(k, s, 128, 128, &DenseAttendArgs{Rows: 5, Heads: 3}); !errors.Is(err, image.ErrUnknown) {
		t.Errorf("got %v, want to get as far as the kernel", err)
	}
	if err := DenseAttend(k, s, 128, 128, &DenseAttendArgs{}); err != nil {
		t.Errorf("no rows: %v", err)
	}
	if err := DenseAttend(k, s, 64, 128, &DenseAttendArgs{Rows: 5, Heads: 3}); !errors.Is(err, ErrArgument) {
		t.Errorf("values of 128 behind keys of 64 columns: %v", err)
	}
	if DenseSupported(64, 128) || !DenseSupported(64, 64) || !DenseSupported(192, 256) {
		t.Error("want 64 and 64, 128 and 128, or 192 and 256")
	}
	if DensePlanBytes(3) != 80 {
		t.Errorf("a plan of 3 rows has %d bytes, want 80", DensePlanBytes(3))
	}
}
