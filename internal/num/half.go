package num

import "math"

// Bit patterns of float32 for comparisons in the conversions to 16-bit formats.
const (
	signMask32 = 1 << 31
	absMask32  = signMask32 - 1
	infBits32  = 0x7F800000
)

// BF16 rounds f to bfloat16 (1 sign, 8 exponent, 7 mantissa bits), to nearest even. A NaN keeps its sign and the upper
// payload bits and becomes quiet; a finite value beyond the largest bf16 becomes infinity.
func BF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&absMask32 > infBits32 {
		return uint16(b>>16) | 0x0040
	}
	// The sum with 0x7FFF, slightly less than half of the dropped part, and the lowest kept bit carries into the kept
	// part exactly if nearest-even rounds up.
	return uint16((b + 0x7FFF + b>>16&1) >> 16)
}

// FromBF16 returns the exact value of a bfloat16, NaN payloads included.
func FromBF16(b uint16) float32 {
	return math.Float32frombits(uint32(b) << 16)
}

// RoundBF16 returns the float32 nearest to f that bfloat16 can hold: FromBF16(BF16(f)).
func RoundBF16(f float32) float32 {
	return FromBF16(BF16(f))
}

// F16 rounds f to IEEE binary16 (1-5-10, bias 15), to nearest even, with subnormals. From 65520 up the result is
// infinity; a NaN keeps its sign and the upper payload bits and becomes quiet.
func F16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	abs := b & absMask32
	switch {
	case abs > infBits32:
		return sign | 0x7E00 | uint16(abs>>13&0x3FF)
	case abs >= 0x477FF000: // 65520, halfway between the largest f16 (65504) and 65536; the tie goes up
		return sign | 0x7C00
	case abs < 0x38800000: // below 2^-14: the result counts units of 2^-24
		return sign | uint16(roundUnits(abs, 0x3F000000))
	}
	return sign | uint16((abs-112<<23+0xFFF+abs>>13&1)>>13)
}

// FromF16 returns the exact value of an IEEE binary16.
func FromF16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h >> 10 & 0x1F)
	man := uint32(h & 0x3FF)
	switch exp {
	case 0:
		return math.Float32frombits(math.Float32bits(float32(man)*0x1p-24) | sign)
	case 31:
		return math.Float32frombits(sign | infBits32 | man<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
}

// roundUnits returns the number of units of the positive float32 whose bits are abs, rounded to nearest even. magicBits
// is the float32 whose last mantissa bit equals one unit: the addition rounds to nearest even, and the mantissa of the
// sum is the number of units.
func roundUnits(abs, magicBits uint32) uint32 {
	return math.Float32bits(math.Float32frombits(abs)+math.Float32frombits(magicBits)) - magicBits
}
