// Package block decodes and encodes the block formats of GGUF files. A block has a fixed number of values with shared
// scales in a fixed number of bytes.
//
// Decoding converts the bytes of whole blocks to float32 values. These equal the values of ggml's decoders, because
// products of scales are rounded to float32 in the same order.
package block

import (
	"encoding/binary"
	"fmt"
	"math"

	"sparrow/internal/num"
)

// Format is one block format. The zero value is not a format.
type Format uint8

// The formats. A name contains the bits per value. K formats have blocks of 256 values, with scales for 16 or 32
// values. Values of IQ formats are indices into a table or a lattice. TQ formats have the values -1, 0 and 1.
const (
	Q4_0 Format = iota + 1
	Q4_1
	Q5_0
	Q5_1
	Q8_0
	Q2_K
	Q3_K
	Q4_K
	Q5_K
	Q6_K
	IQ4_NL
	IQ4_XS
	MXFP4
	IQ1_S
	IQ1_M
	IQ2_XXS
	IQ2_XS
	IQ2_S
	IQ3_XXS
	IQ3_S
	TQ1_0
	TQ2_0
	NVFP4
)

// formats holds, for each Format, its name, the values and the bytes of a block, and the decoder.
var formats = [...]struct {
	name   string
	values int
	bytes  int
	decode func(dst []float32, src []byte)
}{
	Q4_0:   {"Q4_0", 32, 18, decodeQ4_0},
	Q4_1:   {"Q4_1", 32, 20, decodeQ4_1},
	Q5_0:   {"Q5_0", 32, 22, decodeQ5_0},
	Q5_1:   {"Q5_1", 32, 24, decodeQ5_1},
	Q8_0:   {"Q8_0", 32, 34, decodeQ8_0},
	Q2_K:   {"Q2_K", 256, 84, decodeQ2K},
	Q3_K:   {"Q3_K", 256, 110, decodeQ3K},
	Q4_K:   {"Q4_K", 256, 144, decodeQ4K},
	Q5_K:   {"Q5_K", 256, 176, decodeQ5K},
	Q6_K:   {"Q6_K", 256, 210, decodeQ6K},
	IQ4_NL: {"IQ4_NL", 32, 18, decodeIQ4NL},
	IQ4_XS: {"IQ4_XS", 256, 136, decodeIQ4XS},
	MXFP4:  {"MXFP4", 32, 17, decodeMXFP4},

	IQ1_S:   {"IQ1_S", 256, 50, whole(readIQ1S)},
	IQ1_M:   {"IQ1_M", 256, 56, whole(readIQ1M)},
	IQ2_XXS: {"IQ2_XXS", 256, 66, whole(readIQ2XXS)},
	IQ2_XS:  {"IQ2_XS", 256, 74, whole(readIQ2XS)},
	IQ2_S:   {"IQ2_S", 256, 82, whole(readIQ2S)},
	IQ3_XXS: {"IQ3_XXS", 256, 98, whole(readIQ3XXS)},
	IQ3_S:   {"IQ3_S", 256, 110, whole(readIQ3S)},
	TQ1_0:   {"TQ1_0", 256, 54, whole(readTQ1)},
	TQ2_0:   {"TQ2_0", 256, 66, whole(readTQ2)},
	NVFP4:   {"NVFP4", 64, 36, decodeNVFP4},
}

// Formats returns all formats.
func Formats() []Format {
	list := make([]Format, 0, len(formats)-1)
	for f := Q4_0; int(f) < len(formats); f++ {
		list = append(list, f)
	}
	return list
}

func (f Format) String() string {
	if f.Valid() {
		return formats[f].name
	}
	return fmt.Sprintf("Format(%d)", uint8(f))
}

// Valid reports whether f is one of the formats.
func (f Format) Valid() bool { return f > 0 && int(f) < len(formats) }

// Values returns the number of values of a block.
func (f Format) Values() int { return formats[f].values }

// Bytes returns the size of a block in bytes.
func (f Format) Bytes() int { return formats[f].bytes }

// Decode writes the values of whole blocks to dst: len(dst) is a multiple of Values, and src contains as many blocks.
func (f Format) Decode(dst []float32, src []byte) {
	d := &formats[f]
	for len(dst) >= d.values {
		d.decode(dst[:d.values], src[:d.bytes])
		dst, src = dst[d.values:], src[d.bytes:]
	}
}

