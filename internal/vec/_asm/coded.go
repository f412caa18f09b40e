package main

import "fmt"

// Coded rows are decoded just before they are multiplied, 64 elements at a time: row by row into
// tiles that queries are multiplied with, and later, two adjacent rows interleaved, into tiles
// that weights are multiplied with. Decoding twice costs less than keeping decoded rows, which would
// be evicted from the L1 cache in between. The order of elements is that of the unpack instruction: of a
// row, the first register holds elements 16l to 16l+7 in its lane l, the second 16l+8 to 16l+15;
// of pairs, register j elements 16l+4j to 16l+4j+3.
//
//	AX arguments   SI memory, further along the rows with every chunk   R8 places of rows
//	R11 tiles being filled line by line   R12 exponents of this chunk   R13, of pairs also R14, rows
//	R15 marks of this chunk: a byte for every four rows, not zero where a code is special (zero, subnormal, NaN)
//	Z26 largest mark of a code   Z27 least mark of a special code
//	Z28 to Z30 affine maps of codes: mark, lower and upper byte

// coded writes the kernels for a format of rows.
type coded struct {
	*emitter
	codedFormat
}

type codedFormat struct {
	name, doc string
	scaled    bool // four scales of 128 elements each, and 64 elements in bfloat16
	lines     int  // cache lines of a row
}

var codedFormats = []codedFormat{
	{name: "Raw", doc: "rows of 576 e4m3", lines: 9},
	{name: "Block", doc: "rows of 512 e4m3 with four scales and 64 bfloat16", scaled: true, lines: 11},
}

const (
	latentChunks = 16 // registers of 32 elements that are also values
	rowChunks    = 18 // registers of 32 elements in a row

	codedRounds = 64            // rows that are decoded together for queries
	codedSlot   = 8 * tileBytes // bytes of 64 elements of these rows
	scalesAt    = 512
	ropeAt      = 528
	exponentRow = 32 // bytes of exponents of a row: one for each chunk, as two equal words
	markRows    = 4  // rows that have a mark
	markChunk   = 32 // marks of a chunk of 128 rows
)

// Registers that are kept.
const (
	zMark, zExtreme, zMarkMap, zLowMap, zHighMap = 26, 27, 28, 29, 30
	markLeast                                    = 119
)

// affine is an affine map of the bits of a byte: each bit of the result is the parity of the masked input, and a
// constant is added (XOR) to the result.
type affine struct {
	rows [8]int // mask of each bit of the result, bit 0 first
	add  int
}

func (m affine) of(x int) (y int) {
	for i, row := range m.rows {
		for bits := row & x; bits != 0; bits &= bits - 1 {
			y ^= 1 << i
		}
	}
	return y ^ m.add
}

// Codes that are neither NaN, zero nor subnormal have bfloat16 whose bytes are affine in the
// bits of the code: the exponent grows by 120, which is 15 times 8, so that it only moves up the
// highest of its bits. markMap maps the other codes to markLeast and above, and these codes below it.
var (
	highMap = affine{rows: [8]int{0x10, 0x20, 0x40, 0x40, 0x40, 0x40, 0x40, 0x80}, add: 0x3C}
	lowMap  = affine{rows: [8]int{0, 0, 0, 0, 0x01, 0x02, 0x04, 0x08}}
	markMap = affine{rows: [8]int{0x41, 0x42, 0x44, 0x40, 0x48, 0x50, 0x60, 0}, add: 0x7F}
)

// data writes the matrix in the instruction's order: the row of the highest bit first.
func (m affine) data(e *emitter, name string) {
	data := make([]byte, 64)
	for i := range data {
		data[i] = byte(m.rows[7-i%8])
	}
	table(e, name, data)
}

func (m affine) apply(e *emitter, matrix, src, dst int) {
	e.op("VGF2P8AFFINEQB $%d, Z%d, Z%d, Z%d", m.add, matrix, src, dst)
}

// ordinaryData writes the constants that decode ordinary codes.
func ordinaryData(e *emitter) {
	highMap.data(e, "highMap")
	lowMap.data(e, "lowMap")
	markMap.data(e, "markMap")
	words(e, "extremeMarks", markLeast*0x01010101)
}

