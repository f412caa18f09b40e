package block

import (
	"encoding/base64"
	"encoding/binary"
	"math/bits"
)

// Formats of one to three bits. A value is part of a lattice point: an index into a grid gives eight or four values,
// and signs are stored separately. Grid values times integer scales are integers, so that all these formats can be read
// as [Whole].

// An octet is a grid point of eight values, one byte each; a quad has four. The first value is in the lowest byte.
type (
	octet = uint64
	quad  = uint32
)

// Grids. Those of IQ1 hold eight times their values, because 1/8 is added to each value.
var (
	octetsIQ2XXS = octets(gridIQ2XXS, [4]int8{8, 25, 43})
	octetsIQ2XS  = octets(gridIQ2XS, [4]int8{8, 25, 43})
	octetsIQ2S   = octets(gridIQ2S, [4]int8{8, 25, 43})
	octetsIQ1    = octets(gridIQ1, [4]int8{-8, 0, 8})
	quadsIQ3XXS  = quads(gridIQ3XXS, [8]int8{4, 12, 20, 28, 36, 44, 52, 62})
	quadsIQ3S    = quads(gridIQ3S, [8]int8{1, 3, 5, 7, 9, 11, 13, 15})
)

// Octets returns the grid of a format with eight values per index, or nil for other formats.
func (f Format) Octets() []uint64 {
	switch f {
	case IQ1_S, IQ1_M:
		return octetsIQ1
	case IQ2_XXS:
		return octetsIQ2XXS
	case IQ2_XS:
		return octetsIQ2XS
	case IQ2_S:
		return octetsIQ2S
	}
	return nil
}

// Quads returns the grid of a format with four values per index, or nil for other formats.
func (f Format) Quads() []uint32 {
	switch f {
	case IQ3_XXS:
		return quadsIQ3XXS
	case IQ3_S:
		return quadsIQ3S
	}
	return nil
}

// unbase64 decodes a base64 constant of this package.
func unbase64(text string) []byte {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		panic("block: grid: " + err.Error())
	}
	return b
}

// octets unpacks a grid of 2-bit codes; values maps codes to grid values.
func octets(text string, values [4]int8) []octet {
	packed := unbase64(text)
	grid := make([]octet, len(packed)/2)
	for i := range grid {
		codes := binary.LittleEndian.Uint16(packed[2*i:])
		for j := range 8 {
			grid[i] |= octet(uint8(values[codes>>(2*j)&3])) << (8 * j)
		}
	}
	return grid
}

// quads unpacks a grid of 4-bit codes; values maps codes to grid values.
func quads(text string, values [8]int8) []quad {
	packed := unbase64(text)
	grid := make([]quad, len(packed)/2)
	for i := range grid {
		codes := binary.LittleEndian.Uint16(packed[2*i:])
		for j := range 4 {
			grid[i] |= quad(uint8(values[codes>>(4*j)&7])) << (8 * j)
		}
	}
	return grid
}

// signsOf returns the eight signs that seven bits represent. The eighth sign is such that the number of negative values
// is even.
func signsOf(seven uint32) byte {
	seven &= 127
	return byte(seven | uint32(bits.OnesCount32(seven))&1<<7)
}

// Whole is a block of 256 values as integers: value i is D*Scales[i/16]*Codes[i].
type Whole struct {
	D      float32
	Scales [16]int8
	Codes  [256]int8
}

// point writes values 8*o to 8*o+7 of the block. A set bit of signs negates its value.
func (w *Whole) point(o int, p octet, signs byte) {
	to := w.Codes[8*o:][:8]
	for j := range to {
		v := int8(p >> (8 * j))
		if signs>>j&1 != 0 {
			v = -v
		}
		to[j] = v
	}
}

// points writes values 8*o to 8*o+7 of the block from two quads.
func (w *Whole) points(o int, low, high quad, signs byte) {
	w.point(o, octet(low)|octet(high)<<32, signs)
}

