package vec

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

func TestWidenBF16OfEveryPattern(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		src := make([]byte, 2<<16)
		for i := range 1 << 16 {
			binary.LittleEndian.PutUint16(src[2*i:], uint16(i))
		}
		for _, n := range []int{1 << 16, 1<<16 - 1, 1<<16 - 7, 3} {
			dst := make([]float32, n)
			tier.WidenBF16(dst, src[:2*n])
			for i, v := range dst {
				if got := math.Float32bits(v); got != uint32(i)<<16 {
					t.Fatalf("%#04x widens to %#08x", i, got)
				}
			}
		}
	})
}

// e4m3Value returns the value of an e4m3 code, without the table under test.
func e4m3Value(code int) float64 {
	sign := 1 - 2*float64(code>>7)
	exp, man := float64(code>>3&15), float64(code&7)
	switch {
	case code&0x7F == 0x7F:
		return math.NaN()
	case exp == 0:
		return math.Copysign(man/8*math.Exp2(-6), sign)
	}
	return sign * (1 + man/8) * math.Exp2(exp-7)
}

func TestWidenE4M3OfEveryCode(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		src := make([]byte, 256)
		for i := range src {
			src[i] = byte(i)
		}
		for _, scale := range []float32{1, 0.5, 0x1p-20, 0.0022321429, 3e-40, 1e30, -1.1} {
			for _, n := range []int{256, 255, 131} {
				dst := make([]float32, n)
				tier.WidenE4M3(dst, src[256-n:], scale)
				for i, v := range dst {
					code := 256 - n + i
					want := float32(e4m3Value(code) * float64(scale))
					if !same(v, want) {
						t.Fatalf("%#02x times %v is %v, want %v", code, scale, v, want)
					}
				}
			}
		}
	})
}

// Widening a row in groups is bitwise equal to widening its groups one after the other, including NaN.
func TestWidenE4M3Groups(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		src := make([]byte, 1024)
		for i := range src {
			src[i] = byte(i * 37)
		}
		scales := Groups{1, 0.5, 0x1p-20, 3e-40, 1e30, -1.1, 7, 0.1}
		for _, size := range []int{64, 128, 24} {
			for _, n := range []int{8 * size, 7 * size, 3*size + 5, size - 1} {
				got, want := make([]float32, n), make([]float32, n)
				tier.WidenE4M3Groups(got, src[:n], scales, size)
				for at := 0; at < n; at += size {
					to := min(at+size, n)
					tier.WidenE4M3(want[at:to], src[at:to], scales[at/size])
				}
				for i := range got {
					if !same(got[i], want[i]) {
						t.Fatalf("element %d of %d in groups of %d is %v, want %v", i, n, size, got[i], want[i])
					}
				}
			}
		}
	})
}

func TestNarrowBF16(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		r := rand.New(rand.NewPCG(11, 1))
		var src []float32
		for i := range 1 << 16 {
			// Each upper half is tested with a midpoint and the numbers next to the midpoint.
			for _, low := range []uint32{0, 0x7FFF, 0x8000, 0x8001, r.Uint32() & 0xFFFF} {
				src = append(src, math.Float32frombits(uint32(i)<<16|low))
			}
		}
		src = append(src, 1, 2, 3)
		dst := make([]byte, 2*len(src))
		tier.NarrowBF16(dst, src)
		for i, v := range src {
			got := binary.LittleEndian.Uint16(dst[2*i:])
			wide := math.Float32frombits(uint32(got) << 16)
			if v != v {
				if wide == wide {
					t.Fatalf("NaN %#x narrows to %#04x", math.Float32bits(v), got)
				}
				continue
			}
			if want := nearestBF16(v); got != want {
				t.Fatalf("%v (%#x) narrows to %#04x, want %#04x", v, math.Float32bits(v), got, want)
			}
		}
	})
}

// nearestBF16 compares the two nearest numbers in float64 and returns the nearer one, or the even one on a tie. The
// number after the largest finite number is infinity.
func nearestBF16(v float32) uint16 {
	down := uint16(math.Float32bits(v) >> 16)
	if math.IsInf(float64(v), 0) {
		return down
	}
	value := func(b uint16) float64 {
		if b&0x7FFF == 0x7F80 {
			return math.Copysign(math.Exp2(128), float64(v))
		}
		return float64(math.Float32frombits(uint32(b) << 16))
	}
	up := down + 1
	below, above := math.Abs(float64(v)-value(down)), math.Abs(value(up)-float64(v))
	if below < above || below == above && down%2 == 0 {
		return down
	}
	return up
}