func codedData(e *emitter) {
	ordinaryData(e)
	words(e, "scaleBias", 127)
	words(e, "scaleLeast", (127-100)<<23)
	words(e, "scaleMost", (127+100)<<23)
	lower := make([]byte, 64)
	for i := range lower {
		lower[i] = byte(i%16/4*4 + i%2)
	}
	table(e, "twice", lower)
	for i := range 2 {
		rows, pairs := make([]byte, 64), make([]byte, 64)
		for j := range 16 {
			rows[4*j] = byte(8*i + j/2)
			pairs[4*j] = byte(j/8*8 + 4*i + j%8/2)
		}
		table(e, fmt.Sprintf("rowsTwice%d", i), rows)
		table(e, fmt.Sprintf("pairsTwice%d", i), pairs)
	}
}

// ordinaryMaps loads the registers that decoding needs throughout a kernel.
func ordinaryMaps(e *emitter) {
	e.op(`
		VMOVDQU64 highMap<>(SB), Z%d
		VMOVDQU64 lowMap<>(SB), Z%d
		VMOVDQU64 markMap<>(SB), Z%d
		VMOVDQU64 extremeMarks<>(SB), Z%d`, zHighMap, zLowMap, zMarkMap, zExtreme)
}

// unpackOrdinary decodes 64 ordinary codes in register c to bfloat16 in registers to and to+1. It overwrites t.
func unpackOrdinary(e *emitter, c, t, to int) {
	lowMap.apply(e, zLowMap, c, t)
	highMap.apply(e, zHighMap, c, c)
	e.list(`
		VPUNPCKLBW Z{c}, Z{t}, Z{to}
		VPUNPCKHBW Z{c}, Z{t}, Z{to+1}`, "c", c, "t", t, "to", to)
}

// exponents writes the exponents of the scales of all rows, four rows at a time, and jumps to the label refused if a
// scale is not a power of two, or is outside the range of bfloat16.
//
//	R12, R11 exponents of rows, of pairs   R8 places   BX rows left   R13 a row
//	Z20 bits that are no exponent   Z21 least, Z22 largest scale
func (c *coded) exponents(refused string) {
	c.op(`
		MOVQ attendScoreArgs_exponents(AX), R12
		MOVQ CX, BX
		SHLQ $6, BX
		VPXORD Z20, Z20, Z20
		VPTERNLOGD $0xFF, Z21, Z21, Z21
		VPXORD Z22, Z22, Z22
		VMOVDQU64 notExponent<>(SB), Z23
		VMOVDQU64 scaleBias<>(SB), Z24
		VMOVDQU64 twice<>(SB), Z25`)
	for i := range 2 {
		c.op("VMOVDQU64 rowsTwice%d<>(SB), Z%d", i, 16+i)
		c.op("VMOVDQU64 pairsTwice%d<>(SB), Z%d", i, 18+i)
	}
	c.op(`
		MOVQ attendScoreArgs_pairExponents(AX), R11
		MOVL $0xAAAAAAAA, R13
		KMOVD R13, K1`)
	loop := c.label("scales")
	c.at(loop)
	for lane := range 4 {
		c.op("MOVQ %d(R8), R13", 8*lane)
		if lane == 0 {
			c.op("VMOVDQU %d(SI)(R13*1), X0", scalesAt)
			continue
		}
		c.op("VINSERTI32X4 $%d, %d(SI)(R13*1), Z0, Z0", lane, scalesAt)
	}
	c.op(`
		VPTERNLOGD $0xF8, Z23, Z0, Z20
		VPMINUD Z0, Z21, Z21
		VPMAXUD Z0, Z22, Z22
		VPSRLD $23, Z0, Z0
		VPSUBD Z24, Z0, Z0
		VPSLLD $7, Z0, Z0
		VPSHUFB Z25, Z0, Z0`)
	for i := range 4 {
		c.op("VPERMD Z0, Z%d, Z%d", 16+i, 1+i)
	}
	c.op("VMOVDQU16 Z4, K1, Z3") // words of the second row of each pair
	c.op(`
		VMOVDQU64 Z1, (R12)
		VMOVDQU64 Z2, 64(R12)
		VMOVDQU64 Z3, (R11)
		ADDQ $%d, R12
		ADDQ $%d, R11
		ADDQ $32, R8
		SUBQ $4, BX
		JNZ %s
		VPTESTMD Z20, Z20, K1
		VPCMPUD $1, scaleLeast<>(SB), Z21, K2
		VPCMPUD $6, scaleMost<>(SB), Z22, K3
		KORW K1, K2, K1
		KORTESTW K1, K3
		JNZ %s
		MOVQ attendScoreArgs_exponents(AX), R12
		MOVQ attendScoreArgs_at(AX), R8`, 4*exponentRow, 2*exponentRow, loop, refused)
}

