package num

import (
	"math"
	"testing"
)

// ceilLog2 returns ceil(log2 x) for a positive finite x. It uses the binary fraction x = frac * 2^exp with frac in [.5,
// 1).
func ceilLog2(x float32) int {
	frac, exp := math.Frexp(float64(x))
	if frac == 0.5 {
		return exp - 1
	}
	return exp
}

func TestE8M0HoldsEveryPowerOfTwo(t *testing.T) {
	for b := range 255 {
		want := float32(math.Ldexp(1, b-127))
		if got := FromE8M0(byte(b)); got != want {
			t.Errorf("byte %#x: got %g, want %g", b, got, want)
		}
		if got := E8M0(want); got != byte(b) {
			t.Errorf("2^%d: got byte %#x, want %#x", b-127, got, b)
		}
		if got := E8M0(math.Nextafter32(want, 0)); got != byte(b) {
			t.Errorf("just below 2^%d: got byte %#x, want %#x", b-127, got, b)
		}
		if got := E8M0(math.Nextafter32(want, math.MaxFloat32)); got != byte(min(b+1, 254)) {
			t.Errorf("just above 2^%d: got byte %#x, want %#x", b-127, got, min(b+1, 254))
		}
	}
	if v := FromE8M0(0xFF); v == v {
		t.Errorf("byte 0xff: got %g, want NaN", v)
	}
	if b := E8M0(FromE8M0(0xFF)); b != 0xFF {
		t.Errorf("NaN: got byte %#x, want 0xff", b)
	}
}

func TestE8M0RoundsUpOverAllFloat32(t *testing.T) {
	eachPattern(func(x float32) {
		var want byte
		switch {
		case x != x, x < 0:
			want = 0xFF
		case x == 0:
			want = 0
		case math.IsInf(float64(x), 1):
			want = 0xFE
		default:
			want = byte(min(max(ceilLog2(x)+127, 0), 254))
		}
		if got := E8M0(x); got != want {
			t.Fatalf("%g (%#x): got byte %#x, want %#x", x, math.Float32bits(x), got, want)
		}
	})
}

func TestCeilPow2OverAllFloat32(t *testing.T) {
	eachPattern(func(x float32) {
		want := float32(0x1p127)
		a := float32(math.Abs(float64(x)))
		switch {
		case a == 0:
			want = 0x1p-126
		case a <= math.MaxFloat32:
			want = float32(math.Ldexp(1, min(max(ceilLog2(a), -126), 127)))
		}
		got := CeilPow2(x)
		if got != want {
			t.Fatalf("%g (%#x): got %g, want %g", x, math.Float32bits(x), got, want)
		}
		if !IsPow2(got) {
			t.Fatalf("CeilPow2(%g) = %g is not a power of two according to IsPow2", x, got)
		}
	})
}

func TestCeilPow2AtAndAroundPowers(t *testing.T) {
	for e := -126; e <= 127; e++ {
		p := float32(math.Ldexp(1, e))
		if got := CeilPow2(p); got != p {
			t.Errorf("2^%d: got %g", e, got)
		}
		if got := CeilPow2(math.Nextafter32(p, 0)); got != p {
			t.Errorf("just below 2^%d: got %g", e, got)
		}
		if got := CeilPow2(math.Nextafter32(p, math.MaxFloat32)); e < 127 && got != 2*p {
			t.Errorf("just above 2^%d: got %g", e, got)
		}
	}
}

func TestIsPow2(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, x := range []float32{0, -1, -2, 3, 1.5, 1.0 / 448, inf, -inf, nan, 0x1p-127, math.MaxFloat32} {
		if IsPow2(x) {
			t.Errorf("%g is taken for a power of two", x)
		}
	}
	for _, x := range []float32{1, 2, 0.5, 0x1p-126, 0x1p127, 0x1p-13} {
		if !IsPow2(x) {
			t.Errorf("%g is not taken for a power of two", x)
		}
	}
}

func TestE2M1PairsPackLowNibbleFirst(t *testing.T) {
	// 1.5 is code 3, and -4 is code 8+6 = 0xE; the even element is in the low nibble.
	if got := PackE2M1(E2M1(1.5), E2M1(-4)); got != 0xE3 {
		t.Errorf("1.5, -4 pack to %#x, want 0xe3", got)
	}
	for b := range 256 {
		even, odd := UnpackE2M1(byte(b))
		if even > 15 || odd > 15 {
			t.Errorf("byte %#x unpacks to %#x and %#x", b, even, odd)
		}
		if got := PackE2M1(even, odd); got != byte(b) {
			t.Errorf("byte %#x comes back as %#x", b, got)
		}
	}
	if got := PackE2M1(0xF3, 0xFE); got != 0xE3 {
		t.Errorf("high nibbles of the codes leak: %#x", got)
	}
}
