package num

import "math"

// MaxE2M1 is the largest finite value of e2m1.
const MaxE2M1 = 6

// e2m1Values holds the value of each 4-bit code; bit 3 is the sign.
var e2m1Values = [16]float32{
	0, 0.5, 1, 1.5, 2, 3, 4, 6,
	float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6,
}

// E8M0 encodes a scale as an exponent byte, value 2^(b-127). Powers of two from 2^-127 to 2^127 are exact. Other values
// in this range are rounded up to the next power, so that a block divided by its scale does not overflow. Zero and
// values below 2^-127 give 0x00, and values above 2^127 give 0xFE. NaN and negative values, which the format cannot
// represent, give 0xFF.
func E8M0(f float32) byte {
	b := math.Float32bits(f)
	switch {
	case b&absMask32 > infBits32, b > signMask32:
		return 0xFF
	case b&absMask32 <= 0x00400000: // 2^-127 is the only float32 subnormal that e8m0 represents
		return 0
	}
	return byte(min((b+0x7FFFFF)>>23, 254))
}

// FromE8M0 returns 2^(b-127), or NaN for 0xFF.
func FromE8M0(b byte) float32 {
	switch b {
	case 0:
		return 0x1p-127
	case 0xFF:
		return float32(math.NaN())
	}
	return math.Float32frombits(uint32(b) << 23)
}

// E2M1 rounds f to float4 E2M1 (1-2-1, bias 1; magnitudes 0, .5, 1, 1.5, 2, 3, 4, 6), to nearest even, in the low
// nibble. Values beyond ±6 saturate. The format has no NaN: a NaN gives +6, code 7.
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

// FromE2M1 returns the value of the code in the low nibble; the high nibble is ignored.
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

// e2m1Pairs holds the values of the two codes of every byte, the even element first.
var e2m1Pairs = func() (t [256][2]float32) {
	for b := range t {
		even, odd := UnpackE2M1(byte(b))
		t[b] = [2]float32{FromE2M1(even), FromE2M1(odd)}
	}
	return t
}()

// QuantE2M1 quantises a group into pairs of codes, dst[:len(src)/2], and returns the code of its scale: the power of
// two at or above amax/6, with amax at least 1e-4. The scale treats infinities and NaN like QuantE4M3. The format has
// no NaN, so a NaN becomes the largest value.
func QuantE2M1(dst []byte, src []float32) byte {
	e := E8M0(CeilPow2(max(amax(src), amaxFloor) / MaxE2M1))
	scale := FromE8M0(e)
	for i := range dst[:len(src)/2] {
		dst[i] = PackE2M1(E2M1(src[2*i]/scale), E2M1(src[2*i+1]/scale))
	}
	return e
}

// DequantE2M1 writes the values of pairs of codes, with their group's exponent, to dst: two values for each byte. It is
// exact.
func DequantE2M1(dst []float32, src []byte, e byte) {
	scale := FromE8M0(e)
	for i, b := range src {
		pair := &e2m1Pairs[b]
		dst[2*i], dst[2*i+1] = pair[0]*scale, pair[1]*scale
	}
}

// RoundE2M1 rounds values, group by group, to values that QuantE2M1 can represent. group is an even number of values,
// at most 128.
func RoundE2M1(v []float32, group int) {
	var packed [64]byte
	for ; len(v) >= group; v = v[group:] {
		e := QuantE2M1(packed[:group/2], v[:group])
		DequantE2M1(v[:group], packed[:group/2], e)
	}
}
