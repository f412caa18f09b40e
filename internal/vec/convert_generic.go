package vec

import (
	"encoding/binary"
	"math"

	"sparrow/internal/num"
)

func widenBF16Go(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

func widenF16Go(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = num.FromF16(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func widenE4M3Go(dst []float32, src []byte, scale float32) {
	for i, b := range src {
		dst[i] = e4m3[b] * scale
	}
}

func widenGroupsGo(dst []float32, src []byte, scales Groups, size int) {
	for i, at := 0, 0; at < len(dst); i, at = i+1, at+size {
		to := min(at+size, len(dst))
		widenE4M3Go(dst[at:to], src[at:to], scales[i])
	}
}

// widenRowGo widens row r of block-scaled e4m3 weights.
func widenRowGo(dst []float32, src []byte, scale FP8Blocks, r int) {
	scales := scale.row(r)
	for at := 0; at < len(src); at += scale.Cols {
		end := min(at+scale.Cols, len(src))
		widenE4M3Go(dst[at:end], src[at:end], scales[at/scale.Cols])
	}
}

func narrowBF16Go(dst []byte, src []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], narrowOne(v))
	}
}

// narrowOne rounds to bfloat16. It adds half a unit minus one, plus the lowest bit of the result, which carries exactly
// if nearest-even rounds up. NaN is handled separately, because the carry could turn it into an infinity or a number.
func narrowOne(v float32) uint16 {
	b := math.Float32bits(v)
	if v != v {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7FFF + b>>16&1) >> 16)
}

// e4m3 has the value of every code: sign, 4 exponent bits with bias 7, 3 mantissa bits. There are no infinities; codes
// whose other seven bits are ones are NaN.
var e4m3 = func() (table [256]float32) {
	for code := range table {
		exp, man := code>>3&15, code&7
		v := math.Ldexp(float64(8+man), exp-10)
		switch {
		case code&0x7F == 0x7F:
			v = math.NaN()
		case exp == 0:
			v = math.Ldexp(float64(man), -9)
		}
		if code&0x80 != 0 {
			v = math.Copysign(v, -1)
		}
		table[code] = float32(v)
	}
	return table
}()
