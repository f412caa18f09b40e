package num

import (
	"math"
	"sort"
	"testing"
)

// format describes a float format by its fields, so that the package's bit operations can be checked against a search
// over all values of the format.
type format struct {
	name           string
	expBits        int
	manBits        int
	bias           int
	last           uint32 // code of the largest magnitude; if that is infinity, the value is the next power of two
	sign           uint32
	encode         func(float32) uint32
	decode         func(uint32) float32
	nanPositive    uint32 // code of NaN, and code of NaN with the sign bit set
	nanNegative    uint32
	infinityAtLast bool
}

func formats() []format {
	return []format{
		{
			name: "bf16", expBits: 8, manBits: 7, bias: 127, last: 0x7F80, sign: 0x8000, infinityAtLast: true,
			encode:      func(f float32) uint32 { return uint32(BF16(f)) },
			decode:      func(c uint32) float32 { return FromBF16(uint16(c)) },
			nanPositive: 0x7FC0, nanNegative: 0xFFC0,
		},
		{
			name: "f16", expBits: 5, manBits: 10, bias: 15, last: 0x7C00, sign: 0x8000, infinityAtLast: true,
			encode:      func(f float32) uint32 { return uint32(F16(f)) },
			decode:      func(c uint32) float32 { return FromF16(uint16(c)) },
			nanPositive: 0x7E00, nanNegative: 0xFE00,
		},
		{
			name: "e4m3", expBits: 4, manBits: 3, bias: 7, last: 0x7E, sign: 0x80,
			encode:      func(f float32) uint32 { return uint32(E4M3(f)) },
			decode:      func(c uint32) float32 { return FromE4M3(byte(c)) },
			nanPositive: 0x7F, nanNegative: 0xFF,
		},
		{
			name: "e2m1", expBits: 2, manBits: 1, bias: 1, last: 7, sign: 8,
			encode:      func(f float32) uint32 { return uint32(E2M1(f)) },
			decode:      func(c uint32) float32 { return FromE2M1(byte(c)) },
			nanPositive: 7, nanNegative: 7,
		},
	}
}

// magnitudes lists the value of codes 0..last: m*2^(1-bias-manBits) below the first normal,
// (2^manBits+m)*2^(e-bias-manBits) from there on. The values grow with the code.
func (f format) magnitudes() []float64 {
	mags := make([]float64, f.last+1)
	for c := range mags {
		e, m := c>>f.manBits, c&(1<<f.manBits-1)
		if e == 0 {
			mags[c] = math.Ldexp(float64(m), 1-f.bias-f.manBits)
			continue
		}
		mags[c] = math.Ldexp(float64(1<<f.manBits+m), e-f.bias-f.manBits)
	}
	return mags
}

// nearest returns the code nearest to x by search. Of two equally near codes it returns the even one, and beyond the
// last magnitude it returns the last.
func (f format) nearest(mags []float64, x float32) uint32 {
	var sign uint32
	if math.Signbit(float64(x)) {
		sign = f.sign
	}
	a := math.Abs(float64(x))
	up := sort.SearchFloat64s(mags, a)
	switch {
	case up == len(mags):
		return sign | f.last
	case mags[up] == a:
		return sign | uint32(up)
	}
	down := up - 1
	below, above := a-mags[down], mags[up]-a // both are exact in float64
	switch {
	case below < above, below == above && down%2 == 0:
		return sign | uint32(down)
	}
	return sign | uint32(up)
}

// eachPattern calls f with a few million float32 bit patterns spread over all 2^32. The stride is odd, so that every
// combination of low bits occurs with every exponent.
func eachPattern(f func(x float32)) {
	const stride = 1201
	for b := uint64(0); b < 1<<32; b += stride {
		f(math.Float32frombits(uint32(b)))
	}
}

// sameBits reports whether a and b are bitwise equal, including the sign of zero. Any NaN equals any other NaN.
func sameBits(a, b float32) bool {
	if a != a || b != b {
		return a != a && b != b
	}
	return math.Float32bits(a) == math.Float32bits(b)
}

