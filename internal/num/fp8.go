package num

import "math"

// MaxE4M3 is the largest finite e4m3 value, code 0x7E.
const MaxE4M3 = 448

// maxE4M3Bits is 448 as a float32.
const maxE4M3Bits = 0x43E00000

// e4m3Values has the value of each code; codes 0x7F and 0xFF are NaN.
var e4m3Values = e4m3Table()

// E4M3 rounds f to float8 E4M3FN (1-4-3, bias 7, no infinity), to nearest even. Values beyond ±448, including infinity,
// saturate to ±448; NaN becomes 0x7F with its sign.
func E4M3(f float32) byte {
	b := math.Float32bits(f)
	if b&absMask32 > infBits32 {
		return byte(b>>24) | 0x7F
	}
	return e4m3Number(b)
}

// e4m3Number is E4M3 for float32 bits that are not NaN. It has no branches and is small enough to be inlined.
//
// One step of the format is 2^(e-3), where e is the value's exponent but at least -6 (biased 121): values below 2^-6
// are subnormal. In the sum with 2^(e+20), whose last mantissa bit is one step, the mantissa is the rounded number of
// steps. Every exponent has 8 codes.
func e4m3Number(b uint32) byte {
	abs := min(b&absMask32, maxE4M3Bits)
	exp := max(abs>>23, 121)
	return byte(b>>24)&0x80 | byte(roundUnits(abs, (exp+20)<<23)+(exp-121)<<3)
}

// FromE4M3 returns the exact value of an e4m3 code; NaN for 0x7F and 0xFF.
func FromE4M3(b byte) float32 {
	return e4m3Values[b]
}

func e4m3Table() (t [256]float32) {
	for c := range t {
		exp, man := c>>3&15, c&7
		v := math.Ldexp(float64(8+man), exp-10)
		switch {
		case exp == 0:
			v = math.Ldexp(float64(man), -9)
		case c&0x7F == 0x7F:
			v = math.NaN()
		}
		if c&0x80 != 0 {
			v = math.Copysign(v, -1)
		}
		t[c] = float32(v)
	}
	return t
}
