package main

import "fmt"

// Formats without product kernels of their own are first unpacked into plain blocks, a few blocks of sixteen rows at a
// time. Plain blocks stay in the L1 cache and are multiplied by kernels that all such formats share:
//
//	plain block of 256:  codes [256] int8; scales [16] int16; minimums [16] int16; d, dmin float32; 24 bytes; signs
//	                     value i is d·scales[i/16]·code - dmin·minimums[i/16]
//	plain block of 32:   d, m float16; codes [32] int8
//	                     value i is d·code + m
//
// Codes of PlainRaised are stored plus 64: with at most seven bits, sums of two products are exact in 16 bits. Codes of
// PlainMins are never negative and are stored unchanged. PlainSigned is for signed codes of eight bits.
var (
	plain32     = blockFormat{"Plain32", 32, 36, 7}
	plainRaised = blockFormat{"PlainRaised", 256, plainBytes, 6}
	plainMins   = blockFormat{"PlainMins", 256, plainBytes, 0}
	plainSigned = blockFormat{"PlainSigned", 256, plainBytes, 0}
)

var plainFormats = []blockFormat{plain32, plainRaised, plainMins, plainSigned}

// Byte offsets in a plain block of 256.
const (
	plainScales, plainLeast, plainD, plainSigns = 256, 288, 320, 352
	plainBytes                                  = 384
)

func (f blockFormat) plain() bool { return f == plain32 || f.bytes == plainBytes }

// unpacker writes the kernels that unpack blockArgs_steps blocks of blockArgs_count rows, from byte blockArgs_last of
// each row on. blockArgs_second is the number of bytes by which a row of plain blocks is longer.
//
// Points of grids are loaded one by one: gathers are several times as slow on processors that guard against reading
// their leftovers.
//
//	R8 a block   DI its plain block   R13 bytes to prefetch ahead   R14 grid   R12 table of deltas
//	SI pointers to rows   CX rows left   DX blocks left   R9 ... R11 and Y0 ... Y7 temporaries
//	Y8 ... Y15 constants: 0x0F, 0x03, zero, 64 and of a format; signs: octet of a byte, bit of a byte
type unpacker struct{ *emitter }

func emitUnpack(e *emitter) {
	u := unpacker{e}
	u.data()
	if u.wide() { // formats of panels unpack 32 bytes at a time
		u.blocks("Q6K", 210, plainRaised, u.q6k)
	}
	u.blocks("IQ1S", 50, plainRaised, u.iq1s)
	u.blocks("IQ1M", 56, plainRaised, u.iq1m)
	u.blocks("IQ2XXS", 66, plainRaised, u.iq2xxs)
	u.blocks("IQ2XS", 74, plainRaised, u.iq2xs)
	u.blocks("IQ2S", 82, plainRaised, u.iq2s)
	u.blocks("IQ3XXS", 98, plainRaised, u.iq3xxs)
	u.blocks("IQ3S", 110, plainRaised, u.iq3s)
	u.blocks("TQ10", 54, plainRaised, u.tq1)
	u.blocks("TQ20", 66, plainRaised, u.tq2)
	if !u.wide() {
		u.blocks("Q2K", 84, plainMins, u.q2k)
		u.blocks("Q3K", 110, plainRaised, u.q3k)
		u.blocks("Q5K", 176, plainMins, u.q5k)
		u.blocks("IQ4XS", 136, plainSigned, u.iq4xs)
		u.blocks("Q41", 20, plain32, func() { u.nibbles(true, "", false) })
		u.blocks("Q50", 22, plain32, func() { u.nibbles(false, "", true) })
		u.blocks("Q51", 24, plain32, func() { u.nibbles(true, "", true) })
		u.blocks("IQ4NL", 18, plain32, func() { u.nibbles(false, "unpackIQ4", false) })
	}
}

const (
	unNibble, unTwo, unZero, un64 = 15, 14, 13, 12
	unByte, unBit, unOther        = 11, 10, 9
)