// half returns the little-endian float16 number at the start of b as float32.
func half(b []byte) float32 { return num.FromF16(binary.LittleEndian.Uint16(b)) }

func decodeQ4_0(dst []float32, src []byte) {
	d := half(src)
	for j, q := range src[2:18] {
		dst[j] = float32(int(q&15)-8) * d
		dst[j+16] = float32(int(q>>4)-8) * d
	}
}

func decodeQ4_1(dst []float32, src []byte) {
	d, m := half(src), half(src[2:])
	for j, q := range src[4:20] {
		dst[j] = float32(float32(q&15)*d) + m
		dst[j+16] = float32(float32(q>>4)*d) + m
	}
}

func decodeQ5_0(dst []float32, src []byte) {
	d, high := half(src), binary.LittleEndian.Uint32(src[2:])
	for j, q := range src[6:22] {
		dst[j] = float32(int(q&15)|int(high>>j&1)<<4-16) * d
		dst[j+16] = float32(int(q>>4)|int(high>>(j+16)&1)<<4-16) * d
	}
}

func decodeQ5_1(dst []float32, src []byte) {
	d, m, high := half(src), half(src[2:]), binary.LittleEndian.Uint32(src[4:])
	for j, q := range src[8:24] {
		dst[j] = float32(float32(int(q&15)|int(high>>j&1)<<4)*d) + m
		dst[j+16] = float32(float32(int(q>>4)|int(high>>(j+16)&1)<<4)*d) + m
	}
}

func decodeQ8_0(dst []float32, src []byte) {
	d := half(src)
	for j, q := range src[2:34] {
		dst[j] = float32(int8(q)) * d
	}
}

// decodeQ2K decodes blocks of 16 bytes of scales and minimums (4 bits each, one pair per 16 values), 64 bytes of 2-bit
// values, and the float16 scales d and dmin. A byte has four values whose positions differ by 32.
func decodeQ2K(dst []float32, src []byte) {
	scales, values := src[:16], src[16:80]
	d, low := half(src[80:]), half(src[82:])
	for run := range 16 { // 16 values per run
		group, part := run/8, run%8 // group of 128 values, and part of 16 values in it
		scale, least := d*float32(scales[run]&15), low*float32(scales[run]>>4)
		q := values[32*group+16*(part%2):]
		for l := range 16 {
			dst[16*run+l] = float32(scale*float32(q[l]>>(2*(part/2))&3)) - least
		}
	}
}

// decodeQ3K decodes blocks of 32 bytes of the high bits of values, 64 bytes of their two low bits, 12 bytes of sixteen
// 6-bit scales, and the float16 scale d.
func decodeQ3K(dst []float32, src []byte) {
	third, values, packed, d := src[:32], src[32:96], src[96:108], half(src[108:])
	for run := range 16 {
		group, part := run/8, run%8
		bits := packed[run%8] >> (4 * (run / 8)) & 15
		bits |= packed[8+run%4] >> (2 * (run / 4)) & 3 << 4
		scale := d * float32(int(bits)-32)
		at := 16 * (part % 2)
		mask := byte(1) << (4*group + part/2)
		for l := range 16 {
			q := int(values[32*group+at+l] >> (2 * (part / 2)) & 3)
			if third[at+l]&mask == 0 {
				q -= 4
			}
			dst[16*run+l] = scale * float32(q)
		}
	}
}

// scaleMin returns the 6-bit scale and minimum of group j of eight, from the 12 bytes of Q4_K and Q5_K.
func scaleMin(packed []byte, j int) (scale, least float32) {
	if j < 4 {
		return float32(packed[j] & 63), float32(packed[j+4] & 63)
	}
	return float32(packed[j+4]&15 | packed[j-4]>>6<<4), float32(packed[j+4]>>4 | packed[j]>>6<<4)
}

