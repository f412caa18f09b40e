package num

import (
	"bytes"
	"math"
	"testing"

	"pgregory.net/rapid"
)

var (
	inf = float32(math.Inf(1))
	nan = float32(math.NaN())
)

func TestScalesWorkedOutByHand(t *testing.T) {
	// 1/448 is between 2^-9 = 1/512 and 2^-8 = 1/256. 1e-4/448 = 2.23e-7 is between 2^-23 = 1.19e-7 and 2^-22 =
	// 2.38e-7. 1e-4 is between 2^-14 = 6.1e-5 and 2^-13 = 1.22e-4; 0.0448/448 equals 1e-4.
	tests := []struct {
		name                       string
		src                        []float32
		wantPow2, wantF32, wantLat float32
	}{
		{"largest is 1", []float32{1, -0.5}, 0x1p-8, 1.0 / 448, 0x1p-8},
		{"largest is -1", []float32{0.5, -1}, 0x1p-8, 1.0 / 448, 0x1p-8},
		{"largest is 448", []float32{448, 3}, 1, 1, 1},
		{"just above 448", []float32{448.00003}, 2, 448.00003 / 448, 2},
		{"largest is 224", []float32{224}, 0.5, 0.5, 0.5},
		{"zero block", []float32{0, 0}, 0x1p-22, float32(1e-4) / 448, 0x1p-13},
		{"empty block", nil, 0x1p-22, float32(1e-4) / 448, 0x1p-13},
		{"below both floors", []float32{1e-6}, 0x1p-22, float32(1e-4) / 448, 0x1p-13},
		{"below the latent floor only", []float32{0.02}, 0x1p-14, float32(0.02) / 448, 0x1p-13},
		{"NaN does not count", []float32{nan, 1, nan}, 0x1p-8, 1.0 / 448, 0x1p-8},
		{"all NaN is a zero block", []float32{nan}, 0x1p-22, float32(1e-4) / 448, 0x1p-13},
		{"infinity counts as the largest float32", []float32{1, -inf}, 0x1p120, math.MaxFloat32 / 448, 0x1p120},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dst := make([]byte, len(tt.src))
			if got := QuantE4M3(dst, tt.src, ScalePow2); got != tt.wantPow2 {
				t.Errorf("pow2 scale %g, want %g", got, tt.wantPow2)
			}
			if got := QuantE4M3(dst, tt.src, ScaleF32); got != tt.wantF32 {
				t.Errorf("f32 scale %g, want %g", got, tt.wantF32)
			}
			if got := QuantLatent(dst, tt.src); got != tt.wantLat {
				t.Errorf("latent scale %g, want %g", got, tt.wantLat)
			}
		})
	}
}

func TestBytesWorkedOutByHand(t *testing.T) {
	// The scale is .25 because 100/448 = .223. 1/.25 = 4 = 2^2 has exponent 9, code 0x48. -10 = -1.25*2^3 has code
	// 0x80|10<<3|2 = 0xD2. 1.2 = 9.6/8 is nearest to 10/8, code 7<<3|2 = 0x3A. 400 = 1.5625*2^8 is exactly between 1.5
	// and 1.625; the even one is 1.5, code 15<<3|4 = 0x7C. .004 = 2.048*2^-9 is the subnormal code 2.
	group := []float32{1, -2.5, 0.3, 100, 0.001, 0}
	want := []byte{0x48, 0xD2, 0x3A, 0x7C, 0x02, 0x00}
	got := make([]byte, len(group))
	if s := QuantE4M3(got, group, ScalePow2); s != 0.25 || !bytes.Equal(got, want) {
		t.Errorf("got % x scale %g, want % x scale 0.25", got, s, want)
	}
	if s := QuantLatent(got, group); s != 0.25 || !bytes.Equal(got, want) {
		t.Errorf("latent: got % x scale %g, want % x scale 0.25", got, s, want)
	}
	back := make([]float32, len(group))
	DequantE4M3(back, got, 0.25)
	for i, v := range []float32{1, -2.5, 0.3125, 96, 0.0009765625, 0} {
		if back[i] != v {
			t.Errorf("element %d: got %g, want %g", i, back[i], v)
		}
	}
}

func TestSpecialElementsStayAtTheirPlace(t *testing.T) {
	src := []float32{1, nan, -nan, -1, 0, float32(math.Copysign(0, -1))}
	for _, mode := range []ScaleMode{ScalePow2, ScaleF32} {
		got := make([]byte, len(src))
		QuantE4M3(got, src, mode)
		// 1 divided by the scale 2^-8 is 256, which has code 0x78; 1 divided by 1/448 is 448, which has code 0x7E.
		one := byte(0x78)
		if mode == ScaleF32 {
			one = 0x7E
		}
		if got[0] != one || got[3] != one|0x80 || got[4] != 0 || got[5] != 0x80 {
			t.Errorf("%v: finite neighbours of NaN became % x", mode, got)
		}
		if got[1]&0x7F != 0x7F || got[2]&0x7F != 0x7F {
			t.Errorf("%v: NaN became %#x and %#x", mode, got[1], got[2])
		}
	}
	got := make([]byte, 2)
	if s := QuantE4M3(got, []float32{inf, -inf}, ScaleF32); s > math.MaxFloat32 || got[0] != 0x7E || got[1] != 0xFE {
		t.Errorf("infinities became % x with scale %g", got, s)
	}
}

// TestRoundTripError checks the error bound that follows from four significant bits: at most 1/17 of the value if the
// code is normal, and half a subnormal step (2^-10 scales) below that. It also checks that no value saturates.
func TestRoundTripError(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := rapid.SliceOfN(rapid.Float32Range(-1e6, 1e6), 1, 128).Draw(t, "block")
		shrink := float32(math.Ldexp(1, -rapid.IntRange(0, 40).Draw(t, "shrink")))
		for i := range src {
			src[i] *= shrink
		}
		q, back := make([]byte, len(src)), make([]float32, len(src))
		quantisers := map[string]func() float32{
			"pow2":   func() float32 { return QuantE4M3(q, src, ScalePow2) },
			"f32":    func() float32 { return QuantE4M3(q, src, ScaleF32) },
			"latent": func() float32 { return QuantLatent(q, src) },
		}
		for name, quantise := range quantisers {
			scale := quantise()
			DequantE4M3(back, q, scale)
			for i, v := range src {
				err := math.Abs(float64(back[i]) - float64(v))
				// The f32 scale and the division by it each round once, which the last factor allows for.
				bound := max(math.Abs(float64(v))/17, float64(scale)*0x1p-10) * (1 + 0x1p-20)
				if err > bound {
					t.Fatalf("%s: %g came back as %g: error %g above %g", name, v, back[i], err, bound)
				}
			}
		}
	})
}

func TestQuantisersAndRotationDoNotAllocate(t *testing.T) {
	src, q := make([]float32, 128), make([]byte, 128)
	for i := range src {
		src[i] = float32(i) - 60
	}
	got := testing.AllocsPerRun(100, func() {
		QuantE4M3(q, src, ScalePow2)
		QuantE4M3(q, src, ScaleF32)
		QuantLatent(q, src)
		DequantE4M3(src, q, 1)
		Hadamard128(src)
	})
	if got != 0 {
		t.Errorf("%g allocations", got)
	}
}

func TestScaleModeNames(t *testing.T) {
	for m, want := range map[ScaleMode]string{ScalePow2: "pow2", ScaleF32: "f32", 9: "ScaleMode(9)"} {
		if m.String() != want {
			t.Errorf("mode %d: got %q, want %q", m, m.String(), want)
		}
	}
}
