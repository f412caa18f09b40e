package vec

import (
	"encoding/binary"
	"math"

	"sparrow/internal/block"
	"sparrow/internal/num"
)

// portableBlocks is the reference implementation of products with block formats.
var portableBlocks = &blockOps{together: 1, quant: quantRowGo, mul: mulBlocksGo, groups: portableGroups}

// leastQuant is the bit pattern of 2^-100. If the largest magnitude of a group is below it, all codes are zero, because
// 127 divided by the magnitude could overflow.
const leastQuant = (127 - 100) << 23

// quantRowGo quantises a row. The scale of a group is its largest magnitude divided by 127, and codes are rounded to
// the nearest integer, ties to even. A group with an infinity or a NaN has the scale NaN.
func quantRowGo(q quantRow, x []float32, group int) {
	for g := range len(x) / group {
		quantGroupGo(q, x[g*group:][:group], g, group)
	}
	clear(q.codes[len(x):])
	clear(q.scales[4*len(x)/group:])
}

func quantGroupGo(q quantRow, x []float32, g, group int) {
	var top uint32
	for _, v := range x {
		top = max(top, math.Float32bits(v)&^(1<<31))
	}
	most := math.Float32frombits(top)
	inverse := 127 / most
	if top < leastQuant {
		inverse = 0
	}
	codes := q.codes[g*group:][:group]
	for i, v := range x {
		codes[i] = byte(code8(v * inverse))
	}
	binary.LittleEndian.PutUint32(q.scales[4*g:], math.Float32bits(most/127+(most-most)))
	if group == 32 {
		binary.LittleEndian.PutUint32(q.sums[4*g:], uint32(sumCodes(codes)))
		return
	}
	for i := range 16 {
		binary.LittleEndian.PutUint16(q.sums[32*g+2*i:], uint16(sumCodes(codes[16*i:][:16])))
	}
	for i := range 8 {
		sum := float32(sumCodes(codes[32*i:][:32]))
		high := math.Float32frombits(math.Float32bits(sum) &^ 0xFFFF)
		binary.LittleEndian.PutUint16(q.parts[32*g+2*i:], uint16(math.Float32bits(high)>>16))
		binary.LittleEndian.PutUint16(q.parts[32*g+16+2*i:], uint16(math.Float32bits(sum-high)>>16))
	}
}

// code8 rounds v to an int8 as the conversion instruction of the processor does: a number outside the range of int32
// becomes the smallest int32.
func code8(v float32) int8 {
	r := math.RoundToEven(float64(v))
	if !(r > -129 && r < 128) {
		return -128
	}
	return int8(r)
}

func sumCodes(codes []byte) (sum int32) {
	for _, c := range codes {
		sum += int32(int8(c))
	}
	return sum
}

// plainBlock is a block of unpacked weights. In formats with blocks of 256 values, value i is d·v[i] - dmin·m[i/16]. In
// formats with blocks of 32 values it is d·v[i] + dmin.
type plainBlock struct {
	d, dmin float32
	v       [256]int32
	m       [16]int32
}

func mulBlocksGo(c BlockCut, f block.Format, w []byte, ldw int) {
	values, blocks := f.Values(), c.X.k/f.Values()
	row := make([]plainBlock, blocks)
	for n := range c.N {
		for b := range row {
			row[b].read(f, w[n*ldw+b*f.Bytes():][:f.Bytes()])
		}
		for m := c.M0; m < c.M1; m++ {
			x := c.X.row(c.X.unit(m))
			y := float32(0)
			for b := range row {
				dx := math.Float32frombits(binary.LittleEndian.Uint32(x.scales[4*b:]))
				codes := x.codes[b*values:][:values]
				if y = row[b].add(y, codes, dx); values == 32 && unpacked(f) {
					y = fma32(float32(sumCodes(codes)), row[b].dmin*dx, y)
				}
			}
			to := &c.Y[(m-c.M0)*c.Ldy+n]
			if c.Add {
				y += *to
			}
			*to = y
		}
	}
}

// add returns y plus the product of the block and codes with scale dx.
func (b *plainBlock) add(y float32, codes []byte, dx float32) float32 {
	var sum, least int32
	for i, c := range codes {
		sum += b.v[i] * int32(int8(c))
	}
	if len(codes) == 32 {
		return fma32(float32(sum), b.d*dx, y)
	}
	for j, m := range b.m {
		least += m * sumCodes(codes[16*j:][:16])
	}
	return fma32(fma32(b.d, float32(sum), -(b.dmin*float32(least))), dx, y)
}