// nibble returns nibble i of b; the low nibble of a byte is first.
func nibble(b []byte, i int) byte { return b[i/2] >> (4 * (i % 2)) & 15 }

// decode writes the values to dst. The products are exact in float32.
func (w *Whole) decode(dst []float32) {
	for i, c := range w.Codes {
		dst[i] = w.D * float32(int(w.Scales[i/16])*int(c))
	}
}

// Read reads a block of format f; it returns false unless f is a format of one to three bits.
func (w *Whole) Read(f Format, src []byte) bool {
	if int(f) >= len(wholes) || wholes[f] == nil {
		return false
	}
	wholes[f](w, src)
	return true
}

var wholes = [...]func(*Whole, []byte){IQ1_S: readIQ1S, IQ1_M: readIQ1M, IQ2_XXS: readIQ2XXS, IQ2_XS: readIQ2XS,
	IQ2_S: readIQ2S, IQ3_XXS: readIQ3XXS, IQ3_S: readIQ3S, TQ1_0: readTQ1, TQ2_0: readTQ2}

// whole returns the float32 decoder for a format that read converts to integers.
func whole(read func(w *Whole, src []byte)) func(dst []float32, src []byte) {
	return func(dst []float32, src []byte) {
		var w Whole
		read(&w, src)
		w.decode(dst)
	}
}

// readIQ2XXS reads a block of the float16 scale d and, for each 32 values, four indices of one byte and 32 bits with
// four 7-bit sign codes and a 4-bit scale.
func readIQ2XXS(w *Whole, src []byte) {
	w.D = half(src) / 8
	for g := range 8 {
		at := src[2+8*g:][:8]
		word := binary.LittleEndian.Uint32(at[4:])
		for k := range 4 {
			w.point(4*g+k, octetsIQ2XXS[at[k]], signsOf(word>>(7*k)))
		}
		w.Scales[2*g] = int8(2*(word>>28) + 1)
		w.Scales[2*g+1] = w.Scales[2*g]
	}
}

// scales4 reads sixteen 4-bit scales, as IQ2_XS and IQ2_S store them.
func (w *Whole) scales4(src []byte) {
	for i := range w.Scales {
		w.Scales[i] = int8(2*nibble(src, i) + 1)
	}
}

// readIQ2XS reads a block of the float16 scale d, 32 words with a 9-bit index and a 7-bit sign code each, and eight
// bytes of 4-bit scales for 16 values each.
func readIQ2XS(w *Whole, src []byte) {
	w.D = half(src) / 8
	for o := range 32 {
		word := binary.LittleEndian.Uint16(src[2+2*o:])
		w.point(o, octetsIQ2XS[word&511], signsOf(uint32(word>>9)))
	}
	w.scales4(src[66:])
}

// readIQ2S reads a block. It has the float16 scale d, 32 bytes of indices, 32 bytes of signs, eight bytes with the
// upper two bits of four indices each, and eight bytes of 4-bit scales for 16 values each.
func readIQ2S(w *Whole, src []byte) {
	w.D = half(src) / 8
	low, signs, high := src[2:34], src[34:66], src[66:74]
	for o := range 32 {
		index := int(low[o]) | int(high[o/4]>>(2*(o%4))&3)<<8
		w.point(o, octetsIQ2S[index], signs[o])
	}
	w.scales4(src[74:])
}

// readIQ3XXS reads a block of the float16 scale d, 64 one-byte indices of four values each, and eight words with four
// 7-bit sign codes and a 4-bit scale.
func readIQ3XXS(w *Whole, src []byte) {
	w.D = half(src) / 4
	for g := range 8 {
		word := binary.LittleEndian.Uint32(src[66+4*g:])
		for k := range 4 {
			at := src[2+8*g+2*k:]
			w.points(4*g+k, quadsIQ3XXS[at[0]], quadsIQ3XXS[at[1]], signsOf(word>>(7*k)))
		}
		w.Scales[2*g] = int8(2*(word>>28) + 1)
		w.Scales[2*g+1] = w.Scales[2*g]
	}
}

