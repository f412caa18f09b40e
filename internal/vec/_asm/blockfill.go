package main

import "fmt"

// Q2_K and Q3_K only fill panels: the bytes of sixteen rows are transposed as dwords before they are unpacked, so that
// there are no plain blocks in between. Dword i of the two-bit codes has four values of each of four planes, of which
// value 4e of plane q is value 128h + 32q + 4e of the block, where h is i/8 and e is i%8.
//
//	Z24, Z25 temporaries   Z26 ... Z30 of a format   Z31 two bits of each byte
var (
	q2k = blockFormat{"Q2K", 256, 84, 0}
	q3k = blockFormat{"Q3K", 256, 110, 2}
)

func (e *emitter) fillData() {
	words(e, "fillTwo", 0x03030303)
	words(e, "fillFour", 0x04040404)
	words(e, "fillTop2", 0x30303030)
	words(e, "fill32", 0x20202020)
	for i := range 4 { // byte i of a dword in both words
		bytesTable(e, fmt.Sprintf("fillTwice%d", i), 16, func(at int) int { return at/4*4 + i | at%2*0x80 })
	}
	for i := range 2 { // bytes 2i and 2i+1 of a dword as words, and in the upper bytes of words
		bytesTable(e, fmt.Sprintf("fillWords%d", i), 16, func(at int) int { return at/4*4 + 2*i + at%4/2 | at%2*0x80 })
		bytesTable(e, fmt.Sprintf("fillUpper%d", i), 16, func(at int) int {
			return at/4*4 + 2*i + at%4/2 | (1-at%2)*0x80
		})
	}
}

// broadcast loads a table of 16 bytes into each lane of a register.
func (k *laneDot) broadcast(table string, z int) { k.op("VBROADCASTI32X4 %s<>(SB), Z%d", table, z) }

// planes calls use for each plane of dword i of the two-bit codes, which is in register z: with the plane, the place of
// its values in the panel, and the register of its codes.
func (k *laneDot) planes(z, i int, use func(q, to, code int)) {
	for q := range 4 {
		code := 24 + q%2
		if q == 0 {
			k.op("VPANDD Z31, Z%d, Z%d", z, code)
		} else {
			k.op(`
				VPSRLW $%d, Z%d, Z%d
				VPANDD Z31, Z%d, Z%d`, 2*q, z, code, code, code)
		}
		use(q, 64*(i/8*32+8*q+i%8), code)
	}
}

// fillQ2K fills a panel with a block of Q2_K. Codes are multiplied by their scales: the products still fit in bytes.
func (k *laneDot) fillQ2K() {
	const scales, codes = 4, 16 // dwords
	k.dwords(func(z, c int) {
		switch {
		case c < scales:
			k.op("VPANDD Z%d, Z%d, Z24", laneNibble, z)
			for i := range 4 {
				k.op("VPSHUFB Z%d, Z24, Z25", 26+i)
				k.op("VMOVDQU64 Z25, %d(R12)", 64*(4*c+i))
			}
			k.op(`
				VPSRLW $4, Z%d, Z24
				VPANDD Z%d, Z24, Z24`, z, laneNibble)
			for i := range 2 {
				k.broadcast(fmt.Sprintf("fillWords%d", i), 25)
				k.op(`
					VPSHUFB Z25, Z24, Z25
					VMOVDQU64 Z25, %d(DI)`, panelPairs+64*(2*c+i))
			}
		case c < scales+codes:
			i := c - scales
			k.planes(z, i, func(q, to, code int) {
				k.op("VPMULLW %d(R12), Z%d, Z%d", 64*(i/8*8+2*q+i%8/4), code, code)
				k.op("VMOVDQU64 Z%d, %d(DI)", code, to)
			})
		default:
			k.half(z, false, laneD)
			k.half(z, true, laneM)
			k.op(`
				VMOVUPS Z%d, %d(DI)
				VMOVUPS Z%d, %d(DI)`, laneD, panelD, laneM, panelMin)
		}
	})
}

// fillQ3K fills a panel with a block of Q3_K. Codes are raised by four.
func (k *laneDot) fillQ3K() {
	const bits, codes = 8, 16 // dwords
	bases := [4]string{"R8", "R9", "R10", "R11"}
	for r := range 16 { // d is not in a whole dword
		k.op(`
			MOVWLZX %s, DX
			MOVW DX, %d(R12)`, spaced(bases[r/4], "R14", "R15", "", q3k.bytes-2, r%4), 64*bits+2*r)
	}
	k.op(`
		VCVTPH2PS %d(R12), Z24
		VMOVUPS Z24, %d(DI)`, 64*bits, panelD)
	var scales [2]int
	k.dwords(func(z, c int) {
		switch {
		case c < bits:
			k.op("VMOVDQU64 Z%d, %d(R12)", z, 64*c)
		case c < bits+codes:
			i := c - bits
			k.planes(z, i, func(q, to, code int) {
				third, bit := 27, i/8*4+q // the third bits of codes are bits of dword i%8
				at := fmt.Sprintf("%d(R12)", 64*(i%8))
				loadShifted(k.emitter, 'W', at, bit, 2, third)
				k.op(`
					VPTERNLOGD $0xF8, Z26, Z%d, Z%d
					VMOVDQU64 Z%d, %d(DI)`, third, code, code, to)
			})
		case c < bits+codes+2:
			to := 28 + c - bits - codes
			scales[c-bits-codes] = to
			k.op("VMOVDQA64 Z%d, Z%d", z, to)
		default:
			k.scalesQ3K(scales, z)
		}
	})
}

// scalesQ3K stores sixteen scales: nibbles of two registers with upper bits in register z, less 32.
func (k *laneDot) scalesQ3K(low [2]int, z int) {
	for a := range 4 { // four scales
		from := low[a%2]
		if a >= 2 {
			k.op("VPSRLW $4, Z%d, Z24", from)
			from = 24
		}
		k.op("VPANDD Z%d, Z%d, Z24", laneNibble, from)
		upper := 25
		switch a {
		case 0, 1:
			k.op("VPSLLW $%d, Z%d, Z%d", 4-2*a, z, upper)
		case 2:
			upper = z
		default:
			k.op("VPSRLW $2, Z%d, Z%d", z, upper)
		}
		k.op(`
			VPTERNLOGD.BCST $0xF8, fillTop2<>(SB), Z%d, Z24
			VPBROADCASTD fill32<>(SB), Z25
			VPSUBB Z25, Z24, Z24`, upper)
		for i := range 4 {
			shifted := 24
			if i < 3 {
				shifted = 25
				k.op("VPSLLD $%d, Z24, Z25", 24-8*i)
			}
			k.op(`
				VPSRAD $24, Z%d, Z25
				VMOVDQU64 Z25, %d(DI)`, shifted, panelScales+64*(4*a+i))
		}
		for i := range 2 {
			k.broadcast(fmt.Sprintf("fillUpper%d", i), 25)
			k.op(`
				VPSHUFB Z25, Z24, Z25
				VPSRAW $8, Z25, Z25
				VMOVDQU64 Z25, %d(DI)`, panelPairs+64*(2*a+i))
		}
	}
}
