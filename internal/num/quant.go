package num

import (
	"fmt"
	"math"
)

// Minimum values in the two quantisers, for different quantities: an indexer vector of zeros gets the scale 2^-22 or
// 1e-4/448, and a latent tile of zeros gets 2^-13.
const (
	amaxFloor        = 1e-4 // QuantE4M3: minimum of the largest magnitude
	latentScaleFloor = 1e-4 // QuantLatent: minimum of the scale, before it is rounded up to a power of two
)

// ScaleMode selects how a block's scale is computed from its largest magnitude. Readers do not depend on it: the scale
// is stored as float32 in both modes.
type ScaleMode uint8

const (
	ScalePow2 ScaleMode = iota // the next power of two at or above amax/448
	ScaleF32                   // amax/448
)

// String returns the name of the mode in configuration and traces.
func (m ScaleMode) String() string {
	switch m {
	case ScalePow2:
		return "pow2"
	case ScaleF32:
		return "f32"
	}
	return fmt.Sprintf("ScaleMode(%d)", uint8(m))
}

// CeilPow2 returns 2^ceil(log2 y) for y > 0. It uses the bits of y, because an approximate log2 can be wrong by one at
// exact powers. The exponent is clamped to float32's normal range: zero and subnormals give 2^-126; values above 2^127,
// infinity and NaN give 2^127. The sign of y is ignored.
func CeilPow2(y float32) float32 {
	b := math.Float32bits(y) & absMask32
	e := min(max((b+0x7FFFFF)>>23, 1), 254)
	return math.Float32frombits(e << 23)
}

// IsPow2 reports whether y is a positive normal power of two, as CeilPow2 returns.
func IsPow2(y float32) bool {
	b := math.Float32bits(y)
	return b&0x7FFFFF == 0 && b >= 1<<23 && b < infBits32
}

// QuantE4M3 quantises one block of indexer values into dst[:len(src)] and returns its scale: amax/448, with amax at
// least 1e-4, rounded up to a power of two in mode ScalePow2.
//
// NaN elements become NaN bytes and do not affect the scale. An infinite element is treated as the largest finite
// float32 and saturates. The scale is always positive and finite.
func QuantE4M3(dst []byte, src []float32, mode ScaleMode) float32 {
	scale := max(amax(src), amaxFloor) / MaxE4M3
	if mode == ScalePow2 {
		scale = CeilPow2(scale)
	}
	quantise(dst, src, scale)
	return scale
}

// QuantLatent quantises one latent tile (128 values) into dst[:len(src)] and returns its scale, the power of two at or
// above max(amax/448, 1e-4); a zero tile gets 2^-13. NaN and infinity are treated as in QuantE4M3.
func QuantLatent(dst []byte, src []float32) float32 {
	scale := CeilPow2(max(amax(src)/MaxE4M3, latentScaleFloor))
	quantise(dst, src, scale)
	return scale
}

// DequantE4M3 writes src[i]*scale to dst[:len(src)], each product rounded once to float32 (exact for a power-of-two
// scale unless it leaves float32's normal range).
func DequantE4M3(dst []float32, src []byte, scale float32) {
	dst = dst[:len(src)]
	for i, b := range src {
		dst[i] = e4m3Values[b] * scale
	}
}

// quantise writes E4M3(v/scale) for every value v of src to dst.
func quantise(dst []byte, src []float32, scale float32) {
	dst = dst[:len(src)]
	for i, v := range src {
		b := math.Float32bits(v / scale)
		if b&absMask32 > infBits32 {
			dst[i] = E4M3(v)
			continue
		}
		dst[i] = e4m3Number(b)
	}
}

// amax returns the largest magnitude in v. NaN is ignored, infinity is treated as the largest finite value, and the
// result for an empty block or only NaN is zero. Magnitudes of float32 have the order of their bits.
func amax(v []float32) float32 {
	var m uint32
	for _, f := range v {
		b := math.Float32bits(f) & absMask32
		if b > infBits32 {
			b = 0
		}
		m = max(m, b)
	}
	return math.Float32frombits(min(m, infBits32-1))
}