// readIQ3S reads a block. It has the float16 scale d, 64 bytes of indices, eight bytes with the ninth bits of eight
// indices each, 32 bytes of signs, and four bytes of 4-bit scales for 32 values each.
func readIQ3S(w *Whole, src []byte) {
	w.D = half(src)
	low, high, signs := src[2:66], src[66:74], src[74:106]
	index := func(i int) int { return int(low[i]) | int(high[i/8]>>(i%8)&1)<<8 }
	for o := range 32 {
		w.points(o, quadsIQ3S[index(2*o)], quadsIQ3S[index(2*o+1)], signs[o])
	}
	for i := range w.Scales {
		w.Scales[i] = int8(2*nibble(src[106:], i/2) + 1)
	}
}

// add adds one to the codes of values 8*o to 8*o+7, or subtracts one if lower is set.
func (w *Whole) add(o int, lower bool) {
	to := w.Codes[8*o:][:8]
	for j := range to {
		if lower {
			to[j]--
		} else {
			to[j]++
		}
	}
}

// readIQ1S reads a block of the float16 scale d, 32 bytes of indices, and eight words, one per 32 values: the upper
// three bits of four indices, a 3-bit scale, and a bit that is set if 1/8 is subtracted from the values instead of
// added.
func readIQ1S(w *Whole, src []byte) {
	w.D = half(src) / 8
	for g := range 8 {
		word := binary.LittleEndian.Uint16(src[34+2*g:])
		for k := range 4 {
			index := int(src[2+4*g+k]) | int(word>>(3*k)&7)<<8
			w.point(4*g+k, octetsIQ1[index], 0)
			w.add(4*g+k, word>>15 != 0)
		}
		w.Scales[2*g] = int8(2*(word>>12&7) + 1)
		w.Scales[2*g+1] = w.Scales[2*g]
	}
}

// readIQ1M reads a block of 32 bytes of indices; a nibble for each octet with the upper three bits of its index and a
// bit that is set if 1/8 is subtracted; and four words with four 3-bit scales and four bits of d each.
func readIQ1M(w *Whole, src []byte) {
	var d uint16
	for k := range 4 {
		word := binary.LittleEndian.Uint16(src[48+2*k:])
		d |= word >> 12 << (4 * k)
		for i := range 4 {
			w.Scales[4*k+i] = int8(2*(word>>(3*i)&7) + 1)
		}
	}
	w.D = half(binary.LittleEndian.AppendUint16(nil, d)) / 8
	for o := range 32 {
		n := nibble(src[32:48], o)
		w.point(o, octetsIQ1[int(src[o])|int(n&7)<<8], 0)
		w.add(o, n&8 != 0)
	}
}

// ones sets all scales to one, for formats that have only the scale d.
func (w *Whole) ones() {
	for i := range w.Scales {
		w.Scales[i] = 1
	}
}

// readTQ1 reads a block of 52 bytes of base-3 digits, the highest digit of a byte first, and the float16 scale d. A
// digit is a value plus one. The positions of the values of a byte differ by 32 in the first 32 bytes, by 16 in the
// next 16, and by 4 in the last 4.
func readTQ1(w *Whole, src []byte) {
	w.D = half(src[52:])
	w.ones()
	digits := func(to int, from []byte, count int) {
		for j, x := range from {
			for n := range count {
				w.Codes[to+len(from)*n+j] = int8(uint(x)*3>>8) - 1
				x *= 3
			}
		}
	}
	digits(0, src[:32], 5)
	digits(160, src[32:48], 5)
	digits(240, src[48:52], 4)
}

// readTQ2 reads a block of 64 bytes, each with four 2-bit values whose positions differ by 32, and the float16 scale d.
func readTQ2(w *Whole, src []byte) {
	w.D = half(src[64:])
	w.ones()
	for i := range w.Codes {
		w.Codes[i] = int8(src[i/128*32+i%32]>>(2*(i/32%4))&3) - 1
	}
}