func (u unpacker) data() {
	same := func(name string, word uint32) {
		bytesTable(u.emitter, name, 32, func(i int) int { return int(word >> (8 * (i % 4))) })
	}
	same("unpack15", 0x0F0F0F0F)
	same("unpack3", 0x03030303)
	same("unpack64", 0x40404040)
	same("unpack63", 0x3F3F3F3F)
	same("unpack60", 0x3C3C3C3C)
	same("unpack48", 0x30303030)
	same("unpack32", 0x20202020)
	same("unpack16", 0x10101010)
	same("unpack4", 0x04040404)
	same("unpackOnes", 0x00010001)
	same("unpackLowByte", 0x00FF00FF)
	same("unpackNibbles", 0x000F000F)
	same("unpackSeven", 7)
	same("unpackEighth", 0x3E000000)
	same("unpackQuarter", 0x3E800000)
	for k := range 4 {
		same(fmt.Sprintf("unpackSeven%d", k), 0x7F<<(8*k))
	}
	bytesTable(u.emitter, "unpackOctet", 32, func(i int) int { return i / 8 })
	bytesTable(u.emitter, "unpackBit", 32, func(i int) int { return 1 << (i % 8) })
	bytesTable(u.emitter, "unpackParity", 32, func(i int) int { return (i ^ i>>1 ^ i>>2 ^ i>>3) & 1 << 7 })
	bytesTable(u.emitter, "unpackHalves", 32, func(i int) int { return i / 16 * 4 * (1 - min(1, i%4)) })
	bytesTable(u.emitter, "unpackPairs", 32, func(i int) int { return i / 4 * 2 * (1 - min(1, i%4)) })
	// Four words, each twice.
	bytesTable(u.emitter, "unpackTwice", 32, func(i int) int { return i%16/4*2 + i%2 })
	bytesTable(u.emitter, "unpackTwiceMore", 32, func(i int) int { return 8 + i%16/4*2 + i%2 })
	values := [16]int{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	bytesTable(u.emitter, "unpackIQ4", 32, func(i int) int { return values[i%16] })
	// Deltas of four octets, indexed by four bits.
	bytesTable(u.emitter, "unpackDeltas", 16*32, func(i int) int { return 65 - i/32>>(i%32/8)&1*2 })
	for n, power := range []int{1, 3, 9, 27, 81} {
		same(fmt.Sprintf("unpackPower%d", n), uint32(power)*0x00010001)
	}
	powers := [4]int{1, 3, 9, 27}
	bytesTable(u.emitter, "unpackPowers", 32, func(i int) int { return powers[i/8] * (1 - i%2) })
}

// blocks writes the kernel of a format. body unpacks the block at R8 to DI.
func (u unpacker) blocks(name string, bytes int, to blockFormat, body func()) {
	u.function("unpack"+name+u.name, "blockArgs", fmt.Sprintf("%s of sixteen rows to %s.", name, to.name))
	u.op(`
		MOVQ blockArgs_panel(AX), DI
		MOVQ blockArgs_ahead(AX), R13
		MOVQ blockArgs_grid(AX), R14
		LEAQ blockArgs_rows(AX), SI
		LEAQ unpackDeltas<>(SB), R12
		MOVQ blockArgs_count(AX), CX`)
	u.load("unpack15", unNibble)
	u.load("unpack3", unTwo)
	u.load("unpack64", un64)
	u.op("VPXOR Y%d, Y%d, Y%d", unZero, unZero, unZero)
	u.load("unpackOctet", unByte)
	u.load("unpackBit", unBit)
	u.loop("row", "CX", func() {
		u.op(`
			MOVQ (SI), R8
			ADDQ blockArgs_last(AX), R8
			ADDQ $8, SI
			MOVQ blockArgs_steps(AX), DX`)
		u.loop("block", "DX", func() {
			for at := 0; at < bytes; at += 64 {
				u.op("PREFETCHT0 %d(R8)(R13*1)", at)
			}
			body()
			u.op(`
				ADDQ $%d, R8
				ADDQ $%d, DI`, bytes, to.bytes)
		})
		u.op("ADDQ blockArgs_second(AX), DI")
	})
	u.ret()
}

func (u unpacker) load(name string, y int) { u.op("VMOVDQU %s<>(SB), Y%d", name, y) }

// store writes 32 codes to the plain block.
func (u unpacker) store(y, at int) { u.op("VMOVDQU Y%d, %d(DI)", y, at) }

// scale writes d, the float16 at a byte, times a constant if one is given.
func (u unpacker) scale(at int, times string) {
	u.op(`
		VPBROADCASTW %d(R8), X0
		VCVTPH2PS X0, X0`, at)
	u.scaled(times)
}

func (u unpacker) scaled(times string) {
	if times != "" {
		u.op("VMULSS %s<>(SB), X0, X0", times)
	}
	u.op("VMOVSS X0, %d(DI)", plainD)
}

// pairs writes the eight dwords of register y as sixteen words, each value twice.
func (u unpacker) pairs(y int) {
	u.list(`
		VPSLLD $16, Y{y}, Y7
		VPBLENDW $0xAA, Y7, Y{y}, Y{y}
		VMOVDQU Y{y}, {plainScales}(DI)`, "y", y, "plainScales", plainScales)
}

// odd replaces the words s of register y, which are below 2^14, by 2s+1.
func (u unpacker) odd(y int) {
	u.list(`
		VPADDW Y{y}, Y{y}, Y{y}
		VPOR unpackOnes<>(SB), Y{y}, Y{y}`, "y", y)
}

func (u unpacker) scalesOne() {
	u.load("unpackOnes", 0)
	u.op("VMOVDQU Y0, %d(DI)", plainScales)
}

// crumbs calls use with the 2-bit values of 64 bytes: 32 values at a time, in order.
func (u unpacker) crumbs(from int, use func(i, y int)) {
	for g := range 2 {
		u.op("VMOVDQU %d(R8), Y0", from+32*g)
		for part := range 4 {
			y := 0
			if part > 0 {
				y = part
				u.op("VPSRLW $%d, Y0, Y%d", 2*part, y)
			} else {
				y = 4
			}
			u.op("VPAND Y%d, Y%d, Y%d", unTwo, y%4, y)
			use(4*g+part, y)
		}
	}
}

func (u unpacker) q2k() {
	u.op(`
		VMOVDQU (R8), X0
		VPAND X%d, X0, X1
		VPSRLW $4, X0, X0
		VPAND X%d, X0, X0
		VPMOVZXBW X1, Y1
		VPMOVZXBW X0, Y0
		VMOVDQU Y1, %d(DI)
		VMOVDQU Y0, %d(DI)
		VMOVD 80(R8), X0
		VCVTPH2PS X0, X0`, unNibble, unNibble, plainScales, plainLeast)
	u.op("VMOVQ X0, %d(DI)", plainD)
	u.crumbs(16, func(i, y int) { u.store(y, 32*i) })
}

func (u unpacker) q3k() {
	u.op(`
		VMOVQ 96(R8), X0
		VPSRLW $4, X0, X1
		VPUNPCKLQDQ X1, X0, X0
		VPAND X%d, X0, X0
		VPBROADCASTD 104(R8), X1
		VPSRLVD unpackPairs<>(SB), X1, X1
		VPAND X%d, X1, X1
		VPSLLW $4, X1, X1
		VPOR X1, X0, X0
		VPSUBB unpack32<>(SB), X0, X0
		VPMOVSXBW X0, Y0
		VMOVDQU Y0, %d(DI)`, unNibble, unTwo, plainScales)
	u.scale(108, "")
	u.load("unpack4", 7)
	u.load("unpack60", 6)
	u.op("VMOVDQU (R8), Y%d", unOther)
	u.crumbs(32, func(i, y int) {
		u.shift(unOther, 5, 2-i)
		u.op(`
			VPAND Y7, Y5, Y5
			VPOR Y5, Y%d, Y%d
			VPADDB Y6, Y%d, Y%d`, y, y, y, y)
		u.store(y, 32*i)
	})
}

// shift shifts the bits of register y to the left, or to the right if left is negative, and writes them to another
// register.
func (u unpacker) shift(y, to, left int) {
	switch {
	case left > 0:
		u.op("VPSLLW $%d, Y%d, Y%d", left, y, to)
	case left == 0:
		u.op("VMOVDQA Y%d, Y%d", y, to)
	default:
		u.op("VPSRLW $%d, Y%d, Y%d", -left, y, to)
	}
}

// scalesMins writes d, dmin and the scales and minimums of Q4_K and Q5_K.
func (u unpacker) scalesMins() {
	u.sixBits(0)
	for i, table := range []string{"unpackTwice", "unpackTwiceMore"} {
		u.op(`
			VPSHUFB %s<>(SB), Y0, Y1
			VMOVDQU Y1, %d(DI)`, table, plainScales+32*i)
	}
	u.op(`
		VMOVD (R8), X0
		VCVTPH2PS X0, X0
		VMOVQ X0, %d(DI)`, plainD)
}

// q6k unpacks Q6_K: its codes are the values plus 32, and another 32 is added, so that the stored codes are the values
// plus 64.
func (u unpacker) q6k() {
	u.op(`
		VPMOVSXBW 192(R8), Y0
		VMOVDQU Y0, %d(DI)`, plainScales)
	u.scale(208, "")
	u.load("unpack48", 7)
	u.load("unpack32", 6)
	for g := range 2 {
		u.op("VMOVDQU %d(R8), Y%d", 128+32*g, unOther)
		for part := range 4 {
			low := part % 2
			if part < 2 {
				u.op("VMOVDQU %d(R8), Y%d", 64*g+32*part, low)
			} else {
				u.op("VPSRLW $4, Y%d, Y%d", low, low)
			}
			u.op("VPAND Y%d, Y%d, Y2", unNibble, low)
			u.shift(unOther, 3, 4-2*part)
			u.op(`
				VPAND Y7, Y3, Y3
				VPOR Y3, Y2, Y2
				VPADDB Y6, Y2, Y2`)
			u.store(2, 128*g+32*part)
		}
	}
}

func (u unpacker) q5k() {
	u.scalesMins()
	u.load("unpack16", 7)
	u.op("VMOVDQU 16(R8), Y%d", unOther)
	for j := range 8 {
		if j%2 == 0 {
			u.op("VMOVDQU %d(R8), Y0", 48+16*j)
		} else {
			u.op("VPSRLW $4, Y0, Y0")
		}
		u.op("VPAND Y%d, Y0, Y1", unNibble)
		u.shift(unOther, 2, 4-j)
		u.op(`
			VPAND Y7, Y2, Y2
			VPOR Y2, Y1, Y1`)
		u.store(1, 32*j)
	}
}

// sixBits writes the 6-bit scales and minimums of Q4_K and Q5_K as words: scales 0 to 3, minimums 0 to 3, then scales
// and minimums 4 to 7.
func (u unpacker) sixBits(y int) {
	u.list(`
		MOVQ 4(R8), R9
		MOVL 12(R8), R10
		MOVQ R10, R11
		SHRQ $4, R11
		SHLQ $32, R11
		ORQ R10, R11
		ANDQ unpack15<>(SB), R11
		MOVQ R9, R10
		SHRQ $2, R10
		MOVQ $0x3030303030303030, BX
		ANDQ BX, R10
		ORQ R10, R11
		ANDQ unpack63<>(SB), R9
		VMOVQ R9, X{y}
		VPINSRQ $1, R11, X{y}, X{y}
		VPMOVZXBW X{y}, Y{y}`, "y", y)
}

func (u unpacker) iq4xs() {
	u.op(`
		MOVL 4(R8), R9
		MOVQ $0x0F0F0F0F0F0F0F0F, R10
		PDEPQ R10, R9, R9
		MOVWLZX 2(R8), R11
		MOVQ $0x3030303030303030, R10
		PDEPQ R10, R11, R11
		ORQ R11, R9
		VMOVQ R9, X0
		VPSUBB unpack32<>(SB), X0, X0
		VPMOVSXBD X0, Y0`)
	u.pairs(0)
	u.scale(0, "")
	u.load("unpackHalves", 7)
	u.load("unpackIQ4", 6)
	for j := range 8 {
		u.op(`
			VBROADCASTI128 %d(R8), Y0
			VPSRLVD Y7, Y0, Y0
			VPAND Y%d, Y0, Y0
			VPSHUFB Y0, Y6, Y0`, 8+16*j, unNibble)
		u.store(0, 32*j)
	}
}

// nibbles unpacks a block of 32 with d, or d and m: nibbles, with fifth bits if fifth is set, or codes of a table.
func (u unpacker) nibbles(least bool, table string, fifth bool) {
	at := 2
	if least {
		at = 4
		u.op("MOVL (R8), R9")
	} else {
		u.op("MOVWLZX (R8), R9")
	}
	u.op("MOVL R9, (DI)")
	if fifth {
		u.op(`
			VPBROADCASTD %d(R8), Y1
			VPSHUFB Y%d, Y1, Y1
			VPAND Y%d, Y1, Y1
			VPCMPEQB Y%d, Y1, Y1
			VPAND unpack16<>(SB), Y1, Y1`, at, unByte, unBit, unBit)
		at += 4
	}
	u.op(`
		VBROADCASTI128 %d(R8), Y0
		VPSRLVD unpackHalves<>(SB), Y0, Y0
		VPAND Y%d, Y0, Y0`, at, unNibble)
	if fifth {
		u.op("VPOR Y1, Y0, Y0")
		if !least {
			u.op("VPSUBB unpack16<>(SB), Y0, Y0")
		}
	}
	if table != "" {
		u.load(table, 2)
		u.op("VPSHUFB Y0, Y2, Y0")
	}
	u.store(0, 4)
}

// signed writes 32 values whose magnitudes are in Y0 and whose signs are the bits of a dword in memory.
func (u unpacker) signed(signs string, at int) {
	if u.wide() {
		u.op(`
			KMOVD %s, K1
			VPSUBB Y0, Y%d, K1, Y0`, signs, unZero)
	} else {
		u.op(`
			VPBROADCASTD %s, Y1
			VPSHUFB Y%d, Y1, Y1
			VPAND Y%d, Y1, Y1
			VPCMPEQB Y%d, Y1, Y1
			VPXOR Y1, Y0, Y0
			VPSUBB Y1, Y0, Y0`, signs, unByte, unBit, unBit)
	}
	u.op("VPADDB Y%d, Y0, Y0", un64)
	u.store(0, at)
}

// parity sets the eighth sign of each byte of Y2, so that the number of signs is even, and stores the signs.
func (u unpacker) parity() {
	u.load("unpackParity", 7)
	u.op(`
		VPAND Y%d, Y2, Y3
		VPSRLW $4, Y2, Y4
		VPAND Y%d, Y4, Y4
		VPSHUFB Y3, Y7, Y3
		VPSHUFB Y4, Y7, Y4
		VPXOR Y3, Y2, Y2
		VPXOR Y4, Y2, Y2
		VMOVDQU Y2, %d(DI)`, unNibble, unNibble, plainSigns)
}

// sevens separates four codes of seven signs and a 4-bit scale of each dword of Y2.
func (u unpacker) sevens() {
	u.op("VPSRLD $28, Y2, Y0")
	u.odd(0)
	u.pairs(0)
	u.op("VPAND unpackSeven0<>(SB), Y2, Y3")
	for k := 1; k < 4; k++ {
		u.op(`
			VPSLLD $%d, Y2, Y4
			VPAND unpackSeven%d<>(SB), Y4, Y4
			VPOR Y4, Y3, Y3`, k, k)
	}
	u.op("VMOVDQA Y3, Y2")
	u.parity()
}

// nibbleScales computes sixteen scales from the nibbles of eight bytes.
func (u unpacker) nibbleScales(at int) {
	u.op(`
		VPMOVZXBD %d(R8), Y0
		VPSLLD $12, Y0, Y1
		VPOR Y1, Y0, Y0
		VPAND unpackNibbles<>(SB), Y0, Y0`, at)
	u.odd(0)
	u.op("VMOVDQU Y0, %d(DI)", plainScales)
}

// octets writes four points of eight values to Y0; index writes the index of point k to R9.
func (u unpacker) octets(index func(k int)) {
	for k := range 4 {
		index(k)
		x := k / 2
		if k%2 == 0 {
			u.op("VMOVQ (R14)(R9*8), X%d", x)
		} else {
			u.op("VPINSRQ $1, (R14)(R9*8), X%d, X%d", x, x)
		}
	}
	u.op("VINSERTI128 $1, X1, Y0, Y0")
}

// quads writes eight points of four values to Y0; index writes the index of point k to R9.
func (u unpacker) quads(index func(k int)) {
	for k := range 8 {
		index(k)
		x := k / 4
		if k%4 == 0 {
			u.op("VMOVD (R14)(R9*4), X%d", x)
		} else {
			u.op("VPINSRD $%d, (R14)(R9*4), X%d, X%d", k%4, x, x)
		}
	}
	u.op("VINSERTI128 $1, X1, Y0, Y0")
}

// bytesAt returns a function that reads one-byte indices.
func (u unpacker) bytesAt(at int) func(k int) {
	return func(k int) { u.op("MOVBLZX %d(R8), R9", at+k) }
}

// word reads an index from the lowest 16 bits of R10.
func (u unpacker) word(k int) {
	u.op("MOVWLZX R10, R9")
	if k%4 != 3 {
		u.op("SHRQ $16, R10")
	}
}

// indices writes four indices to the words of R10. Their lower bytes are in memory; their upper bits are in R11, and
// mask contains their places.
func (u unpacker) indices(at int, mask string) {
	u.op(`
		MOVL %d(R8), R10
		MOVQ $0x00FF00FF00FF00FF, R9
		PDEPQ R9, R10, R10
		MOVQ $%s, R9
		PDEPQ R9, R11, R9
		ORQ R9, R10`, at, mask)
}

func (u unpacker) iq2xxs() {
	u.scale(0, "unpackEighth")
	u.op(`
		VMOVDQU 2(R8), Y0
		VSHUFPS $0xDD, 34(R8), Y0, Y2
		VPERMQ $0xD8, Y2, Y2`)
	u.sevens()
	for g := range 8 {
		u.octets(u.bytesAt(2 + 8*g))
		u.signed(fmt.Sprintf("%d(DI)", plainSigns+4*g), 32*g)
	}
}

func (u unpacker) iq3xxs() {
	u.scale(0, "unpackQuarter")
	u.op("VMOVDQU 66(R8), Y2")
	u.sevens()
	for g := range 8 {
		u.quads(u.bytesAt(2 + 8*g))
		u.signed(fmt.Sprintf("%d(DI)", plainSigns+4*g), 32*g)
	}
}

func (u unpacker) iq2xs() {
	u.scale(0, "unpackEighth")
	u.nibbleScales(66)
	u.op(`
		VMOVDQU 2(R8), Y2
		VMOVDQU 34(R8), Y3
		VPSRLW $9, Y2, Y2
		VPSRLW $9, Y3, Y3
		VPACKUSWB Y3, Y2, Y2
		VPERMQ $0xD8, Y2, Y2`)
	u.parity()
	for g := range 8 {
		u.octets(func(k int) {
			u.op(`
				MOVWLZX %d(R8), R9
				ANDL $511, R9`, 2+8*g+2*k)
		})
		u.signed(fmt.Sprintf("%d(DI)", plainSigns+4*g), 32*g)
	}
}

func (u unpacker) iq2s() {
	u.scale(0, "unpackEighth")
	u.nibbleScales(74)
	for g := range 8 {
		u.op("MOVBLZX %d(R8), R11", 66+g)
		u.indices(2+4*g, "0x0300030003000300")
		u.octets(u.word)
		u.signed(fmt.Sprintf("%d(R8)", 34+4*g), 32*g)
	}
}

func (u unpacker) iq3s() {
	u.scale(0, "")
	u.op(`
		MOVL 106(R8), R9
		MOVQ $0x0F0F0F0F0F0F0F0F, R10
		PDEPQ R10, R9, R9
		VMOVQ R9, X0
		VPMOVZXBD X0, Y0`)
	u.odd(0)
	u.pairs(0)
	for g := range 8 {
		u.quads(func(k int) {
			if k%4 == 0 {
				u.op("MOVBLZX %d(R8), R11", 66+g)
				if k > 0 {
					u.op("SHRL $4, R11")
				}
				u.indices(2+8*g+k, "0x0100010001000100")
			}
			u.word(k)
		})
		u.signed(fmt.Sprintf("%d(R8)", 74+4*g), 32*g)
	}
}

// deltas adds one to the values of four octets or subtracts one, according to the bits of R11.
func (u unpacker) deltas(at int) {
	u.op(`
		SHLL $5, R11
		VPADDB (R12)(R11*1), Y0, Y0`)
	u.store(0, at)
}

func (u unpacker) iq1s() {
	u.scale(0, "unpackEighth")
	u.op(`
		VPMOVZXWD 34(R8), Y0
		VPSRLD $12, Y0, Y0
		VPAND unpackSeven<>(SB), Y0, Y0`)
	u.odd(0)
	u.pairs(0)
	for g := range 8 {
		u.op("MOVWLZX %d(R8), R11", 34+2*g)
		u.indices(2+4*g, "0x0700070007000700")
		u.octets(u.word)
		u.op("MOVWLSX %d(R8), R11", 34+2*g) // the sign of the word is the sign of the delta
		u.op(`
			SARL $31, R11
			ANDL $15, R11`)
		u.deltas(32 * g)
	}
}

func (u unpacker) iq1m() {
	u.op(`
		MOVQ 48(R8), R9
		MOVQ $0xF000F000F000F000, R10
		PEXTQ R10, R9, R10
		VMOVD R10, X0
		VCVTPH2PS X0, X0`)
	u.scaled("unpackEighth")
	u.op(`
		MOVQ $0x0FFF0FFF0FFF0FFF, R10
		PEXTQ R10, R9, R9
		MOVQ $0x0707070707070707, R10
		PDEPQ R10, R9, R11
		SHRQ $24, R9
		PDEPQ R10, R9, R9
		VMOVQ R11, X0
		VPINSRQ $1, R9, X0, X0
		VPMOVZXBW X0, Y0`)
	u.odd(0)
	u.op("VMOVDQU Y0, %d(DI)", plainScales)
	for g := range 8 {
		u.op(`
			MOVWLZX %d(R8), R11
			MOVL $0x7777, R9
			PEXTQ R9, R11, R11`, 32+2*g)
		u.indices(4*g, "0x0700070007000700")
		u.octets(u.word)
		u.op(`
			MOVWLZX %d(R8), R11
			MOVL $0x8888, R9
			PEXTQ R9, R11, R11`, 32+2*g)
		u.deltas(32 * g)
	}
}

func (u unpacker) tq2() {
	u.scale(64, "")
	u.scalesOne()
	u.load("unpack63", 7)
	u.crumbs(0, func(i, y int) {
		u.op("VPADDB Y7, Y%d, Y%d", y, y)
		u.store(y, 32*i)
	})
}

// tq1 unpacks TQ1_0: a digit is the upper byte of 3 times the lower byte of the product of the code and a power of
// three.
func (u unpacker) tq1() {
	u.scale(52, "")
	u.scalesOne()
	u.load("unpackLowByte", 7)
	u.load("unpackPower1", 6)
	digits := func(powers string, at int) { // digits of the words of Y0
		u.op(`
			VPMULLW %s<>(SB), Y0, Y1
			VPAND Y7, Y1, Y1
			VPMULLW Y6, Y1, Y1
			VPSRLW $8, Y1, Y1
			VPACKUSWB Y1, Y1, Y1
			VPERMQ $0x08, Y1, Y1
			VPADDB unpack63<>(SB), X1, X1
			VMOVDQU X1, %d(DI)`, powers, at)
	}
	for half := range 3 {
		u.op("VPMOVZXBW %d(R8), Y0", 16*half)
		for n := range 5 {
			at := 32*n + 16*half
			if half == 2 {
				at = 160 + 16*n
			}
			digits(fmt.Sprintf("unpackPower%d", n), at)
		}
	}
	u.op(`
		VPBROADCASTD 48(R8), X0
		VPMOVZXBW X0, Y0`)
	digits("unpackPowers", 240)
}
