package num

import "math"

// e2m1Values holds the value of each 4-bit code; bit 3 is the sign.
var e2m1Values = [16]float32{
	0, 0.5, 1, 1.5, 2, 3, 4, 6,
	float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6,
}

// E8M0 encodes a scale as an exponent byte, value 2^(b-127). Powers of two from 2^-127 to 2^127 are exact; anything
// between rounds up to the next power, so that a block divided by its scale never overflows. Zero and everything below
// 2^-127 give 0x00, everything above 2^127 gives 0xFE; NaN and negative values, which the format cannot hold, give 0xFF.
func E8M0(f float32) byte {
	b := math.Float32bits(f)
	switch {
	case b&absMask32 > infBits32, b > signMask32:
		return 0xFF
	case b&absMask32 <= 0x00400000: // 2^-127 is the only power in float32's subnormal range that e8m0 holds
		return 0
	}
	return byte(min((b+0x7FFFFF)>>23, 254))
}

// FromE8M0 is 2^(b-127), or NaN for 0xFF.
func FromE8M0(b byte) float32 {
	switch b {
	case 0:
		return 0x1p-127
	case 0xFF:
		return float32(math.NaN())
	}
	return math.Float32frombits(uint32(b) << 23)
}

// E2M1 rounds f to float4 E2M1 (1-2-1, bias 1; magnitudes 0, .5, 1, 1.5, 2, 3, 4, 6), to nearest even, in the low nibble.
// Everything beyond ±6 saturates. The format has no NaN: a NaN gives +6, code 7.
func E2M1(f float32) byte {
	b := math.Float32bits(f)
	sign := byte(b >> 28 & 8)
	abs := b & absMask32
	switch {
	case abs > infBits32:
		return 7
	case abs >= 0x40C00000: // 6
		return sign | 7
	case abs < 0x3F800000: // below 1: the result counts halves
		return sign | byte(roundUnits(abs, 0x4A800000))
	}
	return sign | byte((abs-126<<23+0x1FFFFF+abs>>22&1)>>22)
}

// FromE2M1 is the value of the code in the low nibble; the high nibble is ignored.
func FromE2M1(n byte) float32 {
	return e2m1Values[n&15]
}

// PackE2M1 puts two codes in one byte: the even element in the low nibble, the odd one in the high nibble.
func PackE2M1(even, odd byte) byte {
	return even&15 | odd<<4
}

// UnpackE2M1 undoes PackE2M1.
func UnpackE2M1(b byte) (even, odd byte) {
	return b & 15, b >> 4
}