func (b *plainBlock) read(f block.Format, src []byte) {
	half := func(at int) float32 { return num.FromF16(binary.LittleEndian.Uint16(src[at:])) }
	switch f {
	case block.Q8_0:
		b.d = half(0)
		for i, q := range src[2:] {
			b.v[i] = int32(int8(q))
		}
	case block.Q4_0:
		b.d = half(0)
		for i, q := range src[2:] {
			b.v[i], b.v[16+i] = int32(q&15)-8, int32(q>>4)-8
		}
	case block.MXFP4:
		b.d = float32(math.Ldexp(1, int(src[0])-128))
		for i, q := range src[1:] {
			b.v[i], b.v[16+i] = twiceE2M1[q&15], twiceE2M1[q>>4]
		}
	case block.Q4_K:
		b.d, b.dmin = half(0), half(2)
		for j := range 8 {
			scale, least := scaleMin(src[4:16], j)
			b.m[2*j], b.m[2*j+1] = least, least
			for i, q := range src[16+32*(j/2):][:32] {
				b.v[32*j+i] = int32(scale) * int32(q>>(4*(j%2))&15)
			}
		}
	case block.Q6_K:
		b.d = half(208)
		for i := range b.v {
			group, part, l := i/128, i/32%4, i%32
			q := src[64*group+32*(part%2)+l] >> (4 * (part / 2)) & 15
			q |= src[128+32*group+l] >> (2 * part) & 3 << 4
			b.v[i] = int32(int8(src[192+i/16])) * (int32(q) - 32)
		}
	default:
		b.unpack(f, src)
	}
}

// unpack reads a block of a format that has no product kernel of its own.
func (b *plainBlock) unpack(f block.Format, src []byte) {
	half := func(at int) float32 { return num.FromF16(binary.LittleEndian.Uint16(src[at:])) }
	var w block.Whole
	switch {
	case w.Read(f, src):
		b.d, b.dmin = w.D, 0
		for i, c := range w.Codes {
			b.v[i] = int32(w.Scales[i/16]) * int32(c)
		}
	case f == block.Q2_K:
		b.d, b.dmin = half(80), half(82)
		for i := range b.v {
			b.v[i] = int32(src[i/16]&15) * int32(src[16+i/128*32+i%32]>>(2*(i/32%4))&3)
			b.m[i/16] = int32(src[i/16] >> 4)
		}
	case f == block.Q3_K:
		b.d, b.dmin = half(108), 0
		for i := range b.v {
			run := i / 16
			scale := src[96+run%8]>>(4*(run/8))&15 | src[104+run%4]>>(2*(run/4))&3<<4
			q := src[32+i/128*32+i%32]>>(2*(i/32%4))&3 | src[i%32]>>(i/32)&1<<2
			b.v[i] = (int32(scale) - 32) * (int32(q) - 4)
		}
	case f == block.Q5_K:
		b.d, b.dmin = half(0), half(2)
		for i := range b.v {
			j := i / 32
			scale, least := scaleMin(src[4:16], j)
			b.m[i/16] = least
			b.v[i] = int32(scale) * int32(src[48+32*(j/2)+i%32]>>(4*(j%2))&15|src[16+i%32]>>j&1<<4)
		}
	case f == block.IQ4_XS:
		b.d, b.dmin = half(0), 0
		for i := range b.v {
			j := i / 32
			scale := int32(src[4+j/2]>>(4*(j%2))&15) | int32(binary.LittleEndian.Uint16(src[2:])>>(2*j)&3)<<4
			b.v[i] = (scale - 32) * valuesIQ4[src[8+16*j+i%16]>>(4*(i%32/16))&15]
		}
	case f == block.IQ4_NL:
		b.d, b.dmin = half(0), 0
		for i := range b.v[:32] {
			b.v[i] = valuesIQ4[src[2+i%16]>>(4*(i/16))&15]
		}
	default: // Q4_1, Q5_0, Q5_1
		b.unpackNibbles(f, src)
	}
}

// unpackNibbles reads d, then m in formats with a minimum, then fifth bits in 5-bit formats, and then nibbles.
func (b *plainBlock) unpackNibbles(f block.Format, src []byte) {
	half := func(at int) float32 { return num.FromF16(binary.LittleEndian.Uint16(src[at:])) }
	b.d, b.dmin = half(0), 0
	high, less := uint32(0), int32(16)
	if f != block.Q5_0 {
		b.dmin, less = half(2), 0
	}
	if f != block.Q4_1 {
		high = binary.LittleEndian.Uint32(src[f.Bytes()-20:])
	}
	for i := range b.v[:32] {
		q := src[f.Bytes()-16+i%16] >> (4 * (i / 16)) & 15
		b.v[i] = int32(q) | int32(high>>i&1)<<4 - less
	}
}

// valuesIQ4 are the values of the codes of IQ4_NL and IQ4_XS.
var valuesIQ4 = [16]int32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// scaleMin returns the 6-bit scale and minimum of 32 values of Q4_K.
func scaleMin(packed []byte, j int) (scale byte, least int32) {
	if j < 4 {
		return packed[j] & 63, int32(packed[j+4] & 63)
	}
	return packed[j+4]&15 | packed[j-4]>>6<<4, int32(packed[j+4]>>4 | packed[j]>>6<<4)
}

// twiceE2M1 are the values of e2m1 times two.
var twiceE2M1 = [16]int32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// fma32 returns a·b + c, rounded once. The float64 sum is rounded to odd, so that the second rounding is exact.
func fma32(a, b, c float32) float32 {
	p := float64(a) * float64(b) // the product is exact
	s := p + float64(c)
	if s-s != 0 {
		return float32(s)
	}
	t := s - p
	if e := (p - (s - t)) + (float64(c) - t); e != 0 {
		bits := math.Float64bits(s)
		if bits&1 == 0 {
			if (e > 0) == (s > 0) {
				bits++
			} else {
				bits--
			}
		}
		s = math.Float64frombits(bits)
	}
	return float32(s)
}