// decodeQ4K decodes blocks of the float16 scales d and dmin, 12 bytes of scales and minimums, and 128 bytes of 4-bit
// values; each 32 bytes have two groups of 32 values.
func decodeQ4K(dst []float32, src []byte) {
	d, low, packed, values := half(src), half(src[2:]), src[4:16], src[16:144]
	for j := range 8 {
		scale, least := scaleMin(packed, j)
		scale, least = d*scale, low*least
		for l, q := range values[32*(j/2) : 32*(j/2)+32] {
			dst[32*j+l] = float32(scale*float32(q>>(4*(j%2))&15)) - least
		}
	}
}

// decodeQ5K decodes blocks like those of Q4_K, with 32 bytes of the high bits of values before the 4-bit values; bit j
// of each byte belongs to group j.
func decodeQ5K(dst []float32, src []byte) {
	d, low, packed, fifth, values := half(src), half(src[2:]), src[4:16], src[16:48], src[48:176]
	for j := range 8 {
		scale, least := scaleMin(packed, j)
		scale, least = d*scale, low*least
		for l, q := range values[32*(j/2) : 32*(j/2)+32] {
			v := q>>(4*(j%2))&15 | fifth[l]>>j&1<<4
			dst[32*j+l] = float32(scale*float32(v)) - least
		}
	}
}

// decodeQ6K decodes blocks of 128 bytes of the low nibbles of values, 64 bytes of their high bit pairs, 16 signed
// scales for 16 values each, and the float16 scale d.
func decodeQ6K(dst []float32, src []byte) {
	lows, highs, scales, d := src[:128], src[128:192], src[192:208], half(src[208:])
	for run := range 8 { // 32 values per run
		group, part := run/4, run%4 // group of 128 values, and part of 32 values in it
		for l := range 32 {
			q := lows[64*group+32*(part%2)+l] >> (4 * (part / 2)) & 15
			q |= highs[32*group+l] >> (2 * part) & 3 << 4
			scale := d * float32(int8(scales[2*run+l/16]))
			dst[32*run+l] = scale * float32(int(q)-32)
		}
	}
}

// nonlinear is the table of the sixteen values of IQ4_NL and IQ4_XS, before scaling.
var nonlinear = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// lookUp writes 32 values: table entries times scale. 16 bytes hold their indices, low nibbles first.
func lookUp(dst []float32, codes []byte, table *[16]float32, scale float32) {
	for j, q := range codes[:16] {
		dst[j] = scale * table[q&15]
		dst[j+16] = scale * table[q>>4]
	}
}

func decodeIQ4NL(dst []float32, src []byte) { lookUp(dst, src[2:], &nonlinear, half(src)) }

// decodeIQ4XS decodes blocks of the float16 scale d, 16 bits with the high bit pairs of eight 6-bit scales, 4 bytes
// with their low nibbles, and 128 bytes of 4-bit indices.
func decodeIQ4XS(dst []float32, src []byte) {
	d, upper, lower := half(src), binary.LittleEndian.Uint16(src[2:]), src[4:8]
	for j := range 8 {
		bits := int(lower[j/2]>>(4*(j%2))&15) | int(upper>>(2*j)&3)<<4
		lookUp(dst[32*j:], src[8+16*j:], &nonlinear, d*float32(bits-32))
	}
}

// twiceE2M1 is the table of e2m1 values times two; scales are halved to compensate.
var twiceE2M1 = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// decodeMXFP4 decodes blocks of a power-of-two scale and 16 bytes of e2m1 codes.
func decodeMXFP4(dst []float32, src []byte) {
	// The scale is 2^(e-128), which float32 represents for every byte e; the two smallest are subnormal.
	lookUp(dst, src[1:], &twiceE2M1, float32(math.Ldexp(1, int(src[0])-128)))
}

// decodeNVFP4 decodes blocks of four e4m3 scales, for 16 values each, and four times eight bytes of e2m1 codes, low
// nibbles first. The sign of a scale is ignored, and NaN means zero.
func decodeNVFP4(dst []float32, src []byte) {
	for g, scale := range src[:4] {
		d := num.FromE4M3(scale&127) / 2
		if scale&127 == 127 {
			d = 0
		}
		for j, q := range src[4+8*g:][:8] {
			dst[16*g+j] = d * twiceE2M1[q&15]
			dst[16*g+8+j] = d * twiceE2M1[q>>4]
		}
	}
}
