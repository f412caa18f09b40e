package block

import (
	"encoding/binary"
	"math"
	"slices"

	"sparrow/internal/num"
)

// encoders holds the encoders of the formats that can be written. importance is nil, or holds for each value the mean
// square of the input that a product multiplies it by.
var encoders = map[Format]func(dst []byte, src, importance []float32){
	Q4_0: encodeQ4_0, Q5_0: encodeQ5_0, Q8_0: encodeQ8_0, Q2_K: encodeQ2K, Q3_K: encodeQ3K, Q4_K: encodeQ4K,
	Q5_K: encodeQ5K, Q6_K: encodeQ6K, IQ4_NL: encodeIQ4NL, IQ4_XS: encodeIQ4XS,
	IQ2_XXS: lattices[IQ2_XXS].encode, IQ2_XS: lattices[IQ2_XS].encode, IQ2_S: lattices[IQ2_S].encode,
	IQ3_XXS: lattices[IQ3_XXS].encode, IQ3_S: lattices[IQ3_S].encode,
}

// CanEncode reports whether Encode supports the format.
func (f Format) CanEncode() bool { return encoders[f] != nil }

// Weighs reports whether Encode uses an importance for the format. Q4_0, Q5_0 and Q8_0 do not: their scales follow from
// the largest value.
func (f Format) Weighs() bool { return f.CanEncode() && f != Q4_0 && f != Q5_0 && f != Q8_0 }

// Encode writes values as whole blocks: len(src) is a multiple of Values, and dst has space for as many blocks. Q4_0,
// Q5_0 and Q8_0 give the bytes of ggml's encoders; the other formats use another search for scales.
//
// importance is nil, or holds the mean squares of the inputs of one row; its length is that of a row. Errors of values
// with large inputs then count more. Only formats for which [Format.Weighs] is true use it.
func (f Format) Encode(dst []byte, src, importance []float32) {
	encode := encoders[f]
	n, size := f.Values(), f.Bytes()
	for i := 0; i+n <= len(src); i += n {
		var of []float32
		if importance != nil {
			of = importance[i%len(importance):][:n]
		}
		encode(dst[i/n*size:][:size], src[i:][:n], of)
	}
}

// part returns n importances from the given index on, or nil without importances.
func part(importance []float32, from, n int) []float32 {
	if importance == nil {
		return nil
	}
	return importance[from:][:n]
}

func putHalf(b []byte, v float32) { binary.LittleEndian.PutUint16(b, num.F16(v)) }

// inverse returns 1/v, or 0 if v is 0, the scale of a block of zeros.
func inverse(v float32) float32 {
	if v == 0 {
		return 0
	}
	return 1 / v
}

// furthest returns the value with the largest magnitude; of several, the first one.
func furthest(src []float32) (most float32) {
	for _, v := range src {
		if abs(v) > abs(most) {
			most = v
		}
	}
	return most
}

func abs(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }

func encodeQ8_0(dst []byte, src, _ []float32) {
	d := abs(furthest(src)) / 127
	inv := inverse(d)
	putHalf(dst, d)
	for i, v := range src {
		q := float64(v * inv)
		dst[2+i] = byte(int8(q + math.Copysign(0.5, q))) // halves away from zero; the sum is exact in float64
	}
}

func encodeQ4_0(dst []byte, src, _ []float32) {
	d := furthest(src) / -8
	inv := inverse(d)
	putHalf(dst, d)
	code := func(v float32) byte { return min(15, byte(int8(float32(v*inv)+8.5))) }
	for j := range 16 {
		dst[2+j] = code(src[j]) | code(src[j+16])<<4
	}
}

func encodeQ5_0(dst []byte, src, _ []float32) {
	d := furthest(src) / -16
	inv := inverse(d)
	putHalf(dst, d)
	code := func(v float32) byte { return min(31, byte(int8(float32(v*inv)+16.5))) }
	high := uint32(0)
	for j := range 16 {
		a, b := code(src[j]), code(src[j+16])
		dst[6+j] = a&15 | b&15<<4
		high |= uint32(a>>4)<<j | uint32(b>>4)<<(j+16)
	}
	binary.LittleEndian.PutUint32(dst[2:], high)
}

// nearest returns v rounded to the nearest integer in [low, high], halves to even. For |v| above 2^22 the rounding
// fails, but the result is then limited to low or high. v is rounded to float32 first: otherwise processors with fused
// multiply-add would not round a product before the addition.
func nearest(v, low, high float32) int {
	q := float32(float32(v)+wholeAt) - wholeAt
	if q > high {
		q = high
	}
	if q < low {
		q = low
	}
	return int(q)
}