// rows decodes a chunk of the given rows, out of 64, for queries; last is set for the chunk of elements that are not
// values.
func (c *coded) rows(first, rows int, last bool) {
	for row := first; row < first+rows; row++ {
		z := row % 4 * 4
		c.op("MOVQ %d(R8), R13", 8*row)
		if c.scaled && last {
			for i := range 2 {
				c.op("VMOVDQU64 %d(SI)(R13*1), Z%d", ropeAt-scalesAt+64*i, z+2+i)
			}
			c.list(`
				VSHUFI64X2 $0x88, Z{z+3}, Z{z+2}, Z{z}
				VSHUFI64X2 $0xDD, Z{z+3}, Z{z+2}, Z{z+1}`, "z", z)
			c.lay(z, row)
			continue
		}
		c.op("VMOVDQU64 (SI)(R13*1), Z%d", z+2)
		if row%markRows == 0 {
			markMap.apply(c.emitter, zMarkMap, z+2, zMark)
		} else {
			markMap.apply(c.emitter, zMarkMap, z+2, z+3)
			c.op("VPMAXUB Z%d, Z%d, Z%d", z+3, zMark, zMark)
		}
		unpackOrdinary(c.emitter, z+2, z+3, z)
		if c.scaled {
			c.op("VPBROADCASTD %d(R12), Z%d", exponentRow*row, z+2)
			c.list(`
				VPADDW Z{z+2}, Z{z}, Z{z}
				VPADDW Z{z+2}, Z{z+1}, Z{z+1}`, "z", z)
		}
		c.lay(z, row)
		if row%markRows == markRows-1 {
			c.mark(row+1-markRows, last)
		}
	}
}

// lay stores the two registers of a row in the tiles.
func (c *coded) lay(z, row int) {
	for step := range 2 {
		c.op("VMOVDQU64 Z%d, %d(R11)", z+step, step*codedSlot/2+64*row)
	}
}

// mark stores the mark of four rows, and decodes the rows again if the mark is set.
func (c *coded) mark(row int, last bool) {
	ordinary := c.label("ordinary")
	c.op("VPCMPUB $5, Z%d, Z%d, K1", zExtreme, zMark)
	if !last {
		c.op("MOVB $0, %d(R15)", row/markRows)
	}
	c.op(`
		KTESTQ K1, K1
		JZ %s`, ordinary)
	if !last {
		c.op("MOVB $1, %d(R15)", row/markRows)
	}
	c.op(`
		MOVQ $%d, R13
		CALL decode%s<>(SB)`, row, c.name)
	c.at(ordinary)
}

// pairs decodes a chunk of four of 32 rows for weights.
func (c *coded) pairs(first int) {
	ordinary, done := c.label("ordinary"), c.label("done")
	c.op(`
		CMPB %d(R15), $0
		JEQ %s
		MOVQ $%d, R13
		CALL pair%s<>(SB)`, first/markRows, ordinary, first, c.name)
	c.op("JMP %s", done)
	c.at(ordinary)
	for row := first; row < first+markRows; row += 2 {
		z := row % 4 / 2 * 8
		c.op(`
			MOVQ %d(R8), R13
			MOVQ %d(R8), R14
			VMOVDQU64 (SI)(R13*1), Z%d
			VMOVDQU64 (SI)(R14*1), Z%d`, 8*row, 8*row+8, z, z+1)
		if c.scaled {
			c.op("VPBROADCASTD %d(R12), Z%d", exponentRow*row/2, z+6)
		}
		c.list(`
			VPUNPCKLBW Z{z+1}, Z{z}, Z{z+2}
			VPUNPCKHBW Z{z+1}, Z{z}, Z{z+3}`, "z", z)
		for half := range 2 {
			lowMap.apply(c.emitter, zLowMap, z+2+half, z)
			highMap.apply(c.emitter, zHighMap, z+2+half, z+1)
			for i, op := range []string{"VPUNPCKLBW", "VPUNPCKHBW"} {
				c.op("%s Z%d, Z%d, Z%d", op, z+1, z, z+4+i)
				if c.scaled {
					c.op("VPADDW Z%d, Z%d, Z%d", z+6, z+4+i, z+4+i)
				}
				c.op("VMOVDQU64 Z%d, %d(R11)", z+4+i, (2*half+i)*tileBytes+row/2*64)
			}
		}
	}
	c.at(done)
}