func TestDecodingEveryCodeGivesTheValueOfItsFields(t *testing.T) {
	for _, f := range formats() {
		t.Run(f.name, func(t *testing.T) {
			for c, m := range f.magnitudes() {
				want := float32(m)
				if f.infinityAtLast && uint32(c) == f.last {
					want = float32(math.Inf(1))
				}
				if got := f.decode(uint32(c)); !sameBits(got, want) {
					t.Errorf("code %#x: got %g, want %g", c, got, want)
				}
				if got := f.decode(uint32(c) | f.sign); !sameBits(got, -want) {
					t.Errorf("code %#x: got %g, want %g", uint32(c)|f.sign, got, -want)
				}
			}
			for c := f.last + 1; c < f.sign; c++ { // codes beyond the last magnitude are NaN
				for _, code := range []uint32{c, c | f.sign} {
					if v := f.decode(code); v == v {
						t.Errorf("code %#x: got %g, want NaN", code, v)
					}
				}
			}
		})
	}
}

func TestEncodingUndoesDecodingForEveryCode(t *testing.T) {
	for _, f := range formats() {
		t.Run(f.name, func(t *testing.T) {
			for c := range 2 * f.sign {
				v := f.decode(c)
				got := f.encode(v)
				if v != v {
					if back := f.decode(got); back == back || got&f.sign != c&f.sign {
						t.Errorf("NaN code %#x came back as %#x", c, got)
					}
					continue
				}
				if got != c {
					t.Errorf("code %#x (%g) came back as %#x", c, v, got)
				}
			}
		})
	}
}

func TestRoundingBetweenEveryPairOfNeighbours(t *testing.T) {
	for _, f := range formats() {
		t.Run(f.name, func(t *testing.T) {
			mags := f.magnitudes()
			for c := range mags[:len(mags)-1] {
				lo, hi := mags[c], mags[c+1]
				mid := float32((lo + hi) / 2)
				if float64(mid) != (lo+hi)/2 {
					t.Fatalf("midpoint of codes %#x and %#x is not a float32 value", c, c+1)
				}
				even := uint32(c + c%2)
				for _, p := range []struct {
					x    float32
					want uint32
				}{
					{float32(lo), uint32(c)},
					{math.Nextafter32(mid, 0), uint32(c)},
					{mid, even},
					{math.Nextafter32(mid, math.MaxFloat32), uint32(c + 1)},
				} {
					if got := f.encode(p.x); got != p.want {
						t.Errorf("%g (between %g and %g): got %#x, want %#x", p.x, lo, hi, got, p.want)
					}
					if got := f.encode(-p.x); p.x != 0 && got != p.want|f.sign {
						t.Errorf("%g: got %#x, want %#x", -p.x, got, p.want|f.sign)
					}
				}
			}
		})
	}
}

func TestRoundingAgreesWithASearchOverAllFloat32(t *testing.T) {
	for _, f := range formats() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			mags := f.magnitudes()
			bad := 0
			eachPattern(func(x float32) {
				if x != x {
					return
				}
				if got, want := f.encode(x), f.nearest(mags, x); got != want && bad < 10 {
					bad++
					t.Errorf("%g (%#x): got %#x, want %#x", x, math.Float32bits(x), got, want)
				}
			})
		})
	}
}

func TestEveryNaNEncodesAsDocumented(t *testing.T) {
	quiet, signalling := uint32(0x7FC00000), uint32(0x7F800001)
	for _, f := range formats() {
		for _, b := range []uint32{quiet, signalling} {
			if got := f.encode(math.Float32frombits(b)); got != f.nanPositive {
				t.Errorf("%s: NaN %#x gives %#x, want %#x", f.name, b, got, f.nanPositive)
			}
			if got := f.encode(math.Float32frombits(b | 1<<31)); got != f.nanNegative {
				t.Errorf("%s: NaN %#x gives %#x, want %#x", f.name, b|1<<31, got, f.nanNegative)
			}
		}
	}
}

func TestInfinityAndTheLargestFloat32(t *testing.T) {
	for _, f := range formats() {
		for _, x := range []float32{float32(math.Inf(1)), math.MaxFloat32} {
			if got := f.encode(x); got != f.last {
				t.Errorf("%s: %g gives %#x, want %#x", f.name, x, got, f.last)
			}
			if got := f.encode(-x); got != f.last|f.sign {
				t.Errorf("%s: %g gives %#x, want %#x", f.name, -x, got, f.last|f.sign)
			}
		}
	}
}