func encodeQ4K(dst []byte, src, importance []float32) {
	values := dst[16:144]
	sixBitScales(dst, src, importance, 15, func(i, code int) {
		values[i/64*32+i%32] |= byte(code) << (4 * (i / 32 % 2))
	})
}

func encodeQ5K(dst []byte, src, importance []float32) {
	fifth, values := dst[16:48], dst[48:176]
	sixBitScales(dst, src, importance, 31, func(i, code int) {
		values[i/64*32+i%32] |= byte(code&15) << (4 * (i / 32 % 2))
		fifth[i%32] |= byte(code>>4) << (i / 32)
	})
}

// sixBitScales writes d, dmin, and the 6-bit scales and minimums of each 32 values in the form of Q4_K and Q5_K. It
// calls put with each code, from 0 to top. The rest of dst must be zero.
func sixBitScales(dst []byte, src, importance []float32, top int, put func(i, code int)) {
	var search lanes
	scales, leasts := search.affine(src, importance, top)
	d, low := slices.Max(scales[:])/63, slices.Max(leasts[:])/63
	putHalf(dst, d)
	putHalf(dst[2:], low)
	d, low = half(dst), half(dst[2:])
	packed := dst[4:16]
	clear(dst[4:])
	for j := range 8 {
		s, m := byte(nearest(scales[j]*inverse(d), 0, 63)), byte(nearest(leasts[j]*inverse(low), 0, 63))
		if j < 4 {
			packed[j] |= s
			packed[j+4] |= m
		} else {
			packed[j+4] |= s&15 | m&15<<4
			packed[j-4] |= s >> 4 << 6
			packed[j] |= m >> 4 << 6
		}
		scale, least := d*float32(s), low*float32(m)
		inv := inverse(scale)
		for l := 32 * j; l < 32*j+32; l++ {
			put(l, nearest((src[l]+least)*inv, 0, float32(top)))
		}
	}
}

// encodeQ2K encodes blocks with 4-bit scales and minimums for 16 values each. The search takes 32 values, so every
// value is passed twice.
func encodeQ2K(dst []byte, src, importance []float32) {
	var search lanes
	var scales, leasts [16]float32
	var twice, inputs [256]float32
	for h := range 2 {
		for i := range twice {
			twice[i] = src[128*h+i/2]
		}
		var of []float32
		if importance != nil {
			for i := range inputs {
				inputs[i] = importance[128*h+i/2]
			}
			of = inputs[:]
		}
		s, m := search.affine(twice[:], of, 3)
		copy(scales[8*h:], s[:])
		copy(leasts[8*h:], m[:])
	}
	clear(dst)
	putHalf(dst[80:], slices.Max(scales[:])/15)
	putHalf(dst[82:], slices.Max(leasts[:])/15)
	d, low := half(dst[80:]), half(dst[82:])
	for j := range 16 {
		s, m := nearest(scales[j]*inverse(d), 0, 15), nearest(leasts[j]*inverse(low), 0, 15)
		dst[j] = byte(s | m<<4)
		least, inv := low*float32(m), inverse(d*float32(s))
		for i := 16 * j; i < 16*j+16; i++ {
			dst[16+i/128*32+i%32] |= byte(nearest((src[i]+least)*inv, 0, 3)) << (2 * (i / 32 % 4))
		}
	}
}

func encodeQ6K(dst []byte, src, importance []float32) {
	var search lanes
	var scales [16]float32
	for h := range 2 {
		half := search.symmetric(src[128*h:][:128], part(importance, 128*h, 128))
		copy(scales[8*h:], half[:])
	}
	d := furthest(scales[:]) / -128
	lows, highs, packed := dst[:128], dst[128:192], dst[192:208]
	clear(dst)
	putHalf(dst[208:], d)
	d = half(dst[208:])
	var inverses [16]float32
	for j := range inverses {
		s := nearest(scales[j]*inverse(d), -128, 127)
		packed[j], inverses[j] = byte(int8(s)), inverse(d*float32(s))
	}
	for run := range 8 {
		group, part := run/4, run%4
		for l := range 32 {
			q := byte(nearest(src[32*run+l]*inverses[2*run+l/16], -32, 31) + 32)
			lows[64*group+32*(part%2)+l] |= q & 15 << (4 * (part / 2))
			highs[32*group+l] |= q >> 4 << (2 * part)
		}
	}
}