// emitDecoders writes the functions that decode four rows with a special code: zero, whose exponent stays, a subnormal
// number, NaN. Kernels call them inside their loops; they preserve all registers except R13, K1 and vector registers
// below 16.
//
//	R13 first of the rows; with it go R8, R11 and R12
func (c *coded) emitDecoders() {
	c.raw("")
	c.raw("// Four rows with any codes, of which R13 is the first, for queries.")
	c.raw("TEXT decode%s<>(SB), NOSPLIT, $0-0", c.name)
	c.decoder(exponentRow, 64, func(row, z int) {
		if c.scaled {
			c.op(`
				VPANDD codeBits<>(SB), Z6, Z7
				VPCMPEQB codeBits<>(SB), Z7, K1
				KMOVQ K1, R14
				ORQ R14, attendScoreArgs_nan(AX)`)
			c.addExponents(at16("R12", exponentRow*row), z, z+1)
		}
		c.lay(z, row)
	})
	c.raw("")
	c.raw("// Four rows with any codes, of which R13 is the first, for weights.")
	c.raw("TEXT pair%s<>(SB), NOSPLIT, $0-0", c.name)
	c.decoder(exponentRow/2, 32, func(row, z int) {
		if row%2 == 0 {
			return
		}
		for half := range 2 {
			for i, op := range []string{"VPUNPCKLWD", "VPUNPCKHWD"} {
				c.op("%s Z%d, Z%d, Z%d", op, 2+half, half, 4+i)
			}
			if c.scaled {
				c.addExponents(at16("R12", exponentRow*(row-1)/2), 4, 5)
			}
			for i := range 2 {
				c.op("VMOVDQU64 Z%d, %d(R11)", 4+i, (2*half+i)*tileBytes+(row-1)/2*64)
			}
		}
	})
}

// addExponents adds the exponents at an address to all numbers in two registers except zeros.
func (c *coded) addExponents(at string, registers ...int) {
	c.op("VPBROADCASTD %s, Z9", at)
	for _, z := range registers {
		c.op(`
			VPTESTMW Z15, Z%d, K1
			VPADDW Z9, Z%d, K1, Z%d`, z, z, z)
	}
}

// decoder decodes four rows in turn into registers 0 and 1 or 2 and 3, and calls then for each row, whose codes are in
// register 6. exponents and lines are the distances between consecutive rows in bytes.
func (c *coded) decoder(exponents, lines int, then func(row, z int)) {
	for _, r := range []string{"R8", "R11", "R12", "R14"} {
		c.op("PUSHQ %s", r)
	}
	c.op(`
		LEAQ (R8)(R13*8), R8
		IMUL3Q $%d, R13, R14
		ADDQ R14, R12
		IMUL3Q $%d, R13, R14
		ADDQ R14, R11`, exponents, lines)
	for i := range 2 {
		c.op("VMOVDQU64 codeHigh<>+%d(SB), Z%d", 64*i, 10+i)
		c.op("VMOVDQU64 codeLow<>+%d(SB), Z%d", 64*i, 12+i)
	}
	c.op(`
		VMOVDQU64 codeSign<>(SB), Z14
		VMOVDQU64 magnitude<>(SB), Z15`)
	for row := range markRows {
		z := 2 * (row % 2)
		c.op(`
			MOVQ %d(R8), R14
			VMOVDQU64 (SI)(R14*1), Z6
			VMOVDQA64 Z6, Z7
			VPERMI2B Z11, Z10, Z7
			VMOVDQA64 Z6, Z8
			VPERMI2B Z13, Z12, Z8
			VPTERNLOGD $0xF8, Z14, Z6, Z7
			VPUNPCKLBW Z7, Z8, Z%d
			VPUNPCKHBW Z7, Z8, Z%d`, 8*row, z, z+1)
		then(row, z)
	}
	for _, r := range []string{"R14", "R12", "R11", "R8"} {
		c.op("POPQ %s", r)
	}
	c.op("RET")
}
